"""More constraints than a robot can have: proximal solvers converge where a plain inverse fails."""

import sys as python

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import jaxrbd as rbd

jax.config.update("jax_enable_x64", True)

# Both feet and a hand are welded to the world, then the left foot once more, and its shank as well.
sys = rbd.zoo.humanoid()
frames = ("left_foot", "right_foot", "left_hand", "left_foot", "left_shank")
held = rbd.constraints.combine(*(rbd.constraints.weld(sys, f) for f in frames))
keys = jax.random.split(jax.random.key(0), 100)
q = jax.vmap(lambda key: rbd.random_configuration(sys, key))(keys)
v, tau = jnp.zeros((100, sys.nv)), jax.random.normal(keys[0], (100, sys.nv))

J = rbd.constraints.constraint_jacobian(sys, held, q[0])
print(f"{held.rows} rows of rank {jnp.linalg.matrix_rank(J, rtol=1e-9)}")

# At rest the rows agree with each other, so there is an exact answer; mu is small to show the way to it.
solvers = {"ConstrainedABA": rbd.ConstrainedABA(mu=1e4, iterations=10), "Classic": rbd.Classic()}
found = {}
for name, solver in solvers.items():
    solve = jax.jit(jax.vmap(lambda *s, solver=solver: rbd.constrained_dynamics(sys, *s, held, solver)))
    found[name] = solve(q, v, tau)
    worst = jnp.max(found[name].stats.residual)
    print(f"{name}: worst residual {worst:.1e} m/s², {found[name].converged.mean():.0%} converged")

history = found["ConstrainedABA"].stats.history
plt.boxplot(list(history.T), whis=(0, 100))
plt.yscale("log")
plt.xlabel("proximal iteration")
plt.ylabel("largest |J a + J̇v - a*|  [m/s²]")
plt.title(f"{held.rows} rows, {100} random configurations of a humanoid")
path = python.argv[1] if len(python.argv) > 1 else "redundant_constraints.png"
plt.savefig(path, dpi=120)
print(f"drawn in {path}")

assert found["ConstrainedABA"].converged.all()
assert jnp.median(history[:, 4]) < 1e-10
