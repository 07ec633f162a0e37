"""A mechanism of your own: two wheels that roll on each other like cams, said by one equation."""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

jax.config.update("jax_enable_x64", True)

b = rbd.Builder("cams", gravity=(0, 0, 0))
for name, x in (("driver", 0.0), ("driven", 0.3)):
    b.body(name, 1.0, shapes=[b.cylinder(0.15, 0.02)])
    b.joint(name, "continuous", None, name, (x, 0, 0))
equal_arcs = lambda x: x[:1] + 0.3 * jnp.sin(x[:1]) - x[1:]  # φ(driver, driven) = 0  # noqa: E731
sys = rbd.cluster(
    rbd.loop_function(b.build(), "arcs", equal_arcs, ["driver", "driven"]), independent=["driver"]
)


@jax.jit
def turn(state):
    path = rbd.rollout(sys, state, steps=5000, integrator=rbd.RK4(dt=1e-3)).value
    return path, jax.vmap(lambda s: rbd.energy(sys, s.q, s.v))(path)


path, energy = turn(rbd.State(sys.q0, jnp.array([6.0])))
drift = float(jnp.abs(energy / energy[0] - 1).max())
gap = float(jnp.abs(jax.vmap(equal_arcs)(path.q)).max())
print(f"{sys.nv} degree of freedom; speed between {path.v.min():.2f} and {path.v.max():.2f} rad/s")
print(f"5 s: the equation holds to {gap:.0e} rad, energy to {100 * drift:.0e} %")

assert gap < 1e-12
assert drift < 1e-8
