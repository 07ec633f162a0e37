"""A joint type of one's own, outside of the package: a cam, whose column depends on q.

The child turns about an axis by q while it slides along another direction by h(q) = pitch (1 - cos q), so
that S(q) = (axis; h'(q) Rᵀ d) and the bias S'(q) q̇² does not vanish.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd


def lift(q, joint: rbd.joints.Geometry):
    """The pose behind the cam."""
    return rbd.joints.turn(joint.axis, q), joint.axis2 * joint.pitch * (1 - jnp.cos(q))


CAM = rbd.joints.register(
    rbd.joints.JointType("cam", (rbd.joints.Column(turns=1, path=lift),), axis2="apart", limited=False)
)

TYPES = ("cam", "revolute", "spherical", "cam", "prismatic", "cam")  # a chain; the last one branches off


def mechanism(types=TYPES) -> rbd.System:
    rng = np.random.default_rng(0)
    b = rbd.Builder("cams")
    for i, kind in enumerate(types):
        spread = rng.uniform(0.05, 0.2, (3, 3))
        inertia = np.trace(spread @ spread.T) * np.eye(3) - spread @ spread.T + 0.02 * np.eye(3)
        b.body(f"body{i}", mass=rng.uniform(0.5, 2), com=rng.uniform(-0.2, 0.2, 3), inertia=inertia)
        parent = None if i == 0 else f"body{i - 1 if i < len(types) - 1 else 1}"
        own = {"axis2": rng.normal(size=3), "pitch": rng.uniform(0.2, 0.6)} if kind == "cam" else {}
        place = {"xyz": rng.uniform(-0.4, 0.4, 3), "rpy": rng.uniform(-2, 2, 3), "axis": rng.normal(size=3)}
        b.joint(f"joint{i}", kind, parent, f"body{i}", armature=0.02, **place, **own)
    return b.build()


@pytest.fixture(scope="module")
def sys() -> rbd.System:
    """The same chain on a floating body."""
    hull = rbd.Builder("hull")
    hull.body("hull", mass=3.0, inertia=0.3)
    hull.joint("hull", "free", None, "hull")
    return rbd.attach(hull.build(), mechanism(), "hull")


def states(sys, count=4):
    q = jax.vmap(lambda key: rbd.random_configuration(sys, key))(jax.random.split(jax.random.key(0), count))
    rng = np.random.default_rng(1)
    return q, *(jnp.asarray(rng.normal(size=(count, sys.nv))) for _ in range(3))


def test_sizes_and_host_pose(sys):
    """The type is kept, has one coordinate, and the pose is the path's."""
    assert sys.joint_types.count("cam") == 3
    assert (CAM.nq, CAM.nv, CAM.on_manifold, CAM.curved) == (1, 1, False, True)
    g = rbd.joints.Geometry(np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0]), 0.5)
    R, p, S = CAM.motion(np.array([0.7]), g)
    np.testing.assert_allclose(R @ [1, 0, 0], [np.cos(0.7), np.sin(0.7), 0], atol=1e-15)
    np.testing.assert_allclose(p, [0.5 * (1 - np.cos(0.7)), 0, 0], atol=1e-15)
    # about the fixed origin: the axis through p, and the slide
    np.testing.assert_allclose(S[:, 0], [0, 0, 1, 0.5 * np.sin(0.7), -p[0], 0], atol=1e-14)


def test_dynamics_agree_with_a_lagrangian(sys, request):
    """ABA∘RNEA = id, M = ∂tau/∂a, C v + g = b, Ṁ - 2C skew, power = dE/dt.

    With --all-robots also M and gravity against energies by autodiff.
    """
    every = request.config.getoption("--all-robots")

    def theorems(q, v, a, tau):
        moved = lambda dq: rbd.integrate(sys, q, dq)  # noqa: E731
        ID = rbd.inverse_dynamics(sys, q, v, a)
        M = rbd.mass_matrix(sys, q)
        C = rbd.coriolis_matrix(sys, q, v)
        Mdot = jax.jvp(lambda t: rbd.mass_matrix(sys, moved(t * v)), (0.0,), (1.0,))[1]
        skew = Mdot - 2 * C
        # the energy's rate is the power, whatever the motion
        energy = lambda t: rbd.energy(sys, moved(t * v), v + t * a)  # noqa: E731
        rate = jax.jvp(energy, (0.0,), (1.0,))[1]
        return {
            "ABA of RNEA": rbd.forward_dynamics(sys, q, v, ID) - a,
            "M": jax.jacfwd(lambda a: rbd.inverse_dynamics(sys, q, v, a))(a) - M,
            "M solve": M @ rbd.mass_matrix_solve(sys, q, tau) - tau,
            "bias": C @ v + rbd.gravity_force(sys, q) - rbd.bias_force(sys, q, v),
            "skew": skew + skew.T,
            "power": rate - ID @ v,
        } | (by_energies(q, v, tau, M) if every else {})

    def by_energies(q, v, tau, M):
        T = lambda v: rbd.kinetic_energy(sys, q, v)  # noqa: E731
        U = lambda dq: rbd.potential_energy(sys, rbd.integrate(sys, q, dq))  # noqa: E731
        return {
            "T": jax.hessian(T)(v) - M,
            "gravity": jax.grad(U)(jnp.zeros_like(v)) - rbd.gravity_force(sys, q),
            "RNEA of ABA": rbd.inverse_dynamics(sys, q, v, rbd.forward_dynamics(sys, q, v, tau)) - tau,
        }

    for name, error in jax.jit(jax.vmap(theorems))(*states(sys)).items():
        assert float(jnp.max(jnp.abs(error))) < 1e-9, name


def test_euler_lagrange_of_scalar_joints():
    """M a + b = d/dt ∂T/∂v - ∂T/∂q + ∂U/∂q, entry by entry, where all coordinates are scalars."""
    sys = mechanism(("cam", "revolute", "cam", "prismatic", "cam"))

    def error(q, v, a):
        L = lambda q, v: rbd.kinetic_energy(sys, q, v) - rbd.potential_energy(sys, q)  # noqa: E731
        momentum = jax.grad(L, 1)
        rate = jax.jvp(momentum, (q, v), (v, a))[1]
        return rate - jax.grad(L)(q, v) - rbd.inverse_dynamics(sys, q, v, a)

    assert float(jnp.max(jnp.abs(jax.jit(jax.vmap(error))(*states(sys)[:3])))) < 1e-10


def test_kinematics(sys):
    """J v is the velocity of a frame, J̇v its derivative; both against the pose along a motion."""
    name = sys.body_names[-2]

    def error(q, v, a):
        def velocity(t):
            place = lambda t: rbd.frame_pose(sys, rbd.integrate(sys, q, t * v), name)[1]  # noqa: E731
            return jax.jvp(place, (t,), (1.0,))[1]

        J = rbd.frame_jacobian(sys, q, name)
        acceleration = rbd.frame_acceleration(sys, q, v, a, name)[3:]
        moved = lambda t: rbd.frame_velocity(sys, rbd.integrate(sys, q, t * v), v + t * a, name)  # noqa: E731
        return {
            "velocity": (J @ v)[3:] - velocity(0.0),
            "frame_velocity": J @ v - rbd.frame_velocity(sys, q, v, name),
            "acceleration": jax.jvp(moved, (0.0,), (1.0,))[1][3:] - acceleration,
        }

    for key, found in jax.jit(jax.vmap(error))(*states(sys)[:3]).items():
        assert float(jnp.max(jnp.abs(found))) < 1e-10, key


def test_one_state_and_a_batch_agree(sys):
    q, v, a, _ = states(sys)
    f = lambda *x: rbd.forward_dynamics(sys, *x)  # noqa: E731
    alone = jnp.stack([f(*x) for x in zip(q, v, a)])
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(q, v, a), alone, rtol=1e-10, atol=1e-10)


def test_gradients_are_those_of_differences(sys):
    """JVP and VJP of forward and inverse dynamics in q, v, tau and in the pitch of the cams."""
    q, v, _, tau = (x[0] for x in states(sys))
    rng = np.random.default_rng(2)
    dq, dv, dtau, w = (jnp.asarray(rng.normal(size=sys.nv)) for _ in range(4))
    dpitch = jnp.asarray(rng.normal(size=sys.pitch.shape)) * (sys.pitch != 0)

    def both(t):
        s = sys.replace(pitch=sys.pitch + t * dpitch)
        x = rbd.integrate(sys, q, t * dq), v + t * dv, tau + t * dtau
        return jnp.stack([rbd.forward_dynamics(s, *x), rbd.inverse_dynamics(s, *x)])

    h = 1e-4
    value_and_tangent = jax.jit(jax.vmap(lambda t: jax.jvp(both, (t,), (1.0,))))
    y, forward = value_and_tangent(jnp.asarray([2 * h, h, -h, -2 * h, 0.0]))
    slope, forward = (-y[0] + 8 * y[1] - 8 * y[2] + y[3]) / (12 * h), forward[-1]
    scale = float(jnp.max(jnp.abs(slope)))
    np.testing.assert_allclose(forward, slope, atol=1e-8 * scale)

    def weighted(q, v, tau, pitch):
        s = sys.replace(pitch=pitch)
        return w @ rbd.forward_dynamics(s, q, v, tau) + jnp.cos(w) @ rbd.inverse_dynamics(s, q, v, tau)

    gq, gv, gt, gp = jax.jit(jax.grad(weighted, (0, 1, 2, 3)))(q, v, tau, sys.pitch)
    backward = rbd.tangent_gradient(sys, q, gq) @ dq + gv @ dv + gt @ dtau + gp @ dpitch
    np.testing.assert_allclose(backward, w @ slope[0] + jnp.cos(w) @ slope[1], atol=1e-7 * scale)


@pytest.mark.parametrize("kind", ["forward", pytest.param("inverse", marks=pytest.mark.all_robots)])
def test_analytic_jacobians(sys, kind):
    """Jacobians that have formulas elsewhere are right here too; those of ID are a part of those of FD."""
    q, v, _, tau = (x[0] for x in states(sys))
    f, derivatives = (getattr(rbd, f"{kind}_dynamics{end}") for end in ("", "_derivatives"))
    moved = lambda dq, v, tau: f(sys, rbd.integrate(sys, q, dq), v, tau)  # noqa: E731
    found = jax.jit(lambda *x: derivatives(sys, *x))(q, v, tau)
    expected = jax.jit(jax.jacfwd(moved, (0, 1, 2)))(jnp.zeros_like(v), v, tau)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-9 * float(jnp.max(jnp.abs(y))))


def test_the_manifold(sys):
    q, v, *_ = states(sys)
    end = jax.vmap(lambda q, v: rbd.integrate(sys, q, 0.3 * v))(q, v)
    np.testing.assert_allclose(
        jax.vmap(lambda a, b: rbd.difference(sys, a, b))(q, end), 0.3 * v, rtol=1e-10, atol=1e-12
    )
    at = sys.q_index("joint0")
    assert float(rbd.neutral(sys)[at][0]) == 0.0
    np.testing.assert_allclose(end[:, at] - q[:, at], 0.3 * v[:, sys.v_index("joint0")], atol=1e-12)
    rbd.check(sys, q[0], v[0])


def test_constraints_and_steps():
    """Constrained dynamics meets its rows, and a rollout keeps the energy to the method's order."""
    sys = mechanism()
    q, v, _, tau = (x[0] for x in states(sys))
    hold = rbd.constraints.connect(sys, "body4", "body5", q=q)
    sol = jax.jit(lambda q, v, tau: rbd.constrained_dynamics(sys, q, v, tau, hold))(q, v, tau)
    J = rbd.constraints.constraint_jacobian(sys, hold, q)
    row = rbd.constraints.constraint_acceleration(sys, hold, q, v, sol.value.a)
    target = rbd.constraints.constraint_target(sys, hold, q, v)
    np.testing.assert_allclose(row, target, atol=1e-7)
    left = rbd.inverse_dynamics(sys, q, v, sol.value.a) - tau
    np.testing.assert_allclose(left, J.T @ sol.value.lam, atol=1e-7 * float(jnp.max(jnp.abs(left))))

    sys = sys.replace(damping=0.0 * sys.damping)

    @jax.jit
    def lost(steps):
        """Energy after 0.1 s in so many steps, less that of the start."""
        step = lambda _, s: rbd.step(sys, s, integrator=rbd.RK4(0.1 / steps)).value  # noqa: E731
        end = jax.lax.fori_loop(0, steps, step, rbd.State(q, v))
        return rbd.energy(sys, end.q, end.v) - rbd.energy(sys, q, v)

    errors = [abs(float(lost(steps))) for steps in (50, 100)]
    assert errors[1] < errors[0] / 10  # of order 4
    assert errors[1] < 1e-6


def test_editing_saving_writing(tmp_path, sys):
    """A System with the type goes to a file and back; locking it fixes the pose; URDF has no such joint."""
    path = tmp_path / "cams.rbd"
    rbd.save(sys, path)
    assert rbd.load_system(path).topology == sys.topology
    q, v, a, _ = (x[0] for x in states(sys))
    locked = rbd.lock_joints(sys, ["joint0"], q)
    keep = np.delete(np.arange(sys.nq), sys.q_index("joint0").start)
    for name in ("body0", "body4"):
        poses = rbd.frame_pose(locked, q[keep], name), rbd.frame_pose(sys, q, name)
        chex.assert_trees_all_close(*poses, rtol=1e-7, atol=1e-12)
    again = rbd.build(rbd.describe(sys))
    np.testing.assert_allclose(
        rbd.inverse_dynamics(again, q, v, a), rbd.inverse_dynamics(sys, q, v, a), rtol=1e-9, atol=1e-9
    )
    with pytest.raises(rbd.ModelError, match="URDF has no cam joint"):
        rbd.to_urdf(mechanism(("revolute", "cam", "cam")))


def test_a_name_is_given_once():
    assert rbd.joints.register(CAM) is CAM  # the same again is no harm
    with pytest.raises(rbd.ArgumentError, match="there is a joint type 'revolute' already"):
        rbd.joints.register(rbd.joints.JointType("revolute", (rbd.joints.Column(slides=1),)))
    with pytest.raises(rbd.ArgumentError, match="not a JointType"):
        rbd.joints.register("cam")
    with pytest.raises(rbd.ArgumentError, match="no columns"):
        rbd.joints.register(rbd.joints.JointType("rigid", ()))
    with pytest.raises(rbd.ModelError, match="unknown joint type 'camm'"):
        rbd.Builder().body("a", mass=1.0).joint("j", "camm", None, "a")
