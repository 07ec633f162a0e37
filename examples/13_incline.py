"""A box on an incline with five frictions: it sticks where friction exceeds the slope, else it slides."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd

b = rbd.Builder("box")
b.body("box", 1.0, shapes=[b.box(0.2, 0.2, 0.1)])
b.joint("root", "free", None, "box")
box = b.build()

angle, dt, steps = 0.4, 2e-3, 500
normal = np.array([np.sin(angle), 0.0, np.cos(angle)])
corners = [(x, y, -0.05) for x in (-0.1, 0.1) for y in (-0.1, 0.1)]
start = rbd.State(
    jnp.array([*(0.05 * normal), np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0], jnp.float32),
    jnp.zeros(6, jnp.float32),
)
integrator = rbd.HardContact(dt=dt, solver=rbd.dual.ADMM())


def slide(friction):
    """Metres that the box has slid after a second; friction may be one of a batch."""
    ground = rbd.contact.on_plane(box, ["box"] * 4, corners, normal=normal, friction=friction)
    path = rbd.rollout(box, start, steps=steps, integrator=integrator, contacts=ground, keep="last")
    return jnp.linalg.norm(path.value.q[0, :3] - start.q[:3])


frictions = np.array([0.2, 0.3, 0.4, 0.5, 0.6], np.float32)
found = jax.jit(jax.vmap(slide))(frictions)
exact = np.maximum(0, 0.5 * 9.81 * (np.sin(angle) - frictions * np.cos(angle)))
print(f"slope tan {angle} rad = {np.tan(angle):.3f}")
for friction, far, known in zip(frictions, found, exact):
    verdict = "slides" if far > 1e-3 else "sticks"
    print(f"friction {friction:.1f}: {far:6.3f} m   (analytic {known:6.3f} m)  {verdict}")
assert np.abs(found - exact).max() < 5e-3
