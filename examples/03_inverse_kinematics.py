"""Inverse kinematics: a seven-joint arm reaches 200 poses at once, each from four random starts."""

import jax
import jax.numpy as jnp

import jaxrbd as rbd

sys = rbd.zoo.arm7()
POSES, STARTS = 200, 4

# Poses that can be reached: those of random configurations within the joint limits.
key_pose, key_start = jax.random.split(jax.random.PRNGKey(0))
q_pose = jax.vmap(lambda k: rbd.random_configuration(sys, k))(jax.random.split(key_pose, POSES))
R, p = jax.vmap(lambda q: rbd.frame_pose(sys, q, "tool"))(q_pose)

# The search is local, so it starts from several places; vmap over the starts, vmap over the poses.
starts = jax.vmap(lambda k: rbd.random_configuration(sys, k))(jax.random.split(key_start, POSES * STARTS))
starts = starts.reshape(POSES, STARTS, sys.nq)


def reach(q0, R, p):
    return rbd.inverse_kinematics(sys, q0, {"tool": (R, p)}, solver=rbd.GaussNewton(iterations=50))


solve = jax.jit(jax.vmap(jax.vmap(reach, in_axes=(0, None, None))))
solution = solve(starts, R, p)
print(f"single starts that reach their pose: {100 * solution.converged.mean():.0f} %")
print(f"poses reached by one of {STARTS} starts:   {100 * solution.converged.any(1).mean():.1f} %")

# Keep the best start of each pose.
best = jnp.argmin(solution.stats.position_error + solution.stats.rotation_error, axis=1)
q = solution.value[jnp.arange(POSES), best]
errors = jnp.linalg.norm(jax.vmap(lambda q: rbd.frame_pose(sys, q, "tool")[1])(q) - p, axis=1)
print(f"median distance of the tool from its target: {jnp.median(errors):.1e} m")
print(f"median iterations: {jnp.median(solution.stats.iterations[solution.converged]):.0f}")

# A target out of reach is not an exception: the answer says so, and stays within limits.
far = rbd.inverse_kinematics(sys, rbd.neutral(sys) + 0.1, {"tool": jnp.array([2.0, 0.0, 0.5])})
print(f"target 2 m away: {rbd.Result(int(far.result)).name}, misses by {far.stats.position_error:.2f} m")

assert solution.converged.any(1).mean() >= 0.95
assert not far.converged
assert ((q >= sys.lower) & (q <= sys.upper)).all()
