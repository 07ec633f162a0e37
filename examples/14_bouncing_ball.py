"""Where a thrown ball lands after two bounces, and how that depends on its speed and restitution."""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

b = rbd.Builder("ball")
b.body("ball", 0.5, shapes=[b.sphere(0.05)])
b.joint("root", "free", None, "ball")
ball = b.build()
integrator = rbd.HardContact(dt=1e-3)
start = jnp.array([0, 0, 1.05, 1, 0, 0, 0], jnp.float32)


def landing(speed, restitution):
    """Metres from the start after 1.2 s, two bounces on frictionless ground later."""
    ground = rbd.contact.on_plane(ball, ["ball"], radius=0.05, restitution=restitution, friction=0.0)
    v = jnp.array([0, 0, 0, 1, 0, 0], jnp.float32) * speed
    path = rbd.rollout(
        ball, rbd.State(start, v), steps=1200, integrator=integrator, contacts=ground, keep="last"
    )
    return path.value.q[0, 0], path.value.q[0, 2]


where = jax.jit(lambda *x: jnp.stack(landing(*x)))
slope = jax.jit(jax.jacfwd(lambda *x: jnp.stack(landing(*x)), (0, 1)))
speed, restitution = jnp.float32(2.0), jnp.float32(0.7)
x, z = where(speed, restitution)
by_speed, by_restitution = slope(speed, restitution)
print(f"after 1.2 s at x = {x:.3f} m, z = {z:.3f} m")
print(f"dx/dspeed = {by_speed[0]:.3f} s, dz/drestitution = {by_restitution[1]:.3f} m")

target, guess = 1.5, jnp.float32(0.5)
for _ in range(5):  # Newton's method: which speed lands at 1.5 m?
    guess = guess - (where(guess, restitution)[0] - target) / slope(guess, restitution)[0][0]
print(f"thrown at {guess:.4f} m/s it is at x = {where(guess, restitution)[0]:.4f} m")
assert abs(where(guess, restitution)[0] - target) < 1e-3
assert abs(by_speed[0] - 1.2) < 1e-2
