"""One contender in a process of its own, so that nobody's XLA flags or thread pools reach anybody else.

Reads one JSON request per line from standard input, answers with one JSON line. Requests: `hello` (answered
when the libraries are loaded), `prepare` (build and compile), `time` (best seconds per state of several
runs), `compile` (again, from nothing), `store` (the answer itself, in a file), `drop`; and `memory` (what a
gradient of ours needs).
Started by `harness.py` as `python -m benchmarks.worker CONTENDER SETTINGS`.
"""

import importlib
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks import contacts, derivatives, peers
from benchmarks.robots import Robot, States, find_urdf, random_states

CORES = os.cpu_count() or 1
LIBRARIES = {
    "jaxrbd": ("jaxrbd",),
    "mjx": ("mujoco.mjx",),
    "frax": ("frax",),
    "mujoco": ("mujoco.rollout",),
    "pinocchio": ("pinocchio",),
}
JAX_CONTENDERS = {"jaxrbd": peers.Ours, "mjx": peers.Mjx, "frax": peers.Frax}


@dataclass
class Job:
    """Something to time: `run` does `amount` states or steps; `compile` repeats what `prepare` compiled."""

    run: Callable
    amount: int
    compile: Callable | None = None


def prepare_jax(contender: str, settings: dict, task: str, robot: str, batch: int, steps: int):
    """A jitted task and its compile time; batch 0 means one state, without vmap."""
    import jax
    import jax.numpy as jnp

    spread = bool(settings.get("spread"))
    if robot.startswith(("chain", "tree")) or robot in contacts.ZOO_CASES:
        function, inputs = _from_zoo(robot, task, max(batch, 1))
    else:
        model = _cached_model(contender, robot)
        states = _cached_states(robot, max(batch, 1))
        function = derivatives.function_of(model, task, steps)
        inputs = derivatives.inputs_of(model, task, states)
    inputs = [jnp.asarray(x, jnp.float64 if settings.get("double") else jnp.float32) for x in inputs]
    if batch == 0:
        inputs = [x[0] for x in inputs]
    elif spread:
        mesh = jax.sharding.Mesh(jax.devices(), ("batch",))
        inputs = jax.device_put(inputs, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch")))

    def compile_anew():
        jax.clear_caches()
        if batch and spread:
            from jaxrbd.devices import spread as over_devices

            jitted = over_devices(function)
        else:
            jitted = jax.jit(jax.vmap(function) if batch else function)
        start = time.perf_counter()
        compiled = jitted.lower(*inputs).compile()
        return compiled, time.perf_counter() - start

    compiled, seconds = compile_anew()
    run = lambda: jax.block_until_ready(compiled(*inputs))  # noqa: E731
    return Job(run, max(batch, 1) * steps, lambda: compile_anew()[1]), seconds


def _from_zoo(robot: str, task: str, batch: int):
    """A task on "chain50" (links), "tree4" (a binary tree, levels of branches), "arm7" or "hands"."""
    import jax

    import jaxrbd as rbd

    if robot == "arm7":
        system = rbd.zoo.arm7()
    elif robot == "hands":
        system = rbd.zoo.humanoid(hands=True)
    elif robot.startswith("chain"):
        system = rbd.zoo.chain(int(robot[5:]))
    else:
        system = rbd.zoo.binary_tree(int(robot[4:]))
    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.jit(jax.vmap(lambda key: rbd.random_configuration(system, key)))(keys)
    v, tau = jax.random.normal(jax.random.key(1), (2, batch, system.nv))
    return peers.our_function(system, task), (q, v, tau)


_models: dict = {}


def _cached_model(contender: str, robot: str):
    if (contender, robot) not in _models:
        _models[contender, robot] = JAX_CONTENDERS[contender](Robot.read(find_urdf(robot)))
    return _models[contender, robot]


def _cached_states(robot: str, batch: int) -> States:
    if (robot, batch) not in _models:
        _models[robot, batch] = random_states(Robot.read(find_urdf(robot)), batch)
    return _models[robot, batch]


def prepare_mujoco(robot: str, batch: int, steps: int) -> Job:
    model = peers.Mujoco(Robot.read(find_urdf(robot)))
    return Job(model.rollout(random_states(model.robot, batch), steps, CORES), batch * steps)


def prepare_pinocchio(processes: bool, task: str, robot: str, batch: int) -> Job:
    """The wheel's own parallel batch, or one process per core that loops over its share."""
    model = Robot.read(find_urdf(robot))
    states = random_states(model, max(batch, 1))
    if batch == 0:
        return Job(peers.Pinocchio(model).loop(task, states), 1)
    if not processes:
        return Job(peers.Pinocchio(model).parallel(task, states, CORES), batch)
    context = multiprocessing.get_context("fork")
    ends = []
    for i in range(CORES):
        ours, theirs = context.Pipe()
        share = States(*(x[i::CORES] for x in (states.q, states.v, states.a, states.tau)))
        context.Process(target=_pinocchio_loop, args=(theirs, model, task, share), daemon=True).start()
        ends.append(ours)

    def run():
        for end in ends:
            end.send(1)
        for end in ends:
            end.recv()

    return Job(run, batch)


def _pinocchio_loop(pipe, robot: Robot, task: str, states: States):
    run = peers.Pinocchio(robot).loop(task, states)
    while True:
        pipe.recv()
        run()
        pipe.send(1)


def best_time(job: Job, seconds: float) -> float:
    """Seconds per state: the best of many samples, each long enough (5 ms) for the clock."""
    start = time.perf_counter()
    job.run()
    once = time.perf_counter() - start
    repeats = max(1, int(5e-3 / max(once, 1e-7)))
    best, until = once, start + seconds
    while True:
        start = time.perf_counter()
        for _ in range(repeats):
            job.run()
        best = min(best, (time.perf_counter() - start) / repeats)
        if time.perf_counter() > until:
            return best / job.amount


def store(job: Job, path: str):
    """The arrays of a job's answer, in the order of its leaves, as an .npz file."""
    import jax

    np.savez(path, *(np.asarray(x) for x in jax.tree.leaves(job.run())))


def serve(contender: str, settings: dict, requests, replies):
    """Answer requests until the input ends; whatever fails is reported to the caller with its traceback."""
    jobs: dict[str, Job] = {}
    if settings.get("double"):
        import jax

        jax.config.update("jax_enable_x64", True)
    if settings.get("spread"):
        from jaxrbd.devices import configure_cpu

        configure_cpu(settings.get("devices"), fusion=bool(settings.get("fusion")))
    for line in requests:
        request = json.loads(line)
        operation, key = request.pop("op"), request.pop("key", "")
        try:
            reply: dict = {}
            if operation == "prepare" and contender in JAX_CONTENDERS:
                jobs[key], reply["compile"] = prepare_jax(contender, settings, **request)
            elif operation == "prepare" and contender == "mujoco":
                jobs[key] = prepare_mujoco(request["robot"], request["batch"], request["steps"])
            elif operation == "prepare":
                request.pop("steps")
                jobs[key] = prepare_pinocchio(bool(settings.get("processes")), **request)
            elif operation == "time":
                reply["seconds"] = best_time(jobs[key], request["seconds"])
            elif operation == "compile":
                reply["compile"] = jobs[key].compile()
            elif operation == "store":
                store(jobs[key], request["path"])
            elif operation == "memory":
                reply["bytes"] = derivatives.temporaries(**request)
            elif operation == "hello":
                for module in LIBRARIES[contender]:
                    importlib.import_module(module)
            elif operation == "drop":
                jobs.pop(key, None)
            else:
                raise ValueError(f"unknown request {operation!r}")
        except Exception:  # the parent decides what a failed contender means
            reply = {"error": traceback.format_exc()}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    serve(sys.argv[1], json.loads(sys.argv[2]), sys.stdin, answers)
