"""Which mass matters? The gradient of a torque with respect to every mass of a robot arm, in one call.

A System is a pytree: `jax.grad` with respect to it returns a System whose leaves are derivatives.
"""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

sys = rbd.zoo.arm7()
q = jnp.full(sys.nq, 0.4)


def shoulder_torque(sys):
    return rbd.gravity_force(sys, q)[1]


gradient = jax.jit(jax.grad(shoulder_torque))(sys)
for name, mass, slope in zip(sys.link_names, sys.mass, gradient.mass):
    print(f"{name:12s} {float(mass):6.2f} kg   {float(slope):8.3f} N m per kg")

# gravity torque is linear in the masses and in gravity: both Euler sums give the torque back
torque = shoulder_torque(sys)
by_mass = jnp.dot(gradient.mass, sys.mass)
by_gravity = jnp.dot(gradient.gravity, sys.gravity)
print(
    f"torque {float(torque):.4f}, from masses {float(by_mass):.4f}, from gravity {float(by_gravity):.4f} N m"
)
assert abs(float(by_mass - torque)) < 1e-3
assert abs(float(by_gravity - torque)) < 1e-3
