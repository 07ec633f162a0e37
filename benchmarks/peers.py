"""The peers, each turned into the same small interface, with its own conventions hidden behind it.

`evaluate(task, states)` answers in the neutral layout of `robots.py` and serves the checks. For timing, JAX
peers give an unbatched function and its inputs; MuJoCo C and Pinocchio a ready-made call for the whole batch.
Tasks: forward_dynamics, inverse_dynamics, mass_matrix, step; `derivatives.py` has those made from them.
"""

import os
import tempfile
from collections import deque
from collections.abc import Callable

import numpy as np

from benchmarks import contacts
from benchmarks.layout import Layout
from benchmarks.robots import Robot, States

TIMESTEP = 1e-3


class Pinocchio:
    """Pinocchio through its Python wheel, float64: parallel batches where the wheel has them, else a loop."""

    tasks = ("forward_dynamics", "inverse_dynamics", "mass_matrix")

    def __init__(self, robot: Robot):
        import pinocchio as pin

        self.pin, self.robot, self.model = pin, robot, robot.pin_model
        self.data = self.model.createData()
        self.calls = {"forward_dynamics": pin.aba, "inverse_dynamics": pin.rnea, "mass_matrix": pin.crba}
        self.jacobians = {
            "jacobians forward_dynamics": pin.computeABADerivatives,
            "jacobians inverse_dynamics": pin.computeRNEADerivatives,
        }
        self.layout = Layout(robot, tuple(self.model.names[2:]), base="body")

    def loop(self, task: str, states: States) -> Callable[[], list]:
        """One state after another, on one core; of Jacobians nothing is kept, which spares it memory."""
        model, data = self.model, self.data
        rows = list(zip(*self.layout.inputs(task.split()[-1], states, scalar_last=True), strict=True))
        if contacts.is_constrained(task):
            solve = contacts.pinocchio(self.pin, model, task)
            return lambda: [solve(*row) for row in rows]
        if task in self.jacobians:
            call = self.jacobians[task]
            return lambda: deque((call(model, data, *row) for row in rows), maxlen=1)
        call = self.calls[task]
        return lambda: [call(model, data, *row) for row in rows]

    def parallel(self, task: str, states: States, threads: int) -> Callable[[], np.ndarray]:
        """The wheel's OpenMP batch over `threads`."""
        pool = self.pin.ModelPool(self.model, threads)
        inputs = [np.asfortranarray(x.T) for x in self.layout.inputs(task, states, scalar_last=True)]
        out = np.zeros_like(inputs[1])
        call = {"forward_dynamics": self.pin.abaInParallel, "inverse_dynamics": self.pin.rneaInParallel}[task]
        return lambda: call(threads, pool, *inputs, out)

    def evaluate(self, task: str, states: States) -> np.ndarray:
        call = self.calls[task]
        rows = zip(*self.layout.inputs(task, states, scalar_last=True), strict=True)
        result = np.array([call(self.model, self.data, *row).copy() for row in rows])
        if task == "mass_matrix":  # only the upper triangle is meant
            result = np.triu(result) + np.swapaxes(np.triu(result, 1), 1, 2)
        return self.layout.back(task, states, result)

    def evaluate_jacobians(self, task: str, states: States) -> list[np.ndarray]:
        """Jacobians by (q, v, tau or a), each (n, nv, nv), in the tangent space of the neutral layout."""
        call = self.jacobians[task]
        inputs = self.layout.inputs(task.split()[-1], states, scalar_last=True)
        rows = [[x.copy() for x in call(self.model, self.data, *row)] for row in zip(*inputs, strict=True)]
        T = self.layout.matrix(states)
        return [np.swapaxes(T, 1, 2) @ np.array(J) @ T for J in zip(*rows, strict=True)]


def mujoco_model(robot: Robot):
    """The robot as MuJoCo compiles it: free base, inertias as written, Euler, no constraints, no contacts."""
    return mujoco_spec(robot).compile()


def mujoco_spec(robot: Robot):
    """The same before it is compiled."""
    import mujoco

    spec = mujoco.MjSpec.from_string(robot.urdf)
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.balanceinertia = False
    spec.compiler.boundmass = spec.compiler.boundinertia = 0.0
    spec.compiler.fusestatic = True
    spec.worldbody.first_body().add_freejoint()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.timestep = TIMESTEP
    bit = mujoco.mjtDisableBit
    off = bit.mjDSBL_CONSTRAINT | bit.mjDSBL_CONTACT | bit.mjDSBL_EULERDAMP | bit.mjDSBL_AUTORESET
    spec.option.disableflags |= off
    return spec


class Mujoco:
    """MuJoCo C, float64, through `mujoco.rollout`."""

    tasks = ("step",)

    def __init__(self, robot: Robot):
        import mujoco

        self.mujoco, self.robot, self.model = mujoco, robot, mujoco_model(robot)
        self.layout = Layout(robot, mujoco_joints(self.model), base="world")

    def evaluate(self, task: str, states: States) -> np.ndarray:
        mujoco, model, data = self.mujoco, self.model, self.mujoco.MjData(self.model)
        rows = []
        for q, v, x in zip(
            self.layout.q(states), self.layout.v(states), self._third(task, states), strict=True
        ):
            data.qpos[:], data.qvel[:] = q, v
            data.qfrc_applied[:] = 0.0
            if task == "inverse_dynamics":
                data.qacc[:] = x
                mujoco.mj_inverse(model, data)
                rows.append(data.qfrc_inverse.copy())
                continue
            data.qfrc_applied[:] = x
            mujoco.mj_step(model, data) if task == "step" else mujoco.mj_forward(model, data)
            if task == "mass_matrix":
                M = np.zeros((model.nv, model.nv))
                mujoco.mj_fullM(model, data, M)
                rows.append(M)
            elif task == "step":
                rows.append((data.qpos.copy(), data.qvel.copy()))
            else:
                rows.append(data.qacc.copy())
        result = [np.array(x) for x in zip(*rows, strict=True)] if task == "step" else np.array(rows)
        return self.layout.back(task, states, result)

    def _third(self, task: str, states: States) -> np.ndarray:
        return self.layout.a(states) if task == "inverse_dynamics" else self.layout.tau(states)

    def rollout(self, states: States, steps: int, threads: int) -> Callable[[], object]:
        """`steps` steps of the whole batch in one call, with a thread pool that outlives it."""
        from mujoco import rollout

        mujoco, model = self.mujoco, self.model
        spec = mujoco.mjtState
        pool = rollout.Rollout(nthread=threads)
        data = [mujoco.MjData(model) for _ in range(threads)]
        q, v, tau = self.layout.inputs("step", states)
        start = np.ascontiguousarray(np.concatenate([np.zeros((len(q), 1)), q, v], 1))
        control = np.ascontiguousarray(np.broadcast_to(tau[:, None], (len(q), steps, model.nv)))
        out = np.zeros((len(q), steps, start.shape[1]))
        return lambda: pool.rollout(
            model, data, start, control, control_spec=int(spec.mjSTATE_QFRC_APPLIED), nstep=steps, state=out
        )[0]


def mujoco_joints(model) -> tuple[str, ...]:
    """Names of the joints after the free one, in qpos order."""
    return tuple(model.joint(i).name for i in range(1, model.njnt))


class Mjx:
    """MJX, float32 by JAX's default. Only qacc leaves `forward`, so XLA may drop what else it computes."""

    tasks = ("forward_dynamics", "step")

    def __init__(self, robot: Robot):
        from mujoco import mjx

        model = mujoco_model(robot)
        self.mjx, self.robot = mjx, robot
        self.model, self.data = mjx.put_model(model), mjx.make_data(model)
        self.layout = Layout(robot, mujoco_joints(model), base="world")

    def function(self, task: str, steps: int = 1) -> Callable:
        import jax

        mjx, model, blank = self.mjx, self.model, self.data

        def forward_dynamics(q, v, tau):
            return mjx.forward(model, blank.replace(qpos=q, qvel=v, qfrc_applied=tau)).qacc

        def step(q, v, tau):
            def once(carry, _):
                data = mjx.step(model, blank.replace(qpos=carry[0], qvel=carry[1], qfrc_applied=tau))
                return (data.qpos, data.qvel), None

            return jax.lax.scan(once, (q, v), length=steps)[0]

        if contacts.is_constrained(task):
            held = contacts.mujoco_model(mujoco_spec(self.robot), task)
            model, blank = mjx.put_model(held), mjx.make_data(held)
            return forward_dynamics
        return {"forward_dynamics": forward_dynamics, "step": step}[task]

    def inputs(self, task: str, states: States):
        return self.layout.inputs(task, states)

    def evaluate(self, task: str, states: States) -> np.ndarray:
        return _evaluate_jax(self, task, states)


class Frax:
    """frax with its quaternion base (the conventions of MuJoCo): CRBA, RNEA, dense Cholesky."""

    tasks = ("forward_dynamics", "inverse_dynamics", "mass_matrix")

    def __init__(self, robot: Robot):
        from frax.core.robot import Robot as FraxRobot

        with tempfile.TemporaryDirectory() as folder:  # frax reads files only
            path = os.path.join(folder, "robot.urdf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(robot.urdf)
            self.model = FraxRobot(path, floating_base="quaternion")
        self.robot = robot
        self.layout = Layout(robot, tuple(self.model.joint_names[6:]), base="world")

    def function(self, task: str, steps: int = 1) -> Callable:
        import jax.numpy as jnp

        model = self.model

        def inverse_dynamics(q, v, a):
            return model.rnea(q, v, a, jnp.array([0.0, 0.0, 9.81, 0.0, 0.0, 0.0]), None)

        return {
            "forward_dynamics": lambda q, v, tau: model.forward_dynamics(q, v, tau, None),
            "inverse_dynamics": inverse_dynamics,
            "mass_matrix": model.mass_matrix,
        }[task]

    def inputs(self, task: str, states: States):
        return self.layout.inputs(task, states)

    def evaluate(self, task: str, states: States) -> np.ndarray:
        return _evaluate_jax(self, task, states)


class Ours:
    """jaxrbd itself, behind the same interface."""

    tasks = ("forward_dynamics", "inverse_dynamics", "mass_matrix", "step")

    def __init__(self, robot: Robot):
        import jaxrbd as rbd

        self.rbd, self.robot = rbd, robot
        self.system = rbd.load(robot.urdf, base="free")
        self.layout = Layout(robot, tuple(n for n in self.system.joint_names if n != "root"), base="neutral")

    def function(self, task: str, steps: int = 1) -> Callable:
        return our_function(self.system, task, steps)

    def inputs(self, task: str, states: States):
        return self.layout.inputs(task, states)

    def evaluate(self, task: str, states: States) -> np.ndarray:
        return _evaluate_jax(self, task, states)


def our_function(system, task: str, steps: int = 1) -> Callable:
    """The unbatched function of jaxrbd that does `task` for `system`."""
    import jax

    import jaxrbd as rbd

    if contacts.is_constrained(task):
        return contacts.ours(system, task)

    def step(q, v, tau):
        integrator = rbd.SemiImplicitEuler(dt=TIMESTEP)

        def once(state, _):
            return rbd.step(system, state, tau=tau, integrator=integrator).value, None

        end = jax.lax.scan(once, rbd.State(q, v), length=steps)[0]
        return end.q, end.v

    return {
        "forward_dynamics": lambda q, v, tau: rbd.forward_dynamics(system, q, v, tau),
        "inverse_dynamics": lambda q, v, a: rbd.inverse_dynamics(system, q, v, a),
        "mass_matrix": lambda q: rbd.mass_matrix(system, q),
        "step": step,
    }[task]


def _evaluate_jax(peer, task: str, states: States) -> np.ndarray:
    import jax

    result = jax.jit(jax.vmap(peer.function(task)))(*peer.inputs(task, states))
    return peer.layout.back(task, states, result)
