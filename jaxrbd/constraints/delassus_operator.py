"""J M^-1 Jᵀ without the matrix: products and damped solves in O(n + m), from articulated inertias."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.acting import Acting, row_forces
from jaxrbd.constraints.along_links import OnLinks, along_links
from jaxrbd.constraints.balance import Unbalanced, no_accelerations, row_accelerations
from jaxrbd.constraints.data import Constraints, ConstraintsLike, Entry, as_constraints, check_constraints
from jaxrbd.constraints.delassus import penalty, penalty_of_rows, still_task
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.rows import table_of
from jaxrbd.constraints.supporting import Problem
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, Topology, pytree, static
from jaxrbd.tree.arguments import arguments, array, require_mass
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.spatial import ZERO3, Force
from jaxrbd.typing import Array, ArrayLike


class Factors(NamedTuple):
    """Links, rows, and the articulated inertias of M and of M + JᵀRJ."""

    prob: Problem
    rows: Acting
    R: Any  # (m, B)
    plain: art.Factor
    soft: art.Factor


@pytree
class Form:
    """What is known of an operator before its numbers: it stands where kernels expect a System."""

    topology: Topology = static()
    entries: tuple[Entry, ...] = static()
    dtype: np.dtype = static()

    @property
    def rows(self) -> int:
        return sum(e.rows for e in self.entries)


@pytree
class DelassusOperator:
    """J M^-1 Jᵀ at one configuration; made by `delassus_operator`. Batches like an array."""

    form: Form
    numbers: list[jax.Array]

    @property
    def shape(self) -> tuple[int, int]:
        return self.form.rows, self.form.rows

    def apply(self, x: ArrayLike) -> Array:
        """J M^-1 Jᵀ x: accelerations of the rows under forces x, (m,). One sweep in, one out: O(n + m)."""
        return _apply(self.form, self.numbers, self._rows(x))

    def solve(self, x: ArrayLike, refinements: int = 1) -> Array:
        """(J M^-1 Jᵀ + 1/mu)^-1 x: [CABA] Eq. 40 as one iteration of `ConstrainedABA`, O(n + m).

        Eq. 40 alone loses digits as mu grows; each refinement solves for what is missing.
        """
        if not isinstance(refinements, int) or refinements < 0:
            raise ArgumentError(f"solve: refinements is {refinements!r}, expected 0, 1, 2, ...")
        return _solver(refinements)(self.form, self.numbers, self._rows(x))

    def _rows(self, x):
        m = self.form.rows
        return array("x", x, (m,), f"(m,) = ({m},)", self.form.dtype)


def delassus_operator(
    sys: System, constraints: ConstraintsLike, q: ArrayLike, mu: ArrayLike = 1e6
) -> DelassusOperator:
    """J M^-1 Jᵀ and (J M^-1 Jᵀ + 1/mu)^-1 at q as functions, factored once: O(n + m).

    [CABA] Algorithms 1 and 2 on rows at rest. mu is a penalty as in [CABA]; row r is damped by
    1 / (mu weight_r). Rows between two bodies are kept open up to where they close (`articulated`).
    """
    (q,) = arguments(sys, q=q)
    con = as_constraints(constraints)
    require_mass(sys, "delassus_operator")
    check_constraints(sys, con)
    form = Form(sys.topology, con.entries, np.dtype(sys.dtype))
    return DelassusOperator(form, _factors(sys, con, q, penalty(mu, "delassus_operator", q.dtype)))


def make(sys: System, con: Constraints, q, mu) -> Factors:
    task = still_task(sys, con, q, mu)
    on, R = along_links(task), penalty_of_rows(task)
    plain, soft = art.factor(without_rows(on), R), art.factor(on, R)
    return Factors(on.prob._replace(tau=None, p=None, tau0=None), on.rows, R, plain, soft)


def without_rows(on: OnLinks) -> OnLinks:
    """The same links without rows on them."""
    free = np.zeros_like(on.plan.on_one_body)
    return on._replace(plan=replace(on.plan, width=0, close=on.plan.close[:, :0], on_one_body=free))


_layouts: dict[tuple, tuple] = {}  # by form: (shapes of the numbers, tree, leaves that are no numbers)


def _shapes(sys: System, con: Constraints, q, mu):
    key = (sys.topology, con.entries, np.dtype(sys.dtype))
    if key not in _layouts:
        one = lambda x: jax.ShapeDtypeStruct(x.shape + (1,), x.dtype)  # noqa: E731
        seen: list = []

        def run(*args):
            leaves, treedef = jax.tree.flatten(make(*args))
            seen[:] = [treedef, [x if isinstance(x, int) else None for x in leaves]]
            return [x for x in leaves if not isinstance(x, int)]

        found = jax.eval_shape(run, *jax.tree.map(one, (sys, con, q, mu)))
        _layouts[key] = ([x.shape[:-1] for x in found], *seen)
    return _layouts[key][0]


@kernel(_shapes)
def _factors(sys: System, con: Constraints, q, mu):
    return [x for x in jax.tree.leaves(make(sys, con, q, mu)) if not isinstance(x, int)]


def _restored(form: Form, numbers) -> tuple[OnLinks, Factors]:
    _, treedef, constants = _layouts[form.topology, form.entries, form.dtype]
    it = iter(numbers)
    factors = jax.tree.unflatten(treedef, [next(it) if x is None else x for x in constants])
    like = factors.prob.H.A.xx
    zero = lambda n: jnp.zeros((n,) + like.shape[1:], like.dtype)  # noqa: E731
    force = lambda n: jax.tree.map(lambda _: zero(n), Force(ZERO3, ZERO3))  # noqa: E731
    plan = plan_of(form.topology, form.entries)
    NS, nroots = plan.support.size, plan.support.nroots
    prob = factors.prob._replace(p=force(NS + nroots), tau=zero(NS) if NS else None, tau0=force(nroots))
    return OnLinks(plan, table_of(form.topology, form.entries), prob, None, factors.rows), factors


def product(on: OnLinks, factors: Factors, lam):
    """J M^-1 Jᵀ lam."""
    f, joints, roots = row_forces(on.plan, on.table, on.rows, lam)
    tau0 = on.prob.tau0
    if roots is not None:
        tau0 = Force(
            tau0.ang._replace(**{k: roots[:, i] for i, k in enumerate("xyz")}),
            tau0.lin._replace(**{k: roots[:, 3 + i] for i, k in enumerate("xyz")}),
        )
    forces = Unbalanced(jax.tree.map(jnp.negative, f), on.prob.tau if joints is None else joints, tau0)
    a, _ = art.solve(without_rows(on), factors.plain, forces, None)
    return row_accelerations(on, a)


@kernel(lambda form, *_: (form.rows,))
def _apply(form: Form, numbers, x):
    return product(*_restored(form, numbers), x)


@lru_cache(maxsize=16)
def _solver(refinements: int):
    def run(form: Form, numbers, b):
        on, factors = _restored(form, numbers)
        R, still = factors.R, no_accelerations(on)
        once = lambda c: art.correct(on, factors.soft, R, still, jnp.zeros_like(c), c)[1]  # noqa: E731

        lam = once(b)
        for _ in range(refinements):
            lam = lam + once(b - product(on, factors, lam) - lam / R)
        return lam

    return kernel(lambda form, *_: (form.rows,))(run)
