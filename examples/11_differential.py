"""A Tello-like leg: two motors turn the hip together. Equal torques pitch it, opposite ones roll it."""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

jax.config.update("jax_enable_x64", True)

sys = rbd.cluster(rbd.zoo.tello())
print(f"{sys.name}: {sys.nb} bodies, {sys.tree.nv} joint velocities, {sys.nv} degrees of freedom")

# The open tree's joints move with G v: which of them follow the hip's independent joints?
G = rbd.loop_jacobian(sys, sys.q0)
tree = sys.tree
hips = [name for name in sys.joint_names if "left" in name and "hip" in name]
for name in hips:
    row = G[tree.v_index(name)][0]
    moved = [
        f"{row[sys.v_index(j)][0]:+.2f} {j}"
        for j in hips
        if tree.v_index(j).start in sys.topology.independent and abs(row[sys.v_index(j)][0]) > 1e-6
    ]
    print(f"  {name:24s} = {' '.join(moved)}")


# Dropped from standing: loops stay closed to rounding.
@jax.jit
def fall(state):
    path = rbd.rollout(sys, state, steps=300, integrator=rbd.SemiImplicitEuler(dt=1e-3)).value
    return jax.vmap(lambda q: jnp.max(jnp.abs(rbd.loop_error(sys, q).error)))(path.q)


gap = fall(rbd.State.at_rest(sys, sys.q0)).max()
print(f"after 0.3 s of falling the rods are off by {gap:.0e} m²")

assert sys.nv == 24
assert gap < 1e-9
