"""A walking linkage, stepped as a tree with closed loops and as free bodies whose joints are constraints."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from jaxrbd.model.description import Pose

jax.config.update("jax_enable_x64", True)

# In the plane y = 0: a crank with two opposite pins drives two legs. Each is guided by a rocker, and reaches
# three times as far as its guide. The frame slides up and along, but does not turn.
r = 0.04
pins = {"left": np.array([r, 0, 0]), "right": np.array([-r, 0, 0])}
pivot, guide, rod = np.array([3 * r, 0, -3 * r]), 3 * r, 3 * r


def elbow(pin):
    """Where leg and rocker meet: a guide's length from the pivot, a rod's from the pin."""
    across = pivot - pin
    half = np.linalg.norm(across) / 2
    aside = np.array([-across[2], 0, across[0]]) / (2 * half)
    found = [(pin + pivot) / 2 + s * np.sqrt(guide**2 - half**2) * aside for s in (1, -1)]
    return min(found, key=lambda x: x[0])


b = rbd.Builder("walker")
b.body("slider", mass=0.2, inertia=1e-3).joint("x", "prismatic", None, "slider", axis=(1, 0, 0))
b.body("frame", mass=1.0, inertia=1e-2).joint("z", "prismatic", "slider", "frame", axis=(0, 0, 1))
b.body("crank", mass=0.1, inertia=1e-3)
b.joint("motor", "revolute", "frame", "crank", axis=(0, 1, 0), damping=2.0, friction=0.05, armature=1e-3)
b.actuator("motor")
for side, pin in pins.items():
    leg, rocker = f"leg_{side}", f"rocker_{side}"
    bend = elbow(pin)
    b.body(leg, 0.1, shapes=[b.capsule_between(5e-3, (0, 0, 0), 3 * (bend - pin))])
    b.joint(f"pin_{side}", "revolute", "crank", leg, xyz=pin, axis=(0, 1, 0))
    b.frame(f"foot_{side}", leg, xyz=3 * (bend - pin))
    b.body(rocker, 0.05, shapes=[b.capsule_between(5e-3, (0, 0, 0), bend - pivot)])
    b.joint(f"pivot_{side}", "revolute", "frame", rocker, xyz=pivot, axis=(0, 1, 0))
    b.loop(f"elbow_{side}", "connect", leg, rocker, Pose(p=bend - pin), Pose(p=bend - pivot))
walker = b.build(dtype="float64")

feet = [f"foot_{side}" for side in pins]
dt, steps = 4e-3, 500
u = jnp.full(1, 2.0 * 4.0)  # with the motor's damper: 4 rad/s if nothing holds it up
height = max(-float(rbd.frame_pose(walker, walker.q0, foot)[1][2]) for foot in feet)
start = walker.q0.at[walker.q_index("z")].set(height)
settings = {
    "stabilisation": rbd.contact.Stabilisation(acceleration=True),
    "solver": rbd.dual.Reduced(rbd.dual.NBGS(20)),  # joints eliminated, then contact after contact
}


def walk(sys, state, u, constraints, **more):
    integrator = rbd.HardContact(dt, **settings, **more)
    ground = rbd.contact.on_plane(sys, feet, friction=0.9)
    given = None if u is None else jnp.tile(u, (steps, 1))
    return rbd.rollout(
        sys, state, given, integrator, constraints=constraints, contacts=ground, steps=steps
    ).value


def timed(run, *args):
    run = jax.jit(run).lower(*args).compile()
    began = time.perf_counter()
    path = jax.block_until_ready(run(*args))
    return path, time.perf_counter() - began


loops = rbd.constraints.of_model(walker)
tree, tree_time = timed(lambda q: walk(walker, rbd.State.at_rest(walker, q), u, loops), start)

m = rbd.maximal(walker)
bodies, bodies_time = timed(
    lambda Q: walk(m.system, rbd.State.at_rest(m.system, Q), None, m.constraints, joints=m.joints(u)),
    m.to_maximal(start)[0],
)
back = jax.jit(jax.vmap(lambda Q: m.from_maximal(Q)[0]))(bodies.q)
off = np.abs(tree.q[:, :2] - back[:, :2]).max(1)
count = m.constraints.rows + len(m.slots.inert)
print(
    f"minimal: {walker.nv} coordinates, {loops.rows} rows of loops, {1e3 * tree_time / steps:.3f} ms a step"
)
print(
    f"maximal: {m.system.nv} coordinates, {count} rows of joints, {1e3 * bodies_time / steps:.3f} ms a step"
)
print(f"the frame walked {tree.q[-1, 0]:.4f} m and {back[-1, 0]:.4f} m")
early, late = 1e3 * off[:100].max(), 1e3 * off.max()
print(f"its paths are within {early:.3f} mm for {100 * dt:g} s, and {late:.3f} mm for {steps * dt:g} s")
assert abs(tree.q[-1, 0]) > 0.2 and off[:100].max() < 1e-3 and off.max() < 0.02
