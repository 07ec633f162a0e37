"""Arguments of `step`, `rollout` and `linearize`, checked while tracing, and the problem that they pose."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrbd.constraints import Projection
from jaxrbd.constraints.data import Constraints, as_constraints
from jaxrbd.contact.contacts import Contacts
from jaxrbd.contact.pooled import Pooled
from jaxrbd.errors import ArgumentError
from jaxrbd.forces import as_force, check_controls
from jaxrbd.integrators.contract import State, StepProblem
from jaxrbd.integrators.drift import FROM_DRIFT
from jaxrbd.integrators.explicit import SemiImplicitEuler
from jaxrbd.model.system import System
from jaxrbd.solution import Solution
from jaxrbd.tree.arguments import arguments


def read_state(sys: System, state) -> State:
    """The State, its q and v checked."""
    if isinstance(state, Solution) and hasattr(state.value, "q"):
        raise ArgumentError(
            "state is a Solution, expected the State in it. Write sol.value; the last one of a rollout is "
            "jax.tree.map(lambda x: x[-1], path.value)."
        )
    if not (hasattr(state, "q") and hasattr(state, "v")):
        raise ArgumentError(
            f"state is a {type(state).__name__}, expected a State. Write rbd.State(q, v), or "
            "rbd.State.at_rest(sys) for the neutral configuration at rest."
        )
    q, v = arguments(sys, q=state.q, v=state.v)
    return State(q, v, getattr(state, "memory", None))


def is_integrator(x) -> bool:
    return hasattr(x, "step") and hasattr(x, "dt")


def check_integrator(integrator):
    """The integrator, or the default one."""
    if integrator is None:
        return SemiImplicitEuler(dt=1e-3)
    if isinstance(integrator, type):
        raise ArgumentError(
            f"integrator is the class {integrator.__name__}, expected an object with a time step. "
            f"Write {integrator.__name__}(dt=1e-3)."
        )
    if isinstance(integrator, Constraints):
        raise ArgumentError("integrator is Constraints, expected an integrator. Write constraints=...")
    if not is_integrator(integrator):
        raise ArgumentError(
            f"integrator is {integrator!r}, expected an object such as SemiImplicitEuler(dt=1e-3), "
            "or another with dt and step(problem, state)."
        )
    return integrator


def pose(
    sys: System,
    integrator,
    u,
    tau,
    f_ext,
    constraints,
    contacts,
    solver,
    projection: Projection | None,
    t,
) -> StepProblem:
    """The StepProblem of these arguments, for an integrator that takes all of them into account."""
    arguments(sys)
    if constraints is not None:
        constraints = as_constraints(constraints)
        if "constraints" not in getattr(integrator, "accepts", ()):
            raise ArgumentError(
                f"constraints are given, but {type(integrator).__name__} does not say that it keeps them. "
                'Use rbd.SemiImplicitEuler or rbd.RK4, or give it accepts = ("constraints",) if it does.'
            )
    elif solver is not None or projection not in (None, FROM_DRIFT):
        what = "solver" if solver is not None else "projection"
        raise ArgumentError(
            f"{what} is given, but no constraints for it. Pass constraints=, or leave it out."
        )
    contacts = read_contacts(integrator, contacts)
    if not (projection is None or isinstance(projection, Projection)):
        raise ArgumentError(f"projection is {projection!r}, expected rbd.Projection(...) or None.")
    tau = as_force("tau", tau, f"(nv,) = ({sys.nv},)", (sys.nv,), sys.dtype)
    f_ext = as_force("f_ext", f_ext, f"(nb, 6) = ({sys.nb}, 6)", (sys.nb, 6), sys.dtype)
    t = jnp.asarray(t, sys.dtype)
    return StepProblem(sys, read_controls(sys, u), tau, f_ext, constraints, solver, projection, t, contacts)


def read_contacts(integrator, contacts):
    """None, Contacts, or a callable pytree (sys, q) -> Contacts."""
    if contacts is None:
        return None
    if "contacts" not in getattr(integrator, "accepts", ()):
        raise ArgumentError(
            f"contacts are given, but {type(integrator).__name__} has no impulses for them. Use "
            "integrator=rbd.HardContact(dt=...)."
        )
    if isinstance(contacts, (Contacts, Pooled)):
        return contacts
    if isinstance(contacts, type) or not callable(contacts):
        raise ArgumentError(
            f"contacts is {contacts!r:.60}, expected a function (sys, q) -> Contacts such as "
            "rbd.contact.on_plane(...), or rbd.contact.contacts(...)."
        )
    return contacts if jax.tree.leaves(contacts) != [contacts] else jax.tree_util.Partial(contacts)


def read_controls(sys: System, u):
    """Controls of one step: None or checked numbers."""
    refuse_integrator("u", u)
    if callable(u):
        raise ArgumentError(
            "u is a function, expected numbers. Pass its value, or the function as controls of `rollout`."
        )
    return None if u is None else check_controls(sys, u)


def refuse_integrator(name: str, u) -> None:
    if is_integrator(u) or (isinstance(u, type) and hasattr(u, "step")):
        kind = u.__name__ if isinstance(u, type) else type(u).__name__
        raise ArgumentError(f"{name} is {kind}, an integrator. Write integrator={kind}(dt=...).")
