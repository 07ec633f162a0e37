"""Laws that tie the tree algorithms to each other, on random trees of 1 to 200 links with mixed joints.

Everything that one tree needs is one jitted function that returns residuals by name.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robots

import jaxrbd as rbd

MIXED = (
    "revolute",
    "continuous",
    "prismatic",
    "screw",
    "cylindrical",
    "universal",
    "planar",
    "spherical",
    "free",
)
EPS = np.finfo(np.float64).eps
SIZES = [40, *(pytest.param(n, marks=pytest.mark.all_robots) for n in (1, 2, 3, 8, 100, 200))]


def tree(links):
    """A random tree with mixed joints; joint inertia (armature) on every second freedom."""
    sys = rbd.zoo.random_tree(links, seed=links, joint_types=MIXED)
    return sys.replace(armature=0.01 * (jnp.arange(sys.nv) % 2))


def floating_tree(links):
    """A random tree on a free base."""
    rng = np.random.default_rng(links)
    builder = rbd.Builder("floating")
    for i in range(links):
        spread = rng.uniform(0.05, 0.2, (3, 3))
        inertia = np.trace(spread @ spread.T) * np.eye(3) - spread @ spread.T + 0.02 * np.eye(3)
        builder.body(f"link{i}", mass=rng.uniform(0.5, 2), com=rng.uniform(-0.2, 0.2, 3), inertia=inertia)
        if i:
            kind = rng.choice(["revolute", "prismatic", "universal", "spherical", "screw", "planar"])
            place = {"xyz": rng.uniform(-0.4, 0.4, 3), "rpy": rng.uniform(-3, 3, 3)}
            builder.joint(f"joint{i}", str(kind), f"link{rng.integers(i)}", f"link{i}", pitch=0.1, **place)
    return builder.build(base="free")


def states(sys, count, seed=0):
    return [jnp.asarray(x) for x in robots.random_states(sys, count, seed)]


def along(sys, function, q, v):
    """(f(q), df/dt) with q moving at velocity v: the derivative of f(integrate(q, t v)) at t = 0."""
    path = lambda t: function(rbd.integrate(sys, q, t * v))  # noqa: E731
    return jax.jvp(path, (jnp.zeros(()),), (jnp.ones(()),))


def body_velocities(sys, q, v):
    """(nb, 6) world-aligned velocities at the body origins, by differentiating forward kinematics."""
    (R, p), (R_dot, p_dot) = along(sys, lambda x: rbd.forward_kinematics(sys, x), q, v)
    W = jnp.einsum("nij,nkj->nik", R_dot, R)
    return p, jnp.concatenate([jnp.stack([W[:, 2, 1], W[:, 0, 2], W[:, 1, 0]], -1), p_dot], -1)


def ratio(difference, *sizes):
    """Largest entry of `difference` relative to the largest entry of `sizes`."""
    scale = jnp.stack([jnp.max(jnp.abs(x), initial=0.0) for x in sizes]).max()
    return jnp.max(jnp.abs(difference), initial=0.0) / scale


def ancestors_mask(sys):
    """mask[i, j]: freedom j is i itself, earlier in the same joint, or on the way from i to the root."""
    mask = np.zeros((sys.nv, sys.nv), bool)
    columns = [np.arange(sys.nv)[sys.v_index(name)] for name in sys.joint_names]
    for body, own in enumerate(columns):
        above, parent = [], sys.parents[body]
        while parent >= 0:
            above.extend(columns[parent])
            parent = sys.parents[parent]
        for i in own:
            mask[i, [*above, *own[own <= i]]] = True
    return mask


def dynamics_residuals(sys):
    """Residuals of M, C, bias, regressors, factorisation and power, one state at a time."""
    mask = ancestors_mask(sys)

    def residuals(q, v, a, tau, f_ext):
        M, M_dot = along(sys, lambda x: rbd.mass_matrix(sys, x), q, v)
        # what is needed twice is mapped over two arguments: compiling is most of the time
        C, C_back = jax.vmap(lambda v: rbd.coriolis_matrix(sys, q, v))(jnp.stack([v, -2 * v]))
        b, b_rest = jax.vmap(lambda v: rbd.bias_force(sys, q, v))(jnp.stack([v, 0 * v]))
        g = rbd.gravity_force(sys, q)
        tau_id, tau_ext = jax.vmap(lambda f: rbd.inverse_dynamics(sys, q, v, a, f))(
            jnp.stack([0 * f_ext, f_ext])
        )
        a_ext, a_tau = jax.vmap(lambda tau: rbd.forward_dynamics(sys, q, v, tau, f_ext))(
            jnp.stack([tau_ext, tau])
        )
        dtau_da = jax.jacfwd(lambda x: rbd.inverse_dynamics(sys, q, v, x))(a)
        skew = M_dot - 2 * C
        Y, pi = rbd.joint_torque_regressor(sys, q, v, a), rbd.inertial_parameters(sys).reshape(-1)
        L, inverse = rbd.mass_matrix_factor(sys, q), rbd.mass_matrix_inverse(sys, q)
        T, V = rbd.kinetic_energy(sys, q, v), rbd.potential_energy(sys, q)
        KY, VY = rbd.kinetic_energy_regressor(sys, q, v), rbd.potential_energy_regressor(sys, q)
        T_rotors = 0.5 * jnp.sum(sys.armature * v**2)
        _, bodies_v = body_velocities(sys, q, v)

        def energy(t):
            q_t, v_t = rbd.integrate(sys, q, t * v), v + t * a
            return rbd.kinetic_energy(sys, q_t, v_t) + rbd.potential_energy(sys, q_t)

        _, E_dot = jax.jvp(energy, (0.0,), (1.0,))
        power = v @ tau_ext + jnp.sum(f_ext * bodies_v)
        work = jnp.abs(v) @ jnp.abs(tau_id)
        solved = rbd.mass_matrix_solve(sys, q, tau)
        exact = {
            "M = d tau / d a": ratio(M - dtau_da, M),
            "M symmetric": ratio(M - M.T, M),
            "M a + b = tau": ratio(M @ a + b - tau_id, tau_id),
            "dM/dt - 2 C skew": ratio(skew + skew.T, M_dot, C),
            "C v + g = b": ratio(C @ v + g - b, b, tau_id),
            "b at rest = g": ratio(b_rest - g, tau_id),
            "C is linear in v": ratio(C_back + 2 * C, C, M),
            "g = dV/dq": ratio(
                g - jax.grad(lambda x: rbd.potential_energy(sys, rbd.integrate(sys, q, x)))(0 * v), g
            ),
            "power = dE/dt": ratio(E_dot - power, work),
            "kinetic energy = v M v / 2": ratio(T - 0.5 * v @ M @ v, T),
            "tau = Y pi": ratio(Y @ pi + sys.armature * a - tau_id, tau_id),
            "kinetic energy = Y pi": ratio(KY @ pi + T_rotors - T, T),
            "potential energy = Y pi": ratio(VY @ pi - V, jnp.abs(VY) @ jnp.abs(pi)),
            "L^T L = M": ratio(L.T @ L - M, M),
            "L sparse as the tree": ratio(jnp.where(mask, 0.0, L), L),
        }
        inverted = {
            "ABA after RNEA": ratio(a_ext - a, a),
            "RNEA after ABA": ratio(rbd.inverse_dynamics(sys, q, v, a_tau, f_ext) - tau, tau, b),
            "M^-1 M = 1": ratio(inverse @ M - jnp.eye(sys.nv), jnp.ones(())),
            "M^-1 symmetric": ratio(inverse - inverse.T, inverse),
            "solve": ratio(solved - inverse @ tau, solved),
        }
        return exact, inverted, jnp.linalg.eigvalsh(M)

    return jax.jit(jax.vmap(residuals))


def failures(residuals, tolerance):
    worst = {key: float(np.max(np.where(np.isnan(x), np.inf, x))) for key, x in residuals.items()}
    return {key: error for key, error in worst.items() if not error <= tolerance}


@pytest.mark.parametrize("links", SIZES)
def test_dynamics(links):
    """M, C, bias, energies, regressors and factors agree; solves as far as the condition number allows."""
    sys = tree(links)
    exact, inverted, eigenvalues = dynamics_residuals(sys)(
        *states(sys, 3)
    )  # two or fewer take the dense path
    assert np.all(np.asarray(eigenvalues) > 0)
    condition = float(np.max(eigenvalues[:, -1] / eigenvalues[:, 0]))
    assert not failures(exact, 1e-9)
    assert not failures(inverted, max(1e-9, 10 * EPS * condition))


@pytest.mark.parametrize("links", [1, 40])
def test_momentum(links):
    """Free base: dh/dt about the centre of mass = external wrenches + weight, h = A(q) v, p = m com'."""
    sys = floating_tree(links)
    assert sys.joint_names[0] == "root"
    assert sys.parents.count(-1) == 1
    internal = jnp.ones(sys.nv).at[sys.v_index("root")].set(0.0)

    def residuals(q, v, tau, f_ext):
        a = rbd.forward_dynamics(sys, q, v, internal * tau, f_ext)

        def momentum(t):
            return rbd.centroidal_momentum(sys, rbd.integrate(sys, q, t * v), v + t * a)

        h, h_dot = jax.jvp(momentum, (0.0,), (1.0,))
        com, com_dot = along(sys, lambda x: rbd.center_of_mass(sys, x), q, v)
        p, bodies_v = body_velocities(sys, q, v)
        moment = jnp.sum(f_ext[:, :3] + jnp.cross(p - com, f_ext[:, 3:]), 0)
        force = jnp.sum(f_ext[:, 3:], 0) + rbd.total_mass(sys) * sys.gravity
        by_bodies = momentum_of_bodies(sys, q, bodies_v, p, com)
        return {
            "rate of angular momentum": ratio(h_dot[:3] - moment, moment, h_dot),
            "rate of linear momentum": ratio(h_dot[3:] - force, force),
            "A v": ratio(rbd.centroidal_momentum_matrix(sys, q) @ v - h, h),
            "m com'": ratio(rbd.total_mass(sys) * com_dot - h[3:], h),
            "sum over bodies": ratio(by_bodies - h, h),
        }

    q, v, _, tau, f_ext = states(sys, 3)
    assert not failures(jax.jit(jax.vmap(residuals))(q, v, tau, f_ext), 1e-9)


def momentum_of_bodies(sys, q, bodies_v, p, com):
    """Angular and linear momentum about `com`, summed over bodies from their inertial parameters."""
    R, _ = rbd.forward_kinematics(sys, q)
    pi = rbd.inertial_parameters(sys).reshape(sys.nb, 10)
    mass, h = pi[:, 0], jnp.einsum("nij,nj->ni", R, pi[:, 1:4])
    moments = pi[:, jnp.array([4, 5, 6, 5, 7, 8, 6, 8, 9])].reshape(-1, 3, 3)
    I = jnp.einsum("nij,njk,nlk->nil", R, moments, R)
    w, u = bodies_v[:, :3], bodies_v[:, 3:]
    linear = mass[:, None] * u + jnp.cross(w, h)
    angular = jnp.einsum("nij,nj->ni", I, w) + jnp.cross(h, u) + jnp.cross(p - com, linear)
    return jnp.concatenate([angular.sum(0), linear.sum(0)])


@pytest.mark.parametrize("links", [12])
def test_frames(links):
    """J v is the frame's velocity, that is the derivative of its pose; J-dot v completes the acceleration."""
    sys = tree(links)
    name = sys.body_names[-1]

    def residuals(q, v, a, _tau, _f_ext):
        (R, p), (R_dot, p_dot) = along(sys, lambda x: rbd.frame_pose(sys, x, name), q, v)
        W = R_dot @ R.T
        omega = jnp.stack([W[2, 1], W[0, 2], W[1, 0]])
        expected = {
            "world_aligned": jnp.concatenate([omega, p_dot]),
            "world": jnp.concatenate([omega, p_dot + jnp.cross(p, omega)]),
            "body": jnp.concatenate([R.T @ omega, R.T @ p_dot]),
        }
        all_R, all_p = rbd.forward_kinematics(sys, q)
        out = {"pose": ratio(all_R[-1] - R, R) + ratio(all_p[-1] - p, jnp.ones(()))}
        one = jnp.ones(())
        for frame, velocity in expected.items():
            J, J_dot = along(sys, lambda x, f=frame: rbd.frame_jacobian(sys, x, name, frame=f), q, v)
            drift = rbd.frame_jacobian_dot_v(sys, q, v, name, frame=frame)
            V = rbd.frame_velocity(sys, q, v, name, frame=frame)
            out[f"pose' = velocity, {frame}"] = ratio(V - velocity, velocity, one)
            out[f"J v = velocity, {frame}"] = ratio(J @ v - velocity, velocity, one)
            out[f"J' v, {frame}"] = ratio(J_dot @ v - drift, drift, one)
            acceleration = rbd.frame_acceleration(sys, q, v, a, name, frame=frame)
            out[f"acceleration, {frame}"] = ratio(acceleration - (J @ a + drift), acceleration, one)
        return out

    assert not failures(jax.jit(jax.vmap(residuals))(*states(sys, 3)), 1e-9)


def test_external_forces_act_through_jacobians():
    """RNEA with f_ext is tau - sum of J^T f; `wrench_at_frame` makes f_ext from a wrench anywhere."""
    sys = tree(7)
    q, v, a, _, f_ext = (x[0] for x in states(sys, 1))
    wrench, name, frames = f_ext[0], sys.frame_names[-1], ("body", "world", "world_aligned")

    @jax.jit
    def both(q, v, a, f_ext):
        J = [rbd.frame_jacobian(sys, q, body, frame="world_aligned") for body in sys.body_names]
        expected = [jnp.einsum("nij,ni->j", jnp.stack(J), f_ext)]
        expected += [rbd.frame_jacobian(sys, q, name, frame=frame).T @ wrench for frame in frames]
        given = [f_ext, *(rbd.wrench_at_frame(sys, q, name, wrench, frame=frame) for frame in frames)]
        tau = jax.vmap(lambda f: rbd.inverse_dynamics(sys, q, v, a, f))(jnp.stack([0 * f_ext, *given]))
        return tau[0] - tau[1:], jnp.stack(expected)

    less, expected = both(q, v, a, f_ext)
    np.testing.assert_allclose(less, expected, rtol=1e-9, atol=1e-9)


def test_armature_is_on_the_diagonal_of_the_mass_matrix():
    """M gains diag(armature); gravity and velocity terms do not change."""
    bare = tree(9).replace(armature=jnp.zeros(tree(9).nv))
    armature = jnp.linspace(0.1, 0.5, bare.nv)
    geared = bare.replace(armature=armature)
    q, v = (x[0] for x in states(bare, 1)[:2])
    gain = rbd.mass_matrix(geared, q) - rbd.mass_matrix(bare, q)
    np.testing.assert_allclose(gain, jnp.diag(armature), atol=1e-12)
    np.testing.assert_allclose(rbd.bias_force(geared, q, v), rbd.bias_force(bare, q, v), atol=1e-12)
