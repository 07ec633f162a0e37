"""Derivatives as tasks: "WAY TASK" differentiates a task of `peers.py`. Only the last three are ours alone.

vjp          value and cotangents of q, v and tau (or a) for a given cotangent of the result
jvp          value and its change along given directions of q, v and tau (or a)
jacobians    the library's own full Jacobians, in the tangent space of q
jacfwd       jax.jacfwd of plain forward dynamics by q, v and tau: recursion and all, no rule of ours
"""

from collections.abc import Callable

import numpy as np

from benchmarks.peers import TIMESTEP
from benchmarks.robots import Robot, States, find_urdf


def function_of(model, task: str, steps: int = 1) -> Callable:
    """The unbatched function that does `task`, a derivative or not, for a JAX contender of `peers.py`."""
    import jax

    way, _, base = task.rpartition(" ")
    if way == "":
        return model.function(task, steps)
    if way == "jvp":
        f = model.function(base, steps)
        return lambda q, v, x, *directions: jax.jvp(f, (q, v, x), directions)
    if way == "vjp":
        f = model.function(base, steps)

        def value_and_cotangents(q, v, x, *cotangents):
            out, pull = jax.vjp(f, q, v, x)
            return out, pull(jax.tree.unflatten(jax.tree.structure(out), cotangents))

        return value_and_cotangents
    if way == "jacfwd":
        return jax.jacfwd(plain_forward_dynamics(model.system), (0, 1, 2))
    rbd, system = model.rbd, model.system
    return {
        "jacobians forward_dynamics": lambda q, v, tau: rbd.forward_dynamics_derivatives(system, q, v, tau),
        "jacobians inverse_dynamics": lambda q, v, a: rbd.inverse_dynamics_derivatives(system, q, v, a),
    }[task]


def plain_forward_dynamics(system) -> Callable:
    """The articulated-body recursion without the rules around it: what JAX differentiates if left alone."""
    import jax

    from jaxrbd.tree import aba

    def plain(q, v, tau):
        batch_of_one = jax.tree.map(lambda x: x[..., None], (system, q, v, tau))
        return aba._forward_dynamics.f(*batch_of_one, None)[..., 0]

    return plain


def inputs_of(model, task: str, states: States) -> list[np.ndarray]:
    """What the task takes: the state and, for products with a derivative, random directions."""
    way, _, base = task.rpartition(" ")
    return [*model.inputs(base, states), *directions(model.layout, way, base, states)]


def directions(layout, way: str, base: str, states: States) -> list[np.ndarray]:
    """Directions of q, v, tau (jvp) or cotangents of the result (vjp), in the contender's coordinates."""
    rng = np.random.default_rng(1)
    if way == "jvp":
        push = lambda A, x: np.einsum("nij,nj->ni", A, x)  # noqa: E731
        dq, dv, dx = neutral_directions(states)
        return [push(layout.tangent(states), dq), *(push(layout.matrix(states), x) for x in (dv, dx))]
    if way == "vjp":
        shapes = (states.q.shape, states.v.shape) if base == "step" else (states.v.shape,)
        return [rng.normal(size=shape) for shape in shapes]
    return []


def neutral_directions(states: States) -> np.ndarray:
    """Displacements of q, v and tau (or a) in the neutral layout, (3, n, nv)."""
    return np.random.default_rng(2).normal(size=(3, *states.v.shape))


def temporaries(program: str, robot: str, batch: int, **options) -> int:
    """Bytes of temporaries that XLA plans for a gradient of ours over a batch on one device.

    Programs: "vjp" of forward dynamics; "rollout", with its options, the gradient of the end state's norm
    by the start and by the gains of a damping controller, so that nothing as long as the rollout goes in or
    comes out.
    """
    import jax
    import jax.numpy as jnp

    system = _system(robot)
    f, count = {
        "vjp": lambda: (_forward_dynamics_vjp(system), 3),
        "rollout": lambda: (_rollout_gradient(system, **options), 2),
    }[program]()
    shapes = [(batch, system.nq)] + [(batch, system.nv)] * count
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(jax.vmap(f)).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def _system(robot: str):
    """`chain50` or `arm7` of the zoo, or a robot of example-robot-data with a free base."""
    import jaxrbd as rbd

    if robot.startswith("chain"):
        return rbd.zoo.chain(int(robot.removeprefix("chain")))
    if robot == "arm7":
        return rbd.zoo.arm7()
    return rbd.load(Robot.read(find_urdf(robot)).urdf, base="free")


def _forward_dynamics_vjp(system) -> Callable:
    import jax

    import jaxrbd as rbd

    def vjp(q, v, tau, cotangent):
        out, pull = jax.vjp(lambda *state: rbd.forward_dynamics(system, *state), q, v, tau)
        return out, pull(cotangent)

    return vjp


def _rollout_gradient(system, **options) -> Callable:
    import jax
    import jax.numpy as jnp

    import jaxrbd as rbd

    def loss(q, v, gains):
        damp = lambda q, v, t: -gains * v  # noqa: E731
        integrator = rbd.SemiImplicitEuler(dt=TIMESTEP)
        path = rbd.rollout(system, rbd.State(q, v), damp, integrator, **options).value
        return jnp.sum(path.q[-1] ** 2) + jnp.sum(path.v[-1] ** 2)

    return jax.grad(loss, (0, 1, 2))
