"""A four-bar linkage: three hinges in a tree, the fourth closes the loop; it turns without losing energy."""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

jax.config.update("jax_enable_x64", True)

# Crank, coupler and rocker in the plane xy. The coupler's end and the rocker's end are one hinge.
b = rbd.Builder("four_bar", gravity=(0, -9.81, 0))
for name, length, mass in (("crank", 0.2, 0.6), ("coupler", 0.5, 1.5), ("rocker", 0.4, 1.2)):
    b.body(name, mass, shapes=[b.capsule_between(0.02, (0, 0, 0), (length, 0, 0))])
b.joint("A", "continuous", None, "crank")
b.joint("B", "continuous", "crank", "coupler", xyz=(0.2, 0, 0))
b.joint("D", "continuous", None, "rocker", xyz=(0.5, 0, 0))
sys = b.build()
loop = rbd.constraints.hinge(sys, "coupler", to="rocker", offset=(0.5, 0, 0), anchor=(0.4, 0, 0))

# A guess is pulled shut: q with phi(q) = 0, and v with J v = 0 near a crank that turns at 12 rad/s.
solver = rbd.ProxLTL()  # for a single small mechanism; the default is for many, or large ones
guess, speed = jnp.array([0.8, -0.5, 1.8]), jnp.array([12.0, 0, 0])
closed = rbd.project(sys, loop, guess, speed, rbd.Projection(20, solver))
start = rbd.State(closed.value.q, closed.value.v)
print(f"closed to {closed.stats.error:.0e} m; crank {start.q[0]:.2f} rad, {start.v[0]:.1f} rad/s")


@jax.jit
def simulate(start):
    path = rbd.rollout(sys, start, None, rbd.RK4(2e-3), constraints=loop, solver=solver, steps=2000)
    return path, jax.vmap(lambda s: rbd.energy(sys, s.q, s.v))(path.value)


path, energies = simulate(start)
turns = (path.value.q[-1, 0] - start.q[0]) / (2 * jnp.pi)
gap = path.stats.error.max()
lost = jnp.abs(energies - rbd.energy(sys, start.q, start.v)).max()
drift = lost / rbd.kinetic_energy(sys, start.q, start.v)
force = jnp.linalg.norm(path.stats.lam[:, 2:], axis=1)  # of the closing hinge
print(f"4 s, {turns:.1f} turns of the crank: the loop opens by at most {gap:.0e} m")
print(f"energy stays within {100 * drift:.1e} %; the hinge carries {force.min():.1f} … {force.max():.1f} N")

assert path.converged.all()
assert gap < 1e-8
assert drift < 1e-3
