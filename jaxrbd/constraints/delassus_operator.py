"""J M^-1 Jᵀ as an operator: products and damped solves, with the matrix or, in O(n + m), without it.

Whoever solves for forces along rows (contact solvers, for one) needs no more of a mechanism than `Delassus`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints import articulated as art
from jaxrbd.constraints.acting import Acting, row_forces
from jaxrbd.constraints.along_links import OnLinks, along_links
from jaxrbd.constraints.balance import Unbalanced, no_accelerations, row_accelerations
from jaxrbd.constraints.clustered import cluster_delassus
from jaxrbd.constraints.data import Constraints, ConstraintsLike, Entry
from jaxrbd.constraints.delassus import MATRICES, checked, penalty, penalty_of_rows, still_task
from jaxrbd.constraints.plan import plan_of
from jaxrbd.constraints.rows import table_of
from jaxrbd.constraints.supporting import Problem
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, Topology, pytree, static
from jaxrbd.tree.arguments import arguments, array
from jaxrbd.tree.kernels import kernel
from jaxrbd.tree.spatial import ZERO3, Force
from jaxrbd.typing import Array, ArrayLike


class Delassus(Protocol):
    """J M^-1 Jᵀ at one configuration, and (J M^-1 Jᵀ + 1/mu)^-1; row r is damped by 1 / (mu weight_r)."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def apply(self, x: ArrayLike) -> Array:
        """J M^-1 Jᵀ x: accelerations of the rows under forces x, (m,)."""
        ...

    def solve(self, x: ArrayLike) -> Array:
        """(J M^-1 Jᵀ + 1/mu)^-1 x, (m,)."""
        ...

    def damped(self, damping: ArrayLike) -> Delassus:
        """The same operator, which solves with J M^-1 Jᵀ + diag(damping); damping (m,), positive."""
        ...

    def diagonal(self) -> Array:
        """Of J M^-1 Jᵀ, (m,): the mobility of every row."""
        ...

    def dense(self) -> Array:
        """J M^-1 Jᵀ, (m, m)."""
        ...


def delassus_operator(
    sys: System, constraints: ConstraintsLike, q: ArrayLike, mu: ArrayLike = 1e6, algorithm: str = "caba"
) -> Delassus:
    """J M^-1 Jᵀ and (J M^-1 Jᵀ + 1/mu)^-1 at q as functions, factored once.

    mu is a penalty as in [CABA]; row r is damped by 1 / (mu weight_r).
    "caba"  `DelassusOperator`: no matrix, O(n + m) for the factor, for every product and every solve.
    "ltl", "pv", "efpa", "pvr"  `DelassusMatrix`: the matrix by this algorithm of `delassus_matrix`, its
            damped Cholesky factor in O(m³), then O(m²) each time: better for few rows and many products.
            Systems with clusters always get one.
    """
    (q,) = arguments(sys, q=q)
    con = checked(sys, constraints, algorithm, ("caba", *MATRICES), "delassus_operator")
    mu = penalty(mu, "delassus_operator", q.dtype)
    if algorithm != "caba" or sys.topology.clusters:
        return DelassusMatrix(*_damped_matrix(algorithm)(sys, con, q, mu))
    form = Form(sys.topology, con.entries, layout_of(sys, con, q, mu), np.dtype(sys.dtype))
    return DelassusOperator(form, _factors(sys, con, q, mu), (sys, con, q))


# --- with the matrix ------------------------------------------------------------------------------------


@pytree
class DelassusMatrix:
    """A `Delassus` that keeps J M^-1 Jᵀ, (m, m), and the Cholesky factor of J M^-1 Jᵀ + 1/mu."""

    matrix: jax.Array
    factor: jax.Array  # lower

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[-2:]

    def apply(self, x: ArrayLike) -> Array:
        """J M^-1 Jᵀ x: O(m²)."""
        return self.matrix @ self._rows(x)

    def solve(self, x: ArrayLike) -> Array:
        """(J M^-1 Jᵀ + 1/mu)^-1 x: O(m²)."""
        return jax.scipy.linalg.cho_solve((self.factor, True), self._rows(x))

    def damped(self, damping: ArrayLike) -> DelassusMatrix:
        """Another Cholesky factor, O(m³)."""
        lower = jnp.linalg.cholesky(self.matrix + jnp.diag(self._rows(damping)))
        return DelassusMatrix(self.matrix, lower)

    def diagonal(self) -> Array:
        """(m,)."""
        return jnp.diagonal(self.matrix)

    def dense(self) -> Array:
        """(m, m)."""
        return self.matrix

    def _rows(self, x):
        return rows_of(x, self.shape[0], self.matrix.dtype)


def rows_of(x: ArrayLike, m: int, dtype) -> Array:
    return array("x", x, (m,), f"(m,) = ({m},)", dtype)


@lru_cache(maxsize=16)
def _damped_matrix(algorithm: str):
    def run(sys: System, con: Constraints, q, mu):
        task = still_task(sys, con, q, mu)
        D = cluster_delassus(sys, con, q) if sys.topology.clusters else MATRICES[algorithm](task)
        eye = jnp.asarray(np.eye(con.rows)[:, :, None], D.dtype)
        damped = jnp.moveaxis(D + eye / penalty_of_rows(task), -1, 0)
        return [D, jnp.moveaxis(jnp.linalg.cholesky(damped), 0, -1)]

    return kernel(lambda sys, con, *_: [(con.rows, con.rows)] * 2)(run)


# --- without it -----------------------------------------------------------------------------------------


class Factors(NamedTuple):
    """Links, rows, and the articulated inertias of M and of M + JᵀRJ."""

    prob: Problem
    rows: Acting
    R: Any  # (m, B)
    plain: art.Factor
    soft: art.Factor


class Layout(NamedTuple):
    """How `Factors` are put together from a list of arrays."""

    shapes: tuple[tuple[int, ...], ...]  # of the arrays, for one state
    treedef: Any
    constants: tuple[int | None, ...]  # leaves that are no arrays; None for those that are


@pytree
class Form:
    """What is known of an operator before its numbers: it stands where kernels expect a System."""

    topology: Topology = static()
    entries: tuple[Entry, ...] = static()
    layout: Layout = static()
    dtype: np.dtype = static()

    @property
    def rows(self) -> int:
        return sum(e.rows for e in self.entries)


@pytree
class DelassusOperator:
    """A `Delassus` without the matrix: [CABA] Algorithms 1 and 2 on rows at rest.

    Rows between two bodies are kept open up to where they close (`open_rows`).
    """

    form: Form
    numbers: list[jax.Array]
    made_from: tuple[System, Constraints, jax.Array]  # for other dampings

    @property
    def shape(self) -> tuple[int, int]:
        return self.form.rows, self.form.rows

    def apply(self, x: ArrayLike) -> Array:
        """J M^-1 Jᵀ x: accelerations of the rows under forces x, (m,). One sweep in, one out: O(n + m)."""
        return _apply(self.form, self.numbers, rows_of(x, self.form.rows, self.form.dtype))

    def solve(self, x: ArrayLike, refinements: int = 1) -> Array:
        """(J M^-1 Jᵀ + 1/mu)^-1 x: [CABA] Eq. 40 as one iteration of `ConstrainedABA`, O(n + m).

        Eq. 40 alone loses digits as mu grows; each refinement solves for what is missing.
        """
        if not isinstance(refinements, int) or refinements < 0:
            raise ArgumentError(f"solve: refinements is {refinements!r}, expected 0, 1, 2, ...")
        return _solver(refinements)(self.form, self.numbers, rows_of(x, self.form.rows, self.form.dtype))

    def damped(self, damping: ArrayLike) -> DelassusOperator:
        """Factors made anew, O(n + m); no matrix."""
        sys, con, q = self.made_from
        weight = 1 / rows_of(damping, self.form.rows, self.form.dtype)
        return cast(DelassusOperator, delassus_operator(sys, con.replace(weight=weight), q, 1.0))

    def diagonal(self) -> Array:
        """(m,): a product per row, O(m (n + m)), without keeping the matrix."""
        eye = jnp.eye(self.form.rows, dtype=self.form.dtype)
        return jax.lax.map(lambda e: e @ self.apply(e), eye)

    def dense(self) -> Array:
        """(m, m): a product per row, O(m (n + m))."""
        return jax.vmap(self.apply)(jnp.eye(self.form.rows, dtype=self.form.dtype))


def make(sys: System, con: Constraints, q, mu) -> Factors:
    task = still_task(sys, con, q, mu)
    on, R = along_links(task), penalty_of_rows(task)
    plain, soft = art.factor(without_rows(on), R), art.factor(on, R)
    return Factors(on.prob._replace(tau=None, p=None, tau0=None), on.rows, R, plain, soft)


def without_rows(on: OnLinks) -> OnLinks:
    """The same links without rows on them."""
    free = np.zeros_like(on.plan.on_one_body)
    return on._replace(plan=replace(on.plan, width=0, close=on.plan.close[:, :0], on_one_body=free))


def layout_of(sys: System, con: Constraints, q, mu) -> Layout:
    """By the shapes of what an operator is made from."""
    leaves, treedef = jax.tree.flatten((sys, con, q, mu))
    return _layout(treedef, tuple((x.shape, np.dtype(x.dtype)) for x in leaves))


@lru_cache(maxsize=256)
def _layout(treedef, leaves) -> Layout:
    tree: list = []

    def run(*args):
        leaves, treedef = jax.tree.flatten(make(*args))
        tree[:] = [treedef, tuple(x if isinstance(x, int) else None for x in leaves)]
        return [x for x in leaves if not isinstance(x, int)]

    one = [jax.ShapeDtypeStruct((*shape, 1), dtype) for shape, dtype in leaves]
    found = jax.eval_shape(run, *jax.tree.unflatten(treedef, one))
    return Layout(tuple(x.shape[:-1] for x in found), *tree)


def _shapes(sys: System, con: Constraints, q, mu):
    return list(layout_of(sys, con, q, mu).shapes)


@kernel(_shapes)
def _factors(sys: System, con: Constraints, q, mu):
    return [x for x in jax.tree.leaves(make(sys, con, q, mu)) if not isinstance(x, int)]


def _restored(form: Form, numbers) -> tuple[OnLinks, Factors]:
    layout, it = form.layout, iter(numbers)
    factors = jax.tree.unflatten(layout.treedef, [next(it) if x is None else x for x in layout.constants])
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
