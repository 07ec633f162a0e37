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

# Every derivative at once: of both soles' loads with respect to the torso's mass and to each torque.
by_mass, by_torque = jax.jit(jax.jacrev(lambda m, t: foot_forces(m, t)[:, 5], (0, 1)))(mass, tau)
strongest = jnp.argmax(jnp.abs(by_torque[0]))
print(f"one kilogram more in the torso: {by_mass[0]:+.2f} N left, {by_mass[1]:+.2f} N right")
print(f"most influence on the left sole: v[{strongest}], {by_torque[0, strongest]:+.2f} N per N m")

# The same by differences.
h = 1e-4
slope = (foot_forces(mass + h, tau) - foot_forces(mass - h, tau))[:, 5] / (2 * h)
step = h * jnp.zeros(sys.nv).at[strongest].set(1.0)
slope_torque = (foot_forces(mass, tau + step) - foot_forces(mass, tau - step))[:, 5] / (2 * h)
print(
    f"differences agree to {jnp.abs(slope - by_mass).max():.0e} and "
    f"{jnp.abs(slope_torque - by_torque[:, strongest]).max():.0e}"
)

assert hold.converged
assert jnp.allclose(f[:, 5].sum(), weight, rtol=1e-9)
assert jnp.allclose(slope, by_mass, rtol=1e-6, atol=1e-6)
assert jnp.allclose(slope_torque, by_torque[:, strongest], rtol=1e-6, atol=1e-6)
