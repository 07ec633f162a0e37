"""A user's own constraint phi(q), or psi(q, v), in a few lines of JAX: as good as a kind of ours."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constrained_cases import dense

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.constraints.jacobian import evaluate
from jaxrbd.errors import ArgumentError

SOLVERS = (rbd.ConstrainedABA, rbd.ProxPV, rbd.ProxLTL, rbd.ProxLTLs, rbd.Dense)
PLACE = {"anchor": np.array([0.1, 0.2, 0.3]), "length": 0.7}


def rod(sys, q, place):
    """The distance of the tip to a point."""
    d = rbd.frame_pose(sys, q, "tip")[1] - place["anchor"]
    return jnp.sqrt(d @ d) - place["length"]


def cam(sys, q, size):
    """A joint that follows another, as no polynomial does."""
    return q[1] - size * jnp.sin(2 * q[0])


def rolls(sys, q, v):
    """A ball on the ground: its lowest point does not slip, its centre keeps its height."""
    w, u = jnp.split(rbd.frame_velocity(sys, q, v, "ball"), 2)
    return u + jnp.cross(w, jnp.array([0.0, 0.0, -0.1]))


def pendulum(seed=0):
    """A double pendulum, moving: q, v, tau."""
    sys = rbd.zoo.double_pendulum()
    rng = np.random.default_rng(seed)
    return sys, *(jnp.asarray(rng.standard_normal(n)) for n in (sys.nq, sys.nv, sys.nv))


def close(mine, ours, scale=1.0):
    np.testing.assert_allclose(mine, ours, atol=1e-10 * max(1.0, scale, np.abs(ours).max()))


def questions(sys, rows, q, v, a):
    """What users ask of constraints at a state: phi, J v, J a + J̇v, a*, J and what solvers make of it."""
    return (
        *evaluate(sys, rows, q, v, a),
        con.constraint_jacobian(sys, rows, q),
        con.delassus_matrix(sys, rows, q),
        con.kkt_factor(sys, rows, q).solve(v, jnp.ones(rows.rows))[0],
    )


def some_solvers(request):
    """One; all with --all-robots, and in the test of the cam."""
    return SOLVERS if request.config.getoption("--all-robots") else SOLVERS[:1]


def motions(sys, rows, solvers, q, v, tau):
    return [rbd.constrained_dynamics(sys, q, v, tau, rows, S()).value for S in solvers]


def test_a_distance_written_by_hand_is_ours(request):
    """phi, J, J̇v, Delassus and KKT matrices and accelerations, in a batch."""
    sys, q, v, tau = pendulum()
    mine = con.function(sys, rod, params=PLACE, baumgarte=0.1, target=[0.3])
    ours = con.distance(
        sys, "tip", anchor=PLACE["anchor"], length=PLACE["length"], baumgarte=0.1, target=[0.3]
    )
    states = [jnp.stack([x, 0.5 * x]) for x in (q, v, tau)]

    @partial(jax.jit, static_argnums=1)
    @partial(jax.vmap, in_axes=(None, None, 0, 0, 0))
    def run(rows, solvers, q, v, tau):
        return questions(sys, rows, q, v, tau), motions(sys, rows, solvers, q, v, tau)

    found, answers = run(mine, some_solvers(request), *states)
    expected, (answer,) = run(ours, SOLVERS[:1], *states)
    for x, y in zip(found, expected):
        close(x, y)
    for x in answers:
        close(x.a, answer.a)
        close(x.lam, answer.lam)


def test_a_cam_against_a_dense_solve():
    """In a batch of parameters every solver finds what NumPy finds."""
    sys, q, v, tau = pendulum(1)
    mine = con.function(sys, cam, params=0.8, joints=["shoulder", "elbow"], name="cam")
    size = jnp.array([0.8, 0.3])

    @jax.jit
    @jax.vmap
    def run(size):
        rows = mine.replace(params=(size,))
        b, M = rbd.bias_force(sys, q, v), rbd.mass_matrix(sys, q)
        J, bias = con.constraint_jacobian(sys, rows, q), con.constraint_acceleration(sys, rows, q, v)
        return M, b, J, bias, motions(sys, rows, SOLVERS, q, v, tau)

    M, b, J, bias, found = jax.tree.map(np.asarray, run(size))
    for k, s in enumerate(size):
        slope, bend = 2 * s * np.cos(2 * q[0]), -4 * s * np.sin(2 * q[0])
        close(J[k], [[-slope, 1]])
        close(bias[k], [-bend * v[0] ** 2])
        a, lam = dense(M[k], b[k], J[k], -bias[k], np.asarray(tau))
        for x in found:
            close(x.a[k], a)
            close(x.lam[k], lam, np.abs(lam).max())


def ball():
    """A ball in the air, turning: q, v, a."""
    b = rbd.Builder("ball")
    b.body("ball", 2.0, com=(0.01, 0, 0.02), shapes=[b.sphere(0.1)])
    b.joint("root", "free", None, "ball")
    sys = b.build()
    rng = np.random.default_rng(2)
    q = rbd.random_configuration(sys, jax.random.key(1))
    return sys, q, *(jnp.asarray(rng.standard_normal(6)) for _ in range(2))


def test_rolling_written_by_hand_is_ours(request):
    """psi(q, v) on a free joint, quaternion and all."""
    sys, q, v, tau = ball()
    mine, ours = con.velocity_function(sys, rolls), con.rolling(sys, "ball", radius=0.1)

    @partial(jax.jit, static_argnums=1)
    def run(rows, solvers):
        return questions(sys, rows, q, v, tau), motions(sys, rows, solvers, q, v, tau)

    found, answers = run(mine, some_solvers(request))
    expected, (answer,) = run(ours, SOLVERS[:1])
    for k in (1, 2, 4, 5, 6):  # phi and what it pulls by are not psi's
        close(found[k], expected[k])
    for x in answers:
        close(x.a, answer.a)
        close(x.lam, answer.lam)
    assert not con.constraint_error(sys, mine, q).any()


def test_rows_on_a_quaternion_are_rates_along_a_path():
    """J v is the rate of phi, J a + J̇v that of J v; psi may have a part without v."""
    sys, q, v, a = ball()
    level = lambda sys, q: rbd.frame_pose(sys, q, "ball")[0][2, :2]  # noqa: E731
    spin = lambda sys, q, v: q[2] * v[2] - 3.0 + q[0]  # noqa: E731
    rows = con.combine(con.function(sys, level), con.velocity_function(sys, spin))

    @jax.jit
    @jax.vmap
    def along(t):
        q_t, v_t = rbd.integrate(sys, q, t * v + t * t / 2 * a), v + t * a
        return con.constraint_error(sys, rows, q_t), con.constraint_velocity(sys, rows, q_t, v_t)

    h = 1e-3
    phi, u = (np.asarray(x) for x in along(h * np.array([-2.0, -1, 0, 1, 2])))
    rate = lambda y: (y[0] - 8 * y[1] + 8 * y[3] - y[4]) / (12 * h)  # noqa: E731
    np.testing.assert_allclose(u[2, :2], rate(phi)[:2], atol=1e-9)
    np.testing.assert_allclose(con.constraint_acceleration(sys, rows, q, v, a), rate(u), atol=1e-8)
    J = con.constraint_jacobian(sys, rows, q)
    close(u[2], J @ v + jnp.array([0, 0, q[0] - 3.0]))


def test_derivatives_against_differences():
    """By q, v, tau, params and masses, forward and reverse; of the solution and of its iterations."""
    sys, q, v, tau = pendulum(3)
    mine = con.function(sys, cam, params=0.8, baumgarte=0.2)
    solvers = (rbd.ConstrainedABA(), rbd.ProxLTL(mu=1e6, iterations=4, gradients="unrolled"))

    def f(x):
        rows = mine.replace(params=(x["size"],))
        found = [
            rbd.constrained_dynamics(sys.replace(mass=x["mass"]), x["q"], x["v"], x["tau"], rows, S).value
            for S in solvers
        ]
        return jnp.concatenate([jnp.concatenate([y.a, 0.1 * y.lam]) for y in found])

    x = {"q": q, "v": v, "tau": tau, "size": jnp.asarray(0.8), "mass": sys.mass}
    rng = np.random.default_rng(4)
    d = jax.tree.map(lambda y: jnp.asarray(rng.standard_normal(y.shape)), x)
    w = jnp.asarray(rng.standard_normal(6))
    move = lambda h: jax.tree.map(lambda y, e: y + h * e, x, d)  # noqa: E731
    value_and_tangent = jax.jit(lambda x: jax.jvp(f, (x,), (d,)))
    central = (value_and_tangent(move(1e-5))[0] - value_and_tangent(move(-1e-5))[0]) / 2e-5
    forward = value_and_tangent(x)[1]
    np.testing.assert_allclose(forward, central, rtol=1e-6, atol=1e-6 * np.abs(central).max())
    g = jax.jit(jax.grad(lambda x: f(x) @ w))(x)
    along = sum(jnp.vdot(y, e) for y, e in zip(jax.tree.leaves(g), jax.tree.leaves(d)))
    np.testing.assert_allclose(along, central @ w, rtol=1e-6)


@pytest.mark.all_robots
def test_derivatives_of_a_function_of_frames_are_ours():
    """Poses within the function: derivatives by the state and by every leaf of the System, in a batch."""
    sys, q, v, tau = pendulum()
    mine = con.function(sys, rod, params=PLACE, baumgarte=0.1)
    ours = con.distance(sys, "tip", anchor=PLACE["anchor"], length=PLACE["length"], baumgarte=0.1)

    @jax.jit
    def run(rows):
        pull = lambda q, sys, v: rbd.constrained_dynamics(sys, q, v, tau, rows).value.lam[0]  # noqa: E731
        return jax.vmap(jax.grad(pull, (0, 1, 2)), (0, None, None))(jnp.stack([q, -q]), sys, v)

    for x, y in zip(jax.tree.leaves(run(mine)), jax.tree.leaves(run(ours))):
        np.testing.assert_allclose(x, y, atol=1e-8 * np.abs(y).max(initial=1))


def test_projection_meets_a_function():
    sys, q, v, _ = pendulum(5)
    mine = con.function(sys, cam, params=0.8)
    found = rbd.project(sys, mine, q, v, rbd.Projection(10, rbd.ProxLTL()))
    assert found.converged
    at = found.value
    np.testing.assert_allclose(at.q[1], 0.8 * np.sin(2 * at.q[0]), atol=1e-10)
    np.testing.assert_allclose(at.v[1], 1.6 * np.cos(2 * at.q[0]) * at.v[0], atol=1e-10)


def test_functions_that_cannot_be_meant_are_refused():
    sys = rbd.zoo.double_pendulum()
    for match, bad in [
        ("called with .sys, q., which", lambda: con.function(sys, lambda q: q)),
        ("called with .sys, q, v, params.", lambda: con.velocity_function(sys, cam, params=1.0)),
        ("gives .2, 1., expected one array", lambda: con.function(sys, lambda sys, q: q[:, None])),
        ("gives tuple, expected", lambda: con.function(sys, lambda sys, q: (q, q))),
        ("depends on joint 'elbow' too", lambda: con.function(sys, cam, params=1.0, joints="shoulder")),
        ("joints names none", lambda: con.function(sys, cam, params=1.0, joints=[])),
        ("affine in v", lambda: con.velocity_function(sys, lambda sys, q, v: v @ v)),
        ("cannot be called", lambda: con.function(sys, 3)),
        (
            "Give them by params=",
            lambda: jax.grad(lambda x: con.function(sys, lambda sys, q: x * q).weight.sum())(1.0),
        ),
    ]:
        with pytest.raises(ArgumentError, match=match):
            bad()
    gear = con.function(sys, cam, params=1.0, name="gear")
    assert repr(gear) == "Constraints(1 rows: function 'gear' 1)"
    both = con.combine(gear, con.coupling(sys, "shoulder", "elbow", ratio=1.0))
    assert both.params[1] is None and both.row_index("gear") == slice(0, 1)
    assert both.astype("float32").params[0].dtype == np.float32
