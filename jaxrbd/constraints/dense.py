"""The reference: the dual problem by eigenvalues of J M^-1 Jᵀ."""

from __future__ import annotations

import jax.numpy as jnp

from jaxrbd.constraints.joint_space import on_mass_factor
from jaxrbd.constraints.method import Found, Settings
from jaxrbd.constraints.solver import Proximal
from jaxrbd.constraints.task import Task
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import pytree


@pytree
class Dense(Proximal):
    """The reference: the dual problem by eigenvalues of J M^-1 Jᵀ, O(n³ + m³). It needs no mu."""

    def __post_init__(self):
        super().__post_init__()
        if self.gradients != "implicit":
            raise ArgumentError("Dense: eigenvectors of repeated rows have no derivative. Use 'implicit'.")

    def solve(self, task: Task, settings: Settings) -> Found:
        """Eigenvalues of rows scaled to one, hardly damped."""
        damping = 4 * len(task.c) * jnp.finfo(task.c.dtype).eps

        def by_eigenvalues(delassus, R):
            scale = jnp.sqrt(damping * R).T
            scaled = scale[:, :, None] * jnp.moveaxis(delassus, -1, 0) * scale[:, None]
            w, U = jnp.linalg.eigh(0.5 * (scaled + jnp.swapaxes(scaled, 1, 2)))
            inverse = 1 / (jnp.maximum(w, 0) + damping)

            def apply(r):
                along = jnp.swapaxes(U, 1, 2) @ (scale * r.T)[..., None]
                return (scale * (U @ (inverse[..., None] * along))[..., 0]).T

            return apply

        return on_mass_factor(task, settings, by_eigenvalues, lambda mobility, _: 1 / (damping * mobility))
