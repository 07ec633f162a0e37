"""The midpoint scheme (Moreau-Jean) beside semi-implicit Euler: orders, impacts, momentum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import contact, dual

SCHEMES = ("semi-implicit", "midpoint")
STEPS = (20, 40, 80)


def orders(sys, state, time, exact, distance, **more):
    """Errors (schemes, steps) against `exact`, and the orders that they show; all in one program."""
    options = more.pop("options", {})

    def ends(state):
        return [
            [
                distance(
                    jax.tree.map(
                        lambda x: x[-1],
                        rbd.rollout(
                            sys, state, steps=n, keep="last", **more,
                            integrator=rbd.HardContact(dt=time / n, scheme=scheme, **options),
                        ).value,
                    ),
                    exact,
                )
                for n in STEPS
            ]
            for scheme in SCHEMES
        ]  # fmt: skip

    errors = np.array(jax.jit(ends)(state))
    return errors, np.log2(errors[:, :-1] / errors[:, 1:])


def floating_arm():
    """A free body with a hinge, a ball joint and a spring; everything off centre."""
    b = rbd.Builder("floating")
    b.body("base", 2.0, com=(0.05, 0.02, -0.03), inertia=np.diag([0.03, 0.05, 0.06]))
    b.joint("root", "free", None, "base")
    b.body("upper", 1.0, com=(0.2, 0, 0.01), inertia=np.diag([0.004, 0.02, 0.02]))
    b.joint("hinge", "revolute", "base", "upper", xyz=(0.1, 0, 0), axis=(0, 1, 0), damping=0.2, stiffness=3.0)
    b.body("lower", 0.5, com=(0.15, 0, 0), inertia=np.diag([0.002, 0.01, 0.012]))
    b.joint("ball", "spherical", "upper", "lower", xyz=(0.4, 0, 0), damping=0.01)
    return b.build(dtype="float64")


def test_order_without_contact():
    """Order 1 and 2, with dampers and springs implicit or not; the midpoint is ten times nearer."""
    sys = floating_arm()
    v = jnp.asarray(np.random.default_rng(0).normal(size=sys.nv) * 1.5)
    state = rbd.State(sys.q0, v)
    fine = rbd.rollout(sys, state, steps=400, integrator=rbd.RK4(dt=0.4 / 400), keep="last").value
    exact = jax.tree.map(lambda x: x[-1], fine)

    def apart(a, b):
        return jnp.maximum(jnp.abs(rbd.difference(sys, b.q, a.q)).max(), jnp.abs(a.v - b.v).max())

    for implicit in ("dampers", "all"):
        errors, order = orders(sys, state, 0.4, exact, apart, options={"implicit": implicit})
        assert abs(order[0, -1] - 1) < 0.15 and abs(order[1, -1] - 2) < 0.15
        assert errors[1, -1] < 0.1 * errors[0, -1]


@pytest.mark.all_robots
def test_order_with_a_loop():
    """A four-bar with its loop as rows, against its cluster by Runge-Kutta: order 1 and 2, and its drift."""
    tree = rbd.zoo.four_bar(dtype="float64")
    tree = tree.replace(friction=0 * tree.friction)
    loops, sys = con.of_model(tree), rbd.cluster(tree)
    v0 = jnp.array([2.0])
    q, v = rbd.to_tree(sys, sys.q0, v0)
    fine = rbd.rollout(sys, rbd.State(sys.q0, v0), steps=800, integrator=rbd.RK4(dt=5e-4), keep="last").value
    exact = rbd.State(*rbd.to_tree(sys, fine.q[-1], fine.v[-1]))

    def apart(a, b):
        return jnp.maximum(jnp.abs(a.q - b.q).max(), jnp.abs(a.v - b.v).max())

    options = {"solver": dual.ADMM(iterations=400), "limits": False, "dry_friction": False}
    errors, order = orders(tree, rbd.State(q, v), 0.4, exact, apart, constraints=loops, options=options)
    assert np.abs(order[0, -1] - 1) < 0.25 and np.abs(order[1, -1] - 2) < 0.25
    assert errors[1, -1] < 0.1 * errors[0, -1]


def test_order_while_rolling():
    """A ball on a spring rolls without slip, x(t) = cos(√(5 k / 7 m) t): order 1 and 2."""
    b = rbd.Builder("ball")
    b.body("ball", 1.0, shapes=[b.sphere(0.1)])
    b.joint("root", "free", None, "ball")
    sys = b.build(dtype="float64")
    ground = contact.on_plane(sys, ["ball"], radius=0.1, friction=0.9)
    state = rbd.State(jnp.array([0.1, 0, 0.1, 1, 0, 0, 0]), jnp.zeros(6))

    def pull(sys, q, v):
        _, p = rbd.frame_pose(sys, q, "ball")
        return jnp.concatenate([jnp.zeros(3), jnp.array([-20.0, 0, 0]) * p[0]])[None]

    rate = np.sqrt(20 * 5 / 7)
    exact = (0.1 * np.cos(rate * 0.4), -0.1 * rate * np.sin(rate * 0.4))

    def apart(a, b):
        R, _ = rbd.frame_pose(sys, a.q, "ball")
        return jnp.maximum(jnp.abs(a.q[0] - b[0]), jnp.abs((R @ a.v[3:])[0] - b[1]))

    errors, order = orders(sys, state, 0.4, exact, apart, contacts=ground, f_ext=pull)
    assert np.abs(order[0] - 1).max() < 0.15 and np.abs(order[1] - 2).max() < 0.15
    assert errors[1, -1] < 0.1 * errors[0, -1]


def test_impacts_at_the_midpoint():
    """Heights lose e²; without it a ball lands and lies, half a step's fall in the ground at most."""
    b = rbd.Builder("ball")
    b.body("ball", 1.0, shapes=[b.sphere(0.1)])
    b.joint("root", "free", None, "ball")
    sys = b.build(dtype="float64")
    state = rbd.State(jnp.array([0, 0, 1.1, 1, 0, 0, 0.0]), jnp.zeros(6))
    integrator = rbd.HardContact(dt=5e-4, scheme="midpoint")

    def fall(state, e):
        ground = contact.on_plane(sys, ["ball"], radius=0.1, restitution=e)
        path = rbd.rollout(sys, state, steps=4000, integrator=integrator, contacts=ground)
        return path.value.q[:, 2] - 0.1, path.stats.lam[-1, 2], path.result

    (bouncing, lying), (_, force), verdict = jax.jit(jax.vmap(fall, (None, 0)))(state, jnp.array([0.8, 0.0]))
    peaks = bouncing[1:-1][(bouncing[1:-1] > bouncing[:-2]) & (bouncing[1:-1] >= bouncing[2:])][:3]
    np.testing.assert_allclose(peaks, 0.64 ** np.arange(1, 4), rtol=5e-3)
    assert (verdict == 0).all()
    assert lying.min() > -0.5 * 5e-4 * np.sqrt(2 * 9.81) * 1.01 and abs(lying[-1]) < 1.1e-5
    np.testing.assert_allclose(force / 5e-4, 9.81, rtol=1e-6)


def test_free_bodies_keep_their_momentum():
    """Without forces a spinning body's centre keeps its velocity to rounding over both halves of a step."""
    b = rbd.Builder("body")
    b.body("body", 1.0, com=(0.1, -0.05, 0.2), inertia=np.diag([0.1, 0.2, 0.25]))
    b.joint("root", "free", None, "body")
    sys = b.build(dtype="float64").replace(gravity=jnp.zeros(3))
    state = rbd.State(sys.q0, jnp.array([3.0, -2, 5, 1, 0, 0]))
    integrator = rbd.HardContact(dt=1e-2, scheme="midpoint")
    path = jax.jit(lambda s: rbd.rollout(sys, s, steps=200, integrator=integrator, keep="last"))(state)
    p = lambda q, v: rbd.center_of_mass_jacobian(sys, q) @ v  # noqa: E731
    np.testing.assert_allclose(
        p(path.value.q[-1], path.value.v[-1]), p(state.q, state.v), atol=1e-12
    )  # fmt: skip
