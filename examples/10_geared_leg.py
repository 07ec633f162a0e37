"""A leg with belts, exactly: what its motors must give, and what the usual armature makes of it."""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

jax.config.update("jax_enable_x64", True)

# Hip, knee and ankle; knee and ankle are driven by belts from motors on the thigh.
b = rbd.Builder("leg")
for name, mass in (("thigh", 2.0), ("shank", 1.0), ("foot", 0.5)):
    b.body(name, mass, shapes=[b.capsule_between(0.03, (0, 0, 0), (0, 0, -0.3))])
for name in ("knee_rotor", "ankle_rotor"):
    b.body(name, 0.25, shapes=[b.cylinder(0.05, 0.02)])
b.joint("hip", "revolute", None, "thigh", axis=(0, 1, 0))
b.joint("knee", "revolute", "thigh", "shank", (0, 0, -0.3), axis=(0, 1, 0))
b.joint("ankle", "revolute", "shank", "foot", (0, 0, -0.3), axis=(0, 1, 0))
for name in ("knee_rotor", "ankle_rotor"):
    b.joint(name, "continuous", "thigh", name, rpy=(jnp.pi / 2, 0, 0), axis=(0, 0, -1))
b.gear("knee_belt", {"knee_rotor": 1, "knee": -12})
b.gear("ankle_belt", {"ankle_rotor": 1, "knee": -12, "ankle": -12})  # it runs past the knee

leg = rbd.cluster(b.build())  # rotors follow: three degrees of freedom
links, H = rbd.reflected(leg)  # the same leg with armatures; and with the terms between the joints
bare = links.replace(armature=links.armature - jnp.diag(H))


@jax.jit
@jax.vmap
def torques(t):
    """At the ankle, while all joints swing: exact, armature, block, no motors at all."""
    w = 2 * jnp.pi * 1.5
    q, v, a = (0.5 * x * jnp.ones(3) for x in (jnp.sin(w * t), w * jnp.cos(w * t), -w * w * jnp.sin(w * t)))
    plain = rbd.inverse_dynamics(bare, q, v, a)
    every = rbd.inverse_dynamics(leg, q, v, a), rbd.inverse_dynamics(links, q, v, a), plain + H @ a, plain
    return jnp.stack([tau[2] for tau in every])


exact, armature, block, nothing = torques(jnp.linspace(0, 1, 200)).T
off = [float(jnp.sqrt(jnp.mean((x - exact) ** 2)) / jnp.abs(exact).max()) for x in (nothing, armature, block)]
print("torque at the ankle off by (rms, of the largest):")
for name, x in zip(("no rotors", "armature N² I", "with terms between joints"), off):
    print(f"  {name:27s} {100 * x:5.1f} %")

assert leg.nv == 3
assert off[0] > off[1] > off[2]
