"""Methods in joint space: matrices M and J, residuals link by link, the dual problem on the factor of M."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.constraints.clustered import ClusterTask
from jaxrbd.constraints.data import Constraints
from jaxrbd.constraints.iterations import iterate
from jaxrbd.constraints.jacobian import jacobian, support
from jaxrbd.constraints.method import Found, Method, Settings
from jaxrbd.constraints.penalties import of_moving_rows
from jaxrbd.constraints.rows import table_of
from jaxrbd.constraints.task import Task, forces_of_rows, joint_forces, link_inertias
from jaxrbd.constraints.verdict import by_row
from jaxrbd.engine.gather import gather
from jaxrbd.engine.scan import outward
from jaxrbd.model.system import System
from jaxrbd.tree import kinematics as kin
from jaxrbd.tree import sparse
from jaxrbd.tree.cholesky import mass_pattern
from jaxrbd.tree.crba import mass_matrix_with
from jaxrbd.tree.nodes import nodes_of
from jaxrbd.typing import Array


def on_mass_factor(
    task: Task | ClusterTask, settings: Settings, inverse: Callable, penalty: Callable
) -> Found:
    """Methods that solve the dual problem in joint space; `inverse(delassus, R)` is their choice."""
    build, mobility = dual_method(task, inverse)
    return iterate(build, penalty(mobility, task), mobility, task.c, task.lam, task.weight, settings)


def dual_method(task: Task | ClusterTask, inverse: Callable):
    """The method for penalties R, as a function of R, and the mobilities of the rows."""
    M, J = matrices(task)
    pattern = sparse.pattern_of(inertia_pattern(task))
    H = sparse.factor(pattern, sparse.store(pattern, M))
    Y = sparse.solve_transposed(pattern, H, jnp.swapaxes(J, 0, 1))
    D = sparse.diagonal(pattern, H)
    delassus = gram(Y, 1 / D)
    mobility = of_moving_rows(diagonal(delassus), joint_mobility(J, diagonal(M)))

    def build(R):
        apply = inverse(delassus, R)

        def by(r_d, r):
            y = sparse.solve_transposed(pattern, H, r_d) / D
            dlam = apply(r - jnp.sum(Y * y[:, None], 0))
            return sparse.solve_lower(pattern, H, y + jnp.sum(Y * dlam[None], 1) / D), dlam

        return joint_space(
            J,
            correct=lambda a, lam, r, load: by(unbalanced(task, a, lam, load), r),
            first=lambda lam, r: by(unbalanced(task, None, lam), r),
        )

    return build, mobility


def joint_space(J, correct: Callable, first: Callable | None = None) -> Method:
    return Method(
        zero=jnp.zeros((J.shape[1],) + J.shape[2:], J.dtype),
        correct=correct,
        rows=lambda a: jnp.sum(J * a[None], 1),
        size=by_row,
        jacobian=lambda: J,
        first=first,
    )


def joint_mobility(J, inertias):
    """J M^-1 Jᵀ of every row as if M were diagonal, (m, B); rows that nothing moves as the quickest one."""
    d = jnp.sum(J * J / inertias[None], 1)
    return jnp.where(moving(J), d, jnp.maximum(by_row(d), jnp.finfo(d.dtype).tiny))


def moving(J):
    """Which rows of J are more than rounding, (m, B)."""
    squares = jnp.sum(J * J, 1)
    return squares > (1e3 * jnp.finfo(J.dtype).eps) ** 2 * by_row(squares)


def unbalanced(task: Task | ClusterTask, a, lam, load=None):
    """r_d = load f - M a + Jᵀ lam, (nv, B), link by link: in float32 M itself is too coarse to correct by.

    a None is zero.
    """
    if isinstance(task, ClusterTask):
        f = task.tau if load is None else task.tau * load
        f = f + jnp.sum(task.J * lam[:, None], 0)
        return f if a is None else f - jnp.sum(task.M * a[None], 1)
    sys, links = task.sys, task.moving.links
    nodes = nodes_of(sys.topology)

    def move(A, x):
        node, qdd = x
        return node.arrive(A) + node.expand(qdd)

    p, p0, joints = forces_of_rows(sys, task.con, task.x, -lam)
    if load is not None:
        task = task._replace(
            **{k: jax.tree.map(lambda y: y * load, getattr(task, k)) for k in ("p", "p0", "tau")}
        )
    tau = task.tau if joints is None else task.tau - joints
    if a is not None:
        A0 = kin.root_rows(sys, a)
        A = outward(nodes, move, (links.node, gather(a, nodes.v)), A0)
        I, I0 = link_inertias(sys, links)
        p, p0, tau = I @ A + p, I0 @ A0 + p0, tau - sys.armature * a
    if task.p is not None:
        p, p0 = p + task.p, p0 + task.p0
    return joint_forces(task._replace(p=p, p0=p0, tau=tau))


def matrices(task: Task | ClusterTask) -> tuple[Array, Array]:
    """M (nv, nv, B) and J (m, nv, B)."""
    if isinstance(task, ClusterTask):
        return task.M, task.J
    M = mass_matrix_with(task.sys, task.q, None)
    wide = lambda x: jnp.broadcast_to(x, x.shape[:-1] + task.tau.shape[-1:])  # noqa: E731
    return wide(M), dense_jacobian(task)


def inertia_pattern(task: Task | ClusterTask) -> np.ndarray:
    """Which entries of M are not zero, (nv, nv); those of clusters are not told apart."""
    if isinstance(task, ClusterTask):
        return np.ones((len(task.M),) * 2, bool)
    return mass_pattern(task.sys.topology)


def dense_jacobian(task: Task | ClusterTask):
    """J, (m, nv, B)."""
    if isinstance(task, ClusterTask):
        return task.J
    J = jacobian(task.sys, task.con, task.moving, task.x)
    return jnp.broadcast_to(J, J.shape[:-1] + task.c.shape[-1:])


def diagonal(A):
    """Of matrices (n, n, B): (n, B)."""
    return jnp.diagonal(A).T


def gram(Y, weight):
    """Yᵀ W Y summed over the first axis, (k, k, B) for Y (n, k, B): row after row, each an outer product."""
    k = Y.shape[1]
    zero = jnp.zeros((k, k) + Y.shape[2:], Y.dtype)
    step = lambda G, x: (G + x[0][:, None] * (x[0] * x[1])[None], None)  # noqa: E731
    return jax.lax.scan(step, zero, (Y, jnp.broadcast_to(weight, Y.shape[:1] + Y.shape[2:])))[0]


def constraint_pattern(sys: System, con: Constraints) -> np.ndarray:
    """Which freedoms each row touches, (m, nv)."""
    table = table_of(sys.topology, con.entries)
    a, b = support(sys.topology, con.entries)
    touches = a | b
    touches[table.joint_rows, table.joint_dofs] = True
    return touches
