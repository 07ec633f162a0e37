"""Derivatives of accelerations and multipliers: implicit and unrolled, forward and reverse."""

from __future__ import annotations

import constrained_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
import robots
from test_constrained_dynamics import PinocchioContacts

import jaxrbd as rbd
from jaxrbd import constraints as con

SOLVERS = ("ConstrainedABA", "ProxPV", "ProxLTL", "ProxLTLs")
WAYS = [
    pytest.param(solver, way, marks=() if (solver, way) == QUICK else pytest.mark.all_robots)
    for QUICK in [("ConstrainedABA", "implicit")]
    for solver in SOLVERS
    for way in ("implicit", "unrolled")
]
EVERY = [(s, w) for s in (*SOLVERS, "Dense", "Classic") for w in ("implicit", "unrolled")]
EVERY = [x for x in EVERY if x[0] in SOLVERS or x[1] == "implicit"]
EVERY.remove(("ConstrainedABA", "implicit"))  # further below, by every leaf
EVERY.append(pytest.param("Soft", "unrolled", marks=pytest.mark.all_robots))


def held_dog(redundant=False):
    """A quadruped with two feet on the ground, the others tied, two joints coupled; Baumgarte everywhere."""
    sys = rbd.zoo.quadruped()
    q, v, tau = (x[0] for x in cases.states(sys, 1))
    feet = [con.connect(sys, f"{leg}_foot", q=q, baumgarte=0.1) for leg in ("FL", "FR")]
    tie = con.distance(sys, "RL_foot", "RR_foot", length=0.3, baumgarte=0.1)
    gear = con.coupling(sys, "FL_calf", "FR_calf", ratio=0.5)
    parts = [*feet, tie, gear, *([con.connect(sys, "FL_foot", q=q, baumgarte=0.1)] if redundant else [])]
    return sys, con.combine(*parts), q, v, tau


def weigh(rng, sys, rows):
    return rng.standard_normal(sys.nv), 0.1 * rng.standard_normal(rows)


def directional(f, args, rng, step=1e-5):
    """Derivatives of the numbers f(*args) along a random direction: reverse, by differences, and forward.

    Forward comes as a function, since compiling it takes long.
    """

    def direction(x):
        d = (0.1 * np.abs(x) + 0.01) * rng.standard_normal(x.shape)
        return jnp.asarray(np.where(np.isfinite(x), d, 0))

    d = jax.tree.map(direction, args)

    @jax.jit
    def value_and_reverse(args, d):
        out, pull = jax.vjp(f, *args)

        def along(e):
            return sum(jnp.vdot(g, x) for g, x in zip(jax.tree.leaves(pull(e)), jax.tree.leaves(d)))

        return out, jax.vmap(along)(jnp.eye(len(out), dtype=out.dtype))

    forward = jax.jit(lambda args, d: jax.jvp(f, args, d)[1])
    return value_and_reverse(args, d)[1], central(value_and_reverse, args, d, step), lambda: forward(args, d)


def central(value_and_more, args, d, step=1e-5):
    """The derivative of the value along d by differences; value_and_more(args, d) is compiled already."""
    moved = lambda e: value_and_more(jax.tree.map(lambda x, y: x + e * y, args, d), d)[0]  # noqa: E731
    return (moved(step) - moved(-step)) / (2 * step)


@pytest.mark.parametrize(("solver", "way"), EVERY)
def test_every_solver_has_the_derivatives_of_its_answer(solver, way, request):
    """A held tool, by state, torques, masses and anchor: forward mode against differences.

    `make test` takes reverse mode of unrolled ConstrainedABA alone: a VJP compiles twice as long.
    """
    sys = rbd.zoo.arm7()
    q, v, tau = (jnp.asarray(x[0]) for x in cases.states(sys, 1))
    held = con.connect(sys, "tool", q=q, baumgarte=0.1)
    rng = np.random.default_rng(3)
    w_a, w_lam = weigh(rng, sys, held.rows)
    made = rbd.Soft(mu=200.0) if solver == "Soft" else getattr(rbd, solver)(gradients=way)

    def f(q, v, tau, mass, anchor):
        rows = held.replace(position_b=anchor)
        found = rbd.constrained_dynamics(sys.replace(mass=mass), q, v, tau, rows, made).value
        return (w_a @ found.a + w_lam @ found.lam)[None]

    args = (q, v, tau, sys.mass, held.position_b)
    if request.config.getoption("--all-robots") or (solver, way) == ("ConstrainedABA", "unrolled"):
        reverse, difference, _ = directional(f, args, rng)
        np.testing.assert_allclose(reverse, difference, rtol=1e-6)
        if solver == "ConstrainedABA":
            return
    d = jax.tree.map(lambda x: jnp.asarray(0.1 * rng.standard_normal(x.shape)), args)
    value_and_forward = jax.jit(lambda args, d: jax.jvp(f, args, d))
    forward = value_and_forward(args, d)[1]
    np.testing.assert_allclose(forward, central(value_and_forward, args, d), rtol=1e-6)


@pytest.mark.parametrize(("solver", "way"), WAYS)
def test_derivatives_by_state_model_and_constraints(solver, way, request):
    """Of a weighted acceleration and a weighted multiplier, along directions that move every leaf at once.

    `make test` is content with reverse mode here.
    """
    sys, constraints, q, v, tau = held_dog()
    rng = np.random.default_rng(0)
    w_a, w_lam = weigh(rng, sys, constraints.rows)
    made = getattr(rbd, solver)(gradients=way)

    def f(sys, constraints, dq, v, tau):
        found = rbd.constrained_dynamics(sys, rbd.integrate(sys, q, dq), v, tau, constraints, made).value
        return jnp.stack([w_a @ found.a, w_lam @ found.lam])

    reverse, difference, forward = directional(f, (sys, constraints, jnp.zeros(sys.nv), v, tau), rng)
    np.testing.assert_allclose(reverse, difference, rtol=1e-6)
    if request.config.getoption("--all-robots"):
        np.testing.assert_allclose(forward(), reverse, rtol=1e-8)


@pytest.mark.all_robots
@pytest.mark.parametrize("solver", ["ConstrainedABA", "ProxLTL"])
def test_accelerations_have_derivatives_at_redundant_rows(solver):
    sys, constraints, q, v, tau = held_dog(redundant=True)
    rng = np.random.default_rng(1)
    w_a, _ = weigh(rng, sys, constraints.rows)
    made = getattr(rbd, solver)()

    def f(dq, v, tau):
        found = rbd.constrained_dynamics(sys, rbd.integrate(sys, q, dq), v, tau, constraints, made)
        return (w_a @ found.value.a)[None]

    reverse, difference, forward = directional(f, (jnp.zeros(sys.nv), jnp.asarray(v), jnp.asarray(tau)), rng)
    np.testing.assert_allclose(reverse, difference, rtol=1e-6)
    np.testing.assert_allclose(forward(), reverse, rtol=1e-8)


@pytest.mark.all_robots
def test_derivatives_through_a_loop():
    """The four-bar by its state and by the place of its hinge; the rows are redundant in the plane."""
    sys, constraints, q = cases.case("four-bar")
    rng = np.random.default_rng(2)
    w_a = rng.standard_normal(sys.nv)
    v, tau = rng.standard_normal((2, sys.nv))

    def f(constraints, q, v, tau):
        found = rbd.constrained_dynamics(sys, q, v, tau, constraints, rbd.ProxPV())
        return (w_a @ found.value.a)[None]

    in_plane = jnp.array([1.0, 1.0, 0.0])  # moved in its plane, the redundant rows stay in agreement

    def moved(place, *state):
        return f(constraints.replace(position_a=constraints.position_a + in_plane * place), *state)

    args = (jnp.zeros(3), jnp.asarray(q), jnp.asarray(v), jnp.asarray(tau))
    reverse, difference, forward = directional(moved, args, rng)
    np.testing.assert_allclose(reverse, difference, rtol=1e-6)
    np.testing.assert_allclose(forward(), reverse, rtol=1e-8)


@pytest.mark.all_robots
def test_jacobians_agree_with_pinocchio():
    """At rest, by q and tau, forces turned into the axes of the feet, as Pinocchio has them."""
    feet = [(3, f"{leg}_FOOT") for leg in ("FL", "FR", "HL")]
    peer = PinocchioContacts(robots.SOLO12, feet)
    sys, model = peer.twin.sys, peer.twin.model
    q, _, tau = (x[0] for x in cases.states(sys, 1))
    v = np.zeros(sys.nv)  # so that conventions of J̇v do not matter
    constraints = con.combine(*(con.connect(sys, f) for _, f in feet))

    def at(dq, v, tau):
        x = rbd.integrate(sys, q, dq)
        found = rbd.constrained_dynamics(sys, x, v, tau, constraints).value
        R = jnp.stack([rbd.frame_pose(sys, x, f)[0] for _, f in feet])
        return jnp.concatenate([found.a, jnp.einsum("kji,kj->ki", R, found.lam.reshape(-1, 3)).ravel()])

    ours = jax.jit(jax.jacrev(at, (0, 2)))(jnp.zeros(sys.nv), jnp.asarray(v), jnp.asarray(tau))

    T = peer.twin.transform(q, v)[0]
    data = model.createData()
    datas = pin.StdVec_RigidConstraintData()
    for constraint in peer.models:
        datas.append(constraint.createData())
    pin.initConstraintDynamics(model, data, peer.models, datas)
    settings = pin.ProximalSettings(1e-14, 1e-12, 50)
    pin.constraintDynamics(model, data, peer.twin.q(q), T @ v, T @ tau, peer.models, datas, settings)
    pin.computeConstraintDynamicsDerivatives(model, data, peer.models, datas, settings)
    theirs = {"q": (data.ddq_dq, data.dlambda_dq), "tau": (data.ddq_dtau, data.dlambda_dtau)}
    for (name, (a, lam)), mine in zip(theirs.items(), ours):
        for what, x, expected in (("a", mine[: sys.nv], T.T @ a @ T), ("lam", mine[sys.nv :], lam @ T)):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(x, expected, atol=1e-7 * scale, err_msg=f"d {what} / d {name}")


@pytest.mark.all_robots
def test_memory_of_implicit_gradients_does_not_grow_with_iterations():
    sys, constraints, _ = cases.case("arm7 H6")
    sizes = []
    for iterations in (3, 30):
        solver = rbd.ProxPV(iterations=iterations)

        def loss(q, v, tau, solver=solver):
            return jnp.sum(rbd.constrained_dynamics(sys, q, v, tau, constraints, solver).value.a)

        state = [jax.ShapeDtypeStruct((64, 7), jnp.float64)] * 3
        compiled = jax.jit(jax.vmap(jax.grad(loss, (0, 1, 2)))).lower(*state).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert sizes[1] < 1.1 * sizes[0]
