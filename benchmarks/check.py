"""Whether a comparison is one: the same robot, the same state and the same answer for every contender."""

import dataclasses
import os
import tempfile

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


def same_derivatives(names, contenders: dict, count: int = 8) -> bool:
    """Every derivative that is timed, as its own process computes it, against Pinocchio's Jacobians.

    `contenders` maps each to its tasks and the error it may have, relative to the largest entry.
    """
    from benchmarks import peers
    from benchmarks.harness import Arena
    from benchmarks.robots import Robot, find_urdf, random_states

    good = True
    with Arena(rounds=0, seconds=0) as arena, tempfile.TemporaryDirectory() as folder:
        for name in names:
            robot = Robot.read(find_urdf(name))
            states = random_states(robot, count)
            reference = Reference(robot, states)
            for contender, (tasks, limit) in contenders.items():
                arena.start([contender] if contender not in arena.workers else [])
                layout = {"mjx": peers.Mjx, "jaxrbd": peers.Ours}[contender.name](robot).layout
                for task in tasks:
                    answer = arena.store(contender, task, name, count, os.path.join(folder, "answer.npz"))
                    if answer is None:
                        print(f"{name:16} {contender.label}: {arena.failures[-1].splitlines()[0]}")
                        good = False
                        continue
                    error = reference.error(layout, task, answer)
                    good &= bool(error < limit)
                    verdict = "ok" if error < limit else "WRONG"
                    print(f"{name:16} {contender.label:36} {task:27} {error:9.2e}  {verdict}", flush=True)
    return good


class Reference:
    """Derivatives in the neutral layout from Pinocchio's Jacobians, float64."""

    def __init__(self, robot, states):
        from benchmarks import peers

        self.states, self.pinocchio = states, peers.Pinocchio(robot)
        names = ("forward_dynamics", "inverse_dynamics")
        self.value = {name: self.pinocchio.evaluate(name, states) for name in names}
        self.jacobians = {n: self.pinocchio.evaluate_jacobians(f"jacobians {n}", states) for n in names}
        self._set_step(peers.TIMESTEP)

    def _set_step(self, dt: float):
        """The state after a semi-implicit step and the Jacobians of q' and v' by q, v, tau."""
        pin, model, layout = self.pinocchio.pin, self.pinocchio.model, self.pinocchio.layout
        states, Jacobians = self.states, self.jacobians["forward_dynamics"]
        T = layout.matrix(states)
        v = states.v + dt * self.value["forward_dynamics"]
        moved, by_q, by_v = [], [], []
        for q, step in zip(layout.q(states, scalar_last=True), np.einsum("nij,nj->ni", T, dt * v)):
            moved.append(pin.integrate(model, q, step))
            for rows, J in zip((by_q, by_v), pin.dIntegrate(model, q, step)):
                rows.append(J.copy())
        q = np.array(moved)
        q = np.concatenate(
            [q[:, :3], np.roll(q[:, 3:7], 1, axis=1), q[:, 7:][:, np.argsort(layout.order)]], 1
        )
        self.after = dataclasses.replace(states, q=q, v=v)
        move, push = (np.swapaxes(T, 1, 2) @ np.array(J) @ T for J in (by_q, by_v))
        by = [dt * J for J in Jacobians]
        by[1] = by[1] + np.eye(v.shape[1])
        self.step = [[dt * push @ J for J in by], by]
        self.step[0][0] = self.step[0][0] + move

    def error(self, layout, task: str, answer: list[np.ndarray]) -> float:
        """Largest error of any array of the answer, each relative to its own largest entry."""
        pairs = zip(self.neutral(layout, task, answer), self.expected(layout, task), strict=True)
        return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)

    def neutral(self, layout, task: str, answer: list[np.ndarray]) -> list[np.ndarray]:
        """The contender's answer in the neutral layout; derivatives by q in its tangent space."""
        way, _, base = task.rpartition(" ")
        T = layout.matrix(self.states)
        if way in ("jacobians", "jacfwd"):
            by = T if way == "jacobians" else layout.tangent(self.states)
            return [np.swapaxes(T, 1, 2) @ J @ A for J, A in zip(answer, (by, T, T))]
        if way == "jvp":
            return [np.einsum("nij,ni->nj", T, x) for x in answer]
        results = 2 if base == "step" else 1
        value = answer[0] if results == 1 else answer[:2]
        states = self.states
        if base == "inverse_dynamics":
            states = dataclasses.replace(states, tau=states.a)
        return [layout.back(base, states, value), *layout.neutral_cotangents(states, *answer[results:])]

    def expected(self, layout, task: str) -> list[np.ndarray]:
        from benchmarks import derivatives

        way, _, base = task.rpartition(" ")
        if way in ("jacobians", "jacfwd"):
            return self.jacobians[base]
        if way == "jvp":
            given = derivatives.neutral_directions(self.states)
            push = [np.einsum("nij,nj->ni", J, x) for J, x in zip(self.jacobians[base], given)]
            return [self.value[base], sum(push)]
        cotangents = derivatives.directions(layout, way, base, self.states)
        pull = lambda J, y: np.einsum("nij,ni->nj", J, y)  # noqa: E731
        if base == "step":
            by_q, by_v = layout.neutral_cotangents(self.after, *cotangents)
            value = np.concatenate([self.after.q, self.after.v], 1)
            return [value, *(pull(Q, by_q) + pull(V, by_v) for Q, V in zip(*self.step))]
        (cotangent,) = cotangents
        cotangent = pull(layout.matrix(self.states), cotangent)
        return [self.value[base], *(pull(J, cotangent) for J in self.jacobians[base])]
