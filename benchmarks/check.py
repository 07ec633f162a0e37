"""Whether a comparison is one: the same robot, the same state and the same answer for every contender."""

import os

import numpy as np


def same_robots(names, count: int = 16) -> bool:
    """All contenders against Pinocchio, in float64, to 1e-6 of the largest entry; prints what it finds."""
    os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is first imported, below
    from benchmarks import peers
    from benchmarks.robots import Robot, find_urdf, random_states

    good = True
    for robot in (Robot.read(find_urdf(name)) for name in names):
        states = random_states(robot, count)
        reference = peers.Pinocchio(robot)
        expected = {task: reference.evaluate(task, states) for task in reference.tasks}
        expected["step"] = peers.Mujoco(robot).evaluate("step", states)
        for kind in (peers.Mujoco, peers.Frax, peers.Mjx, peers.Ours):
            peer = kind(robot)
            for task in expected if kind is peers.Mujoco else peer.tasks:
                error = (
                    np.abs(peer.evaluate(task, states) - expected[task]).max() / np.abs(expected[task]).max()
                )
                # Integrating the base in body or in world axes differs by the square of the time step.
                limit = 20 * peers.TIMESTEP**2 if task == "step" else 1e-6
                good &= bool(error < limit)
                verdict = "ok" if error < limit else "WRONG"
                print(f"{robot.name:16} {kind.__name__:10} {task:18} {error:9.2e}  {verdict}", flush=True)
    return good
