"""A humanoid stands on welded soles: the forces under its feet, and how they change with mass and torque."""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

jax.config.update("jax_enable_x64", True)

sys = rbd.zoo.humanoid()
q, v = sys.q0, jnp.zeros(sys.nv)
soles = [rbd.constraints.weld(sys, f"{side}_sole", q=q) for side in ("left", "right")]
solver = rbd.ProxLTL()  # also ConstrainedABA (the default), ProxPV, ProxLTLs

torso = sys.link_names.index("torso")

# Joint torques that hold the pose, of all that do the least.
hold = rbd.constrained_inverse_dynamics(sys, q, v, jnp.zeros(sys.nv), soles)
tau = hold.value.tau


@jax.jit
def foot_forces(mass, tau):
    """(2, 6): moment and force of the ground on each sole, when the torso weighs `mass`."""
    heavier = sys.replace(mass=sys.mass.at[torso].set(mass))
    return rbd.constrained_dynamics(heavier, q, v, tau, soles, solver).value.lam.reshape(2, 6)


mass = sys.mass[torso]
f = foot_forces(mass, tau)
weight = rbd.total_mass(sys) * 9.81
print(f"weight {weight:.1f} N; left sole {f[0, 5]:.1f} N, right sole {f[1, 5]:.1f} N")

# Every derivative at once: of the left sole's load with respect to the torso's mass and to each torque.
left_load = lambda mass, tau: foot_forces(mass, tau)[0, 5]  # noqa: E731
by_mass, by_torque = jax.jit(jax.grad(left_load, (0, 1)))(mass, tau)
strongest = jnp.argmax(jnp.abs(by_torque))
print(f"one kilogram more in the torso: {by_mass:+.2f} N on the left sole")
print(f"one N m more at its most influential joint, v[{strongest}]: {by_torque[strongest]:+.2f} N")

# The same by differences.
h = 1e-4
push = h * jnp.zeros(sys.nv).at[strongest].set(1.0)
slope_mass = (left_load(mass + h, tau) - left_load(mass - h, tau)) / (2 * h)
slope_torque = (left_load(mass, tau + push) - left_load(mass, tau - push)) / (2 * h)
errors = jnp.array([slope_mass - by_mass, slope_torque - by_torque[strongest]])
print(f"differences agree to {jnp.abs(errors).max():.0e} N")

assert hold.converged
assert jnp.allclose(f[:, 5].sum(), weight, rtol=1e-9)
assert jnp.abs(errors).max() < 1e-6
