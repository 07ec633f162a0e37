"""Sparse factorisation of the KKT matrix, rows first and freedoms last ([PROX], the Cholesky pages).

    K = [[-1/mu, J], [Jᵀ, M]] = Lᵀ D L,
    K^-1 = [[-Lambda, Lambda J M^-1], [.., M^-1 - M^-1 Jᵀ Lambda J M^-1]],   Lambda = (J M^-1 Jᵀ + 1/mu)^-1.

Freedoms are eliminated from the leaves to the root, then the rows, so that the factor of M stands in the
lower right corner of L and that of -(J M^-1 Jᵀ + 1/mu) in the upper left.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.data import Constraints, ConstraintsLike, Entry, as_constraints, check_constraints
from jaxrbd.constraints.delassus import penalty, still_task
from jaxrbd.constraints.joint_space import constraint_pattern, matrices
from jaxrbd.model.system import System, Topology, pytree, static
from jaxrbd.tree import sparse
from jaxrbd.tree.arguments import arguments, array, require_mass
from jaxrbd.tree.cholesky import mass_pattern
from jaxrbd.tree.kernels import kernel
from jaxrbd.typing import Array, ArrayLike


@pytree
class Form:
    """What is known of a factor before its numbers: it stands where kernels expect a System."""

    topology: Topology = static()
    entries: tuple[Entry, ...] = static()
    pattern: sparse.Pattern = static()
    dtype: np.dtype = static()

    @property
    def nv(self) -> int:
        return self.topology.nv

    @property
    def rows(self) -> int:
        return sum(e.rows for e in self.entries)


@pytree
class KKTFactor:
    """Lᵀ D L of the KKT matrix at one configuration; made by `kkt_factor`. Batches like an array."""

    form: Form
    L: jax.Array  # (m + nv, depth) rows of L along their paths, D where they end

    def solve(self, f: ArrayLike, c: ArrayLike) -> tuple[Array, Array]:
        """(a, lam) with M a = f + Jᵀ lam and J a + lam/mu = c. O((n + m) depth)."""
        form = self.form
        f = array("f", f, (form.nv,), f"(nv,) = ({form.nv},)", form.dtype)
        c = array("c", c, (form.rows,), f"(m,) = ({form.rows},)", form.dtype)
        return tuple(_solve(form, self.L, f, c))

    def mass_matrix_inverse(self) -> Array:
        """M^-1, (nv, nv), from the part of the factor that belongs to the freedoms."""
        return _mass_inverse(self.form, self.L)

    def delassus_inverse(self) -> Array:
        """Lambda_mu = (J M^-1 Jᵀ + 1/mu)^-1, (m, m), from the part that belongs to the rows."""
        return _delassus_inverse(self.form, self.L)

    def weighted_pseudoinverse(self) -> Array:
        """Lambda_mu J M^-1, (m, nv): multipliers per joint force; transposed, motions per row."""
        return _columns(self.form, self.L)[0]

    def constrained_inverse(self) -> Array:
        """M^-1 - M^-1 Jᵀ Lambda_mu J M^-1, (nv, nv): accelerations per joint force under the rows."""
        return _columns(self.form, self.L)[1]


def kkt_factor(sys: System, constraints: ConstraintsLike, q: ArrayLike, mu: ArrayLike = 1e6) -> KKTFactor:
    """[[-1/mu, J], [Jᵀ, M]] = Lᵀ D L at the configuration q: O((n + m) depth²), with fill.

    [PROX], the Cholesky pages, whose mu is ours inverted: here it is a penalty as in [CABA], and row r is
    damped by 1 / (mu weight_r). D has m negative and nv positive entries.
    """
    (q,) = arguments(sys, q=q)
    con = as_constraints(constraints)
    require_mass(sys, "kkt_factor")
    check_constraints(sys, con)
    form = Form(sys.topology, con.entries, pattern_of(sys, con), np.dtype(sys.dtype))
    return KKTFactor(form, _factor(sys, con, q, penalty(mu, "kkt_factor", q.dtype)))


def pattern_of(sys: System, con: Constraints) -> sparse.Pattern:
    """The elimination tree of rows first, then freedoms."""
    J = constraint_pattern(sys, con)
    return sparse.pattern_of(np.block([[np.eye(len(J), dtype=bool), J], [J.T, mass_pattern(sys.topology)]]))


def _shape(sys, con, *_):
    pattern = pattern_of(sys, con)
    return pattern.ancestors.shape


@kernel(_shape)
def _factor(sys: System, con: Constraints, q, mu):
    task = still_task(sys, con, q, mu)
    M, J = matrices(task)
    damping = 1 / jnp.broadcast_to(task.R, task.c.shape)
    corner = jnp.asarray(-np.eye(con.rows)[:, :, None], q.dtype) * damping[:, None]
    K = jnp.concatenate(
        [jnp.concatenate([corner, J], 1), jnp.concatenate([jnp.swapaxes(J, 0, 1), M], 1)],
    )
    pattern = pattern_of(sys, con)
    return sparse.factor(pattern, sparse.store(pattern, K))


@kernel(lambda form, *_: [(form.nv,), (form.rows,)])
def _solve(form: Form, L, f, c):
    x = sparse.solve(form.pattern, L, jnp.concatenate([c, f]))
    return [x[form.rows :], -x[: form.rows]]


@kernel(lambda form, L: (form.nv, form.nv))
def _mass_inverse(form: Form, L):
    m, n = form.rows, form.nv
    y = sparse.solve_transposed(form.pattern, L, _units(m + n, m, n, L))
    y = y / sparse.diagonal(form.pattern, L)[:, None]
    return sparse.solve_lower(form.pattern, L, y.at[:m].set(0))[m:]


@kernel(lambda form, L: (form.rows, form.rows))
def _delassus_inverse(form: Form, L):
    m = form.rows
    pattern = form.pattern.first(m)
    return -sparse.solve(pattern, L[:m, : pattern.ancestors.shape[1]], _units(m, 0, m, L))


@kernel(lambda form, L: [(form.rows, form.nv), (form.nv, form.nv)])
def _columns(form: Form, L):
    m, n = form.rows, form.nv
    x = sparse.solve(form.pattern, L, _units(m + n, m, n, L))
    return [x[:m], x[m:]]


def _units(size: int, first: int, count: int, like):
    """Unit vectors first, first + 1, ... as columns: (size, count, B)."""
    eye = jnp.asarray(np.eye(size)[:, first : first + count, None], like.dtype)
    return jnp.broadcast_to(eye, eye.shape[:2] + like.shape[-1:])
