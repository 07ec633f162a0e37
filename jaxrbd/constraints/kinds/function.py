"""A user's own constraints, written in JAX: phi(q) = 0, and psi(q, v) = 0 at the level of velocities.

Rows come by automatic differentiation along the manifold, quaternions included. With q(t) = q ⊞ t v, the
path of constant velocity,

    J = d phi(q ⊞ dv) / d dv,      J v = d phi(q(t)) / dt,      J̇v = d² phi(q(t)) / dt²       at zero,

and for psi, affine in v:  J = d psi / d v,  J̇v = d psi(q(t), v) / dt. Such rows act on joints, one entry
of kappa for every freedom that the function may depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, Entry, Part
from jaxrbd.constraints.kinds.placing import Baumgarte, Options, one_entry
from jaxrbd.constraints.rows import Scene
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, find
from jaxrbd.tree.kernels import mechanism
from jaxrbd.tree.manifold import integrate, random_configuration
from jaxrbd.typing import Numbers


@dataclass(frozen=True)
class Function(Entry):
    """f(sys, q) or f(sys, q, params), one number per row; the function object itself is part of the entry."""

    f: Callable
    count: int
    dofs: tuple[int, ...]  # freedoms that the function may depend on

    @property
    def rows(self) -> int:
        return self.count

    @property
    def word(self) -> str:
        return "function"

    @property
    def joint_entries(self) -> list[tuple[int, int]]:
        return [(i, d) for i in range(self.count) for d in self.dofs]

    def fits(self, sys: System) -> bool:
        return max(self.dofs) < sys.nv

    def at(self, sys: System, params, q, v):
        """phi, J v, J̇v (rows,) and J (rows, dofs) of one state."""
        value = lambda dv: self.value(sys, params, integrate(sys, q, dv))  # noqa: E731
        speed = lambda t: jax.jvp(lambda t: value(t * v), (t,), (jnp.ones_like(t),))  # noqa: E731
        (phi, u), (_, gamma) = jax.jvp(speed, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
        return phi, u, gamma, _columns(value, jnp.zeros_like(v), self.dofs)

    def value(self, sys: System, params, *state):
        """What the user's function gives, as (rows,)."""
        out = self.f(sys, *state) if params is None else self.f(sys, *state, params)
        return jnp.asarray(out, sys.dtype).reshape(-1)

    @classmethod
    def evaluate(cls, scene: Scene, which: np.ndarray) -> Part:
        """Function after function, each written for one state and mapped over the batch."""
        found = []
        for k in which:
            e, params = scene.con.entries[k], scene.con.params[k]
            found.append(over_batch(e.at, scene.sys, params, scene.q, scene.v))
        phi, u, gamma = (jnp.concatenate(xs) for xs in list(zip(*found))[:3])
        return Part(phi, u, gamma, kappa=[J.reshape((-1,) + J.shape[2:]) for *_, J in found])


@dataclass(frozen=True)
class VelocityFunction(Function):
    """f(sys, q, v) or f(sys, q, v, params), affine in v; phi is zero."""

    @property
    def word(self) -> str:
        return "velocity function"

    def at(self, sys: System, params, q, v):
        along = lambda t: self.value(sys, params, integrate(sys, q, t * v), v)  # noqa: E731
        u, gamma = jax.jvp(along, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
        J = _columns(lambda x: self.value(sys, params, q, x), v, self.dofs)
        return jnp.zeros_like(u), u, gamma, J


def function(
    sys: System,
    phi: Callable,
    *,
    params: Any = None,
    joints: str | Sequence[str] | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """phi(sys, q) = 0 for a function of yours, written in JAX for one state: a number, or (k,) for k rows.

    With `params`, any pytree of numbers, it is phi(sys, q, params), and derivatives reach them. Use the sys
    that it is given, not one from outside, so that they reach masses and placements too (it has those that
    the equations of motion read: what else you need goes into params). `joints` names
    those that phi depends on, all if None: fewer make the articulated solvers cheaper. Options: `weight`,
    `baumgarte`, `target`, `name`, as in `weld`. Programs are compiled per function object: a lambda made
    anew in every call compiles anew.
    """
    return _own(sys, Function, phi, params, joints, Options(weight, baumgarte, target, name))


def velocity_function(
    sys: System,
    psi: Callable,
    *,
    params: Any = None,
    joints: str | Sequence[str] | None = None,
    weight: Numbers = 1.0,
    baumgarte: Baumgarte | None = None,
    target: Numbers | None = None,
    name: str | None = None,
) -> Constraints:
    """psi(sys, q, v) = 0, affine in v, as `function`: rows that need not be integrable, phi = 0.

    `constraint_velocity` gives psi itself, also where psi = J v + c has a part c(q).
    """
    return _own(sys, VelocityFunction, psi, params, joints, Options(weight, baumgarte, target, name))


def over_batch(f: Callable, *args):
    """f of one state on trees whose leaves are (..., B), or (..., 1) where the batch shares them."""
    leaves, treedef = jax.tree.flatten(args)
    size = max(x.shape[-1] for x in leaves)
    wide = [x.shape[-1] > 1 for x in leaves]
    one = lambda *xs: f(*jax.tree.unflatten(treedef, xs))  # noqa: E731
    flat = [x if w else x[..., 0] for x, w in zip(leaves, wide)]
    if size == 1:
        return jax.tree.map(lambda y: y[..., None], one(*flat))
    return jax.vmap(one, [-1 if w else None for w in wide], -1)(*flat)


def _columns(f: Callable, at, dofs: tuple[int, ...]):
    """Columns of the Jacobian of f, (rows, dofs)."""
    units = jnp.asarray(np.eye(at.shape[0])[list(dofs)], at.dtype)
    return jax.vmap(lambda e: jax.jvp(f, (at,), (e,))[1], out_axes=-1)(units)


# --- checks --------------------------------------------------------------------------------------------


def _own(sys: System, kind: type[Function], f, params, joints, options: Options) -> Constraints:
    where = "function" if kind is Function else "velocity_function"
    name = options.name or str(getattr(f, "__name__", where))
    where = f"{where} {name!r}"
    if not callable(f):
        raise ArgumentError(f"{where}: {f!r} cannot be called, expected a function of (sys, q).")
    try:
        hash(f)
    except TypeError:
        raise ArgumentError(
            f"{where}: {f!r} cannot be hashed, so that no program can be kept for it. "
            "Write a plain function and give it its numbers by params=."
        ) from None
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(_captured(f))):
        raise ArgumentError(
            f"{where}: it holds numbers from outside that are traced by jit, vmap or grad. "
            "Give them by params=, and use the System that the function is called with."
        )
    params = jax.tree.map(lambda x: jnp.asarray(x, sys.dtype), params)
    dofs = _dofs_of(sys, where, joints)
    entry = kind(name, f, _count(sys, where, kind, f, params), dofs)
    _try_out(sys, where, entry, params)
    return one_entry(sys, entry, options, params=params)


def _captured(f) -> list:
    """What a function holds from where it was written."""
    cells = getattr(f, "__closure__", None) or ()
    return [c.cell_contents for c in cells if c != CellType()]


def _dofs_of(sys: System, where: str, joints) -> tuple[int, ...]:
    if joints is None:
        return tuple(range(sys.nv))
    names = (joints,) if isinstance(joints, str) else tuple(joints)
    starts = sys.topology.v_starts
    found = {find(sys.joint_names, name, "joint") for name in names}
    if not found:
        raise ArgumentError(f"{where}: joints names none. Name those it depends on, or leave it out for all.")
    return tuple(d for i in sorted(found) for d in range(starts[i], starts[i + 1]))


def _count(sys: System, where: str, kind: type[Function], f, params) -> int:
    """How many rows, by the shape of what the function gives."""
    state = [
        jax.ShapeDtypeStruct((n,), sys.dtype) for n in ((sys.nq,) if kind is Function else (sys.nq, sys.nv))
    ]
    said = "(sys, q" + (", v" if kind is not Function else "") + (", params)" if params is not None else ")")
    try:
        out: Any = jax.eval_shape(f, mechanism(sys), *state, *([] if params is None else [params]))
    except TypeError as error:
        raise ArgumentError(f"{where}: it is called with {said}, which it does not take: {error}") from error
    if not hasattr(out, "shape") or len(out.shape) > 1 or 0 in out.shape:
        shown = getattr(out, "shape", type(out).__name__)
        raise ArgumentError(f"{where}: it gives {shown}, expected one array: a number, or (k,) for k rows.")
    return out.shape[0] if out.shape else 1


def _try_out(sys: System, where: str, entry: Function, params) -> None:
    """Look at J in two states: no entries on joints that are not named, and psi affine in v.

    Not where the numbers are traced: there is nothing to look at.
    """
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((sys, params))):
        return
    every = type(entry)(entry.name, entry.f, entry.count, tuple(range(sys.nv)))
    keys = jax.random.split(jax.random.key(0), 3)
    q = random_configuration(sys, keys[0])
    speeds = [jax.random.normal(k, (sys.nv,), sys.dtype) for k in keys[1:]]
    J, other = (np.asarray(jax.jit(every.at)(mechanism(sys), params, q, v)[-1]) for v in speeds)
    size = max(1.0, float(np.abs(J).max(initial=0, where=np.isfinite(J))))
    if isinstance(entry, VelocityFunction) and np.abs(J - other).max() > 1e-4 * size:
        raise ArgumentError(
            f"{where}: its derivative by v depends on v, expected a function that is affine in v. "
            "Only such rows are constraints; a force that depends on v goes into tau or f_ext."
        )
    missed = np.abs(J).max(0)
    missed[list(entry.dofs)] = 0
    if (missed > 1e-6 * size).any():
        starts = np.array(sys.topology.v_starts)
        joint = sys.joint_names[int(np.searchsorted(starts, int(missed.argmax()), side="right")) - 1]
        raise ArgumentError(
            f"{where}: it depends on joint {joint!r} too. Name it in joints=, or leave joints= out."
        )
