"""Rows whose bodies or joints are data: pooled contacts and a budget of limits; limits inside of clusters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import contact, dual
from jaxrbd.constraints.jacobian import constraint_jacobian
from jaxrbd.contact.mechanism import turning
from jaxrbd.contact.rows import mechanism_delassus, mechanism_rows

FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
PAIRS = [(name, None) for name in FEET] + [("FL_foot", "RR_foot")]
DIMS = (3, 3, 4, 6, 3)
NONE = np.zeros(0, int)
INTEGRATOR = rbd.HardContact(
    dt=2e-3, solver=dual.NBGS(iterations=150), limits=False, dry_friction=False
)  # fmt: skip


@pytest.fixture(scope="module")
def robot():
    """A quadruped at random poses, thrown about; where its feet and a knock between two of them may be."""
    sys = rbd.zoo.quadruped(dtype="float64")
    rng = np.random.default_rng(0)
    q = jax.vmap(lambda d: rbd.integrate(sys, sys.q0, d))(0.3 * rng.normal(size=(6, sys.nv)))
    v = jnp.asarray(rng.normal(size=(6, sys.nv)))
    numbers = {
        "normal": jnp.asarray(rng.normal(size=(5, 3))),
        "friction": jnp.asarray(np.array([0.5, 0.02, 0.01]) * rng.uniform(0.5, 1.5, size=(5, 3))),
        "gap": jnp.asarray([-1e-3, 0.0, 1e-3, -1e-4, 5e-4]),
        "shift": jnp.asarray(0.01 * rng.normal(size=(5, 3))),
        "e": jnp.asarray([0.5, 0.0, 0.2, 0.0, 0.0]),
    }
    return sys, q, v, numbers


def slots(sys, q, x):
    places = jnp.stack([rbd.frame_pose(sys, q, a)[1] for a, _ in PAIRS]) + x["shift"]
    return contact.contacts(sys, PAIRS, places, x["normal"], x["gap"], x["friction"], x["e"], DIMS)


def test_a_pool_is_what_static_slots_are(robot):
    """J, D, J̇v, v⁺ and λ of both forms; an empty slot changes nothing."""
    sys, q, v, x = robot

    def rows(q, v, found):
        made = mechanism_rows(sys, q, None, found, NONE, NONE)
        J = made.J if made.rows is None else constraint_jacobian(sys, made.rows, q)
        end = rbd.step(sys, rbd.State(q, v), integrator=INTEGRATOR, contacts=found)
        D, bias = mechanism_delassus(sys, made, q), turning(sys, made, q, v, True)
        return {
            "J": J,
            "D": D,
            "bias": bias,
            "v": end.value.v,
            "lam": end.stats.lam,
            "ok": end.stats.residual,
        }

    def all_of_them(q, v):
        found = slots(sys, q, x)
        pool = contact.as_pooled(sys, found)
        names = ("position", "axes", "gap", "friction", "restitution", "bodies")
        *wide, bodies = (jnp.concatenate([y, y[:1]]) for y in (getattr(pool, name) for name in names))
        more = contact.Pooled(*wide, bodies.at[-1].set(-1), (*DIMS, 3))  # its last slot is empty
        return rows(q, v, found), rows(q, v, pool), rows(q, v, more)

    static, pool, more = jax.jit(jax.vmap(all_of_them))(q, v)
    assert static["ok"].max() < 1e-12 and np.abs(static["lam"]).max() > 0.1
    for name, value in static.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(pool[name], value, atol=1e-12 * max(scale, 1), err_msg=name)
    m = static["lam"].shape[1]
    np.testing.assert_allclose(more["v"], static["v"], atol=1e-12 * np.abs(static["v"]).max())
    np.testing.assert_array_equal(more["lam"][:, m:], 0)
    np.testing.assert_array_equal(more["J"][:, m:], 0)


def test_gradients_of_a_pool_are_those_of_static_slots():
    """Forward and reverse, by state and all numbers of contacts: a ball on the ground, another on top."""
    b = rbd.Builder("balls")
    for k, name in enumerate(("low", "high")):
        b.body(name, 1.0 + k, shapes=[b.sphere(0.1)])
        b.joint(f"{name} root", "free", None, name)
    sys = b.build(dtype="float64")
    integrator = rbd.HardContact(dt=2e-3, solver=dual.NBGS(iterations=60))
    x = {
        "position": jnp.array([[0, 0, 0], [0, 0, 0.2]]),
        "normal": jnp.array([[0, 0, 1.0], [0.1, 0, 1.0]]),
        "gap": jnp.array([-1e-4, 1e-4]),
        "friction": jnp.array([0.05, 0.03]),
        "restitution": jnp.array([0.0, 0.4]),
        "dq": jnp.zeros(12),
        "v": jnp.array([0, 1, 0, 3.0, 0, -0.5, 2, 0, 0, 0.5, 0.2, -2.0]),
    }
    pairs = [("low", None), ("high", "low")]
    q = jnp.array([0, 0, 0.1, 1, 0, 0, 0, 0, 0, 0.3, 1, 0, 0, 0])

    def after(x, bodies):
        place, normal, gap, friction, e = (
            x[k] for k in ("position", "normal", "gap", "friction", "restitution")
        )
        found = contact.contacts(sys, pairs, place, normal, gap, friction, e)
        if bodies is not None:
            found = contact.pooled(sys, bodies, place, normal, gap, friction, e)
        state = rbd.State(rbd.integrate(sys, q, x["dq"]), x["v"])
        return rbd.step(sys, state, integrator=integrator, contacts=found).value.v

    @jax.jit
    def derivatives(x, bodies):
        return [(jax.jacfwd(after)(x, b), jax.jacrev(after)(x, b)) for b in (None, bodies)]

    (forward, reverse), pool = derivatives(x, jnp.array([[0, -1], [1, 0]]))
    for name, wanted in forward.items():
        for found in (reverse, *pool):
            np.testing.assert_allclose(
                found[name], wanted, atol=1e-10 * max(1, np.abs(wanted).max()), err_msg=name
            )
        assert np.abs(wanted).max() > 1e-3


def test_any_two_bodies_may_meet(robot):
    """Which body a slot belongs to is data: in one batch each state has another foot down."""
    sys, q, v, _ = robot
    feet = np.array([sys.topology.frame_bodies[sys.frame_names.index(n)] for n in FEET], np.int32)

    @jax.jit
    @jax.vmap
    def go(q, v, body):
        _, p = rbd.forward_kinematics(sys, q)
        found = contact.pooled(sys, jnp.array([[0, -1]]).at[0, 0].set(body), p[body][None], (0, 0, 1), 0.0)
        end = rbd.step(sys, rbd.State(q, v.at[2].set(0.0)), integrator=INTEGRATOR, contacts=found)
        return end.stats.rate, end.stats.lam

    rate, lam = go(jnp.tile(q[0], (4, 1)), jnp.tile(v[0].at[5].set(-2.0), (4, 1)), feet)
    assert (lam[:, 2] > 0).all() and np.abs(rate[:, 2]).max() < 1e-9
    assert len({round(float(y), 6) for y in lam[:, 2]}) == 4


# --- limits ---------------------------------------------------------------------------------------------


def test_a_budget_of_limits():
    """Rows for the nearest alone give the same step while the rest is far; who is left out is counted."""
    sys = rbd.zoo.arm7(dtype="float64")
    sys = sys.replace(lower=jnp.full(7, -1.0), upper=jnp.full(7, 1.0))
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.uniform(-0.5, 0.5, size=(3, 7)))
    q = q.at[0, 2].set(1.001).at[0, 5].set(-1.001).at[1, 3].set(-1.0005).at[2, jnp.arange(4)].set(1.01)
    v = jnp.asarray(rng.normal(size=(3, 7))).at[0, 2].set(0.5).at[0, 5].set(-0.5)
    solver = dual.NBGS(iterations=100)

    @jax.jit
    @jax.vmap
    def both(q, v):
        ends = [
            rbd.step(sys, rbd.State(q, v), integrator=rbd.HardContact(2e-3, limits=k, solver=solver))
            for k in (True, 2)
        ]
        return [(end.value.v, end.stats.lam, end.stats.unserved) for end in ends]

    (v_all, lam_all, none), (v_few, lam, left) = both(q, v)
    assert lam_all.shape[1] - lam.shape[1] == 5
    np.testing.assert_allclose(v_few[:2], v_all[:2], atol=1e-12)
    np.testing.assert_array_equal(none, 0)
    np.testing.assert_array_equal(left, [0, 0, 2])
    assert np.abs(v_few[2] - v_all[2]).max() > 1e-3 and (lam_all[0, :7] > 0).sum() == 2


def four_bar():
    """A four-bar whose joints all have dry friction and limits: its crank meets one at one end of its way,
    a follower one at the other.
    """
    tree = rbd.zoo.four_bar(dtype="float64")
    sys = rbd.cluster(tree)
    q = np.asarray(rbd.to_tree(sys, sys.q0))
    G = np.asarray(rbd.loop_jacobian(sys, sys.q0))[:, 0]
    crank = sys.topology.independent[0]
    near = np.where(np.arange(len(q)) == crank, 0.19, 0.2 + 0.02 * np.arange(len(q)))
    up = (G < 0) | (np.arange(len(q)) == crank)
    bounds = {
        "lower": jnp.asarray(q - np.where(up, 0.5, near)),
        "upper": jnp.asarray(q + np.where(up, near, 0.5)),
    }
    tree = tree.replace(**bounds, friction=jnp.full(tree.nv, 0.02), damping=0 * tree.damping)
    return tree, con.of_model(tree)


@pytest.mark.parametrize("limits", [True, pytest.param(2, marks=pytest.mark.all_robots)])
def test_limits_and_friction_inside_of_a_cluster(limits):
    """One step of the cluster is that of the open tree with its loops as rows: both sides of every limit."""
    tree, loops = four_bar()
    sys = rbd.cluster(tree)
    sys = sys.replace(lower=tree.lower, upper=tree.upper, friction=tree.friction, damping=tree.damping)
    rule = contact.Stabilisation(joints=0.0, acceleration=True)
    solver = dual.ADMM(iterations=3000, tolerance=1e-11)
    integrator = rbd.HardContact(dt=1e-2, stabilisation=rule, solver=solver, limits=limits)
    speeds = jnp.array([[-60.0], [-1.0], [0.001], [1.0], [60.0]])

    @jax.jit
    @jax.vmap
    def both(v):
        q_t, v_t = rbd.to_tree(sys, sys.q0, v)
        a = rbd.step(sys, rbd.State(sys.q0, v), integrator=integrator)
        b = rbd.step(tree, rbd.State(q_t, v_t), integrator=integrator, constraints=loops)
        other = rbd.from_tree(sys, b.value.q, b.value.v)[1]
        return a.value.v, other, a.stats.lam, jnp.maximum(a.stats.residual, b.stats.residual)

    mine, other, lam, residual = both(speeds)
    assert residual.max() < 1e-10 * 60  # rad/s
    np.testing.assert_allclose(mine, other, atol=1e-7)
    pushed, dry = np.split(np.asarray(lam), [lam.shape[1] - tree.nv], 1)
    assert (pushed[[0, -1]] > 1e-6).any(1).all() and (pushed[2] == 0).all()
    assert np.abs(dry).max() <= 0.02 * 1e-2 + 1e-12 and np.abs(dry).max() > 1e-4


@pytest.mark.all_robots
def test_a_cluster_stays_within_its_limits():
    """A crank that is thrown at them and left to itself; the loop never opens."""
    tree, _ = four_bar()
    sys = rbd.cluster(tree)
    go = jax.jit(lambda s: rbd.rollout(sys, s, steps=300, integrator=rbd.HardContact(5e-3), keep="last"))
    end = go(rbd.State(sys.q0, jnp.array([-20.0])))
    x = rbd.to_tree(sys, end.value.q[-1])
    assert end.converged.all() and ((x > tree.lower - 1e-3) & (x < tree.upper + 1e-3)).all()


def test_bad_pools_are_refused(robot):
    sys = robot[0]
    one = {"position": (0, 0, 0), "normal": (0, 0, 1), "gap": 0.0}
    wrong = [
        (lambda: contact.pooled(sys, [(0.5, -1)], **one), "integers"),
        (lambda: contact.pooled(sys, [0, -1], **one), "integers"),
        (lambda: contact.pooled(sys, [(99, -1)], **one), "99"),
        (lambda: contact.pooled(sys, [(0, -1)], **one, dims=2), "dims"),
        (lambda: contact.pooled(sys, [(0, -1)], **one, friction=-1.0), "pooled: friction"),
        (lambda: contact.pooled(sys, [(0, -1)], **one, dims=4), "pooled: dimensions"),
    ]
    for call, words in wrong:
        with pytest.raises(rbd.ArgumentError, match=words):
            call()
