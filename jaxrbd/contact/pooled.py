"""Contacts whose bodies are data: slots of a pool that any two bodies may take, with a gathered Jacobian.

    J_k = W_kᵀ (S ∘ (support of A - support of B)),   W_k = [1 0; [p_k]× 1] axes_k

S are the twists of all degrees of freedom in the world, of which A's are those on its path to the root. What
collision detection with a broad phase gives; slots that nobody took have no rows: D_ii = 1 and λ = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxrbd.contact.contacts import MASKS, Contacts, axes_of, frictions, numbers
from jaxrbd.contact.softening import CFM, Softening
from jaxrbd.errors import ArgumentError
from jaxrbd.model.system import System, Topology, pytree, static
from jaxrbd.tree.frames import forward_kinematics, freedom_twists, path_to_root
from jaxrbd.tree.manifold import integrate
from jaxrbd.tree.opening import tree_of, with_columns
from jaxrbd.typing import Array, ArrayLike


@pytree
class Pooled:
    """n slots at one state; make them with `contact.pooled`. As `Contacts`, but which bodies is a leaf, too.

    bodies   (n, 2)  integers: A and B in the order of `sys.body_names`, -1 for the world; a slot with A = B
                     is empty
    dropped  ()      contacts that found no slot, for the stats of a step
    """

    position: jax.Array
    axes: jax.Array
    gap: jax.Array
    friction: jax.Array
    restitution: jax.Array
    bodies: jax.Array
    dims: tuple[int, ...] = static()
    softening: Softening | CFM | None = None
    dropped: jax.Array | int = 0

    def __len__(self) -> int:
        return len(self.dims)

    @property
    def taken(self) -> Array:
        """(n,): which slots hold a contact."""
        return self.bodies[:, 0] != self.bodies[:, 1]


ContactsLike = Contacts | Pooled | Callable[..., Contacts | Pooled]  # what `step` takes


def pooled(
    sys: System,
    bodies: ArrayLike,
    position: ArrayLike,
    normal: ArrayLike,
    gap: ArrayLike,
    friction: ArrayLike = 0.5,
    restitution: ArrayLike = 0.0,
    dims: int | tuple[int, ...] = 3,
    softening: Softening | CFM | None = None,
    dropped: ArrayLike = 0,
) -> Pooled:
    """Contacts between bodies (n, 2), integers that may be traced, -1 for the world; normals from B to A."""
    index = jnp.asarray(bodies)
    if index.ndim != 2 or index.shape[1] != 2 or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ArgumentError(
            f"pooled: bodies are {index.dtype} of shape {index.shape}, expected integers (n, 2): A and B of "
            "every slot in the order of sys.body_names, -1 for the world."
        )
    if not isinstance(index, jax.core.Tracer) and not ((index >= -1) & (index < sys.nb)).all():
        raise ArgumentError(f"pooled: bodies are {np.asarray(index)}, expected -1 to {sys.nb - 1}.")
    n = index.shape[0]
    dims = (dims,) * n if isinstance(dims, int) else tuple(dims)
    if len(dims) != n or any(d not in MASKS for d in dims):
        raise ArgumentError(f"pooled: dims are {dims}, expected 1, 3, 4 or 6 for each of {n} contacts.")
    mu = frictions(sys, friction, dims, "pooled")
    x, along, d, mu, e = numbers(sys, n, position, normal, gap, mu, restitution, "pooled")
    return Pooled(x, jax.vmap(axes_of)(along), d, mu, e, index, dims, softening, jnp.asarray(dropped))


def as_pooled(sys: System, found: Contacts) -> Pooled:
    """Contacts with static bodies as slots of a pool."""
    of = sys.topology.frame_bodies
    bodies = [[-1 if f < 0 else of[f] for f in pair] for pair in found.frames]
    index = jnp.asarray(np.array(bodies, np.int32).reshape(-1, 2))
    return Pooled(
        found.position, found.axes, found.gap, found.friction, found.restitution, index, found.dims,
        found.softening,
    )  # fmt: skip


@lru_cache(maxsize=512)
def supports(t: Topology) -> np.ndarray:
    """(nb + 1, nv): which freedoms move a body; the last row is the world's, which is body -1."""
    return np.array([path_to_root(t, b) for b in [*range(len(t.joint_types)), -1]], float)


@lru_cache(maxsize=512)
def picked(dims: tuple[int, ...]) -> np.ndarray:
    """Rows among six directions per slot: turning about the axes, then shifting along them."""
    return np.array([6 * k + j for k, d in enumerate(dims) for j in MASKS[d]], int)


def pooled_jacobian(sys: System, q: Array, found: Pooled) -> Array:
    """J (m, nv): velocity of A in B along the slots' axes, normal last; zero where a slot is empty."""
    return _jacobian(sys, q, found.position, found.axes, found.bodies, found.dims)


def _jacobian(sys: System, q, position, axes, bodies, dims) -> Array:
    near = jax.lax.stop_gradient(jnp.mean(position, 0))  # twists there, not at an origin that may be far
    S = freedom_twists(sys, q, near)
    table = jnp.asarray(supports(tree_of(sys).topology), sys.dtype)
    moves = table[bodies[:, 0]] - table[bodies[:, 1]]
    ang, lin = S[None, :3], S[3:] + jnp.cross(S[None, :3], (position - near)[:, :, None], axis=1)
    along = lambda y: jnp.sum(axes[:, :, :, None] * y[..., :, None, :], -3)  # noqa: E731
    six = jnp.concatenate([along(jnp.broadcast_to(ang, lin.shape)), along(lin)], 1) * moves[:, None]
    return with_columns(sys, q, six.reshape(-1, six.shape[-1])[picked(dims)])


def pooled_bias(sys: System, q: Array, v: Array, found: Pooled) -> Array:
    """J̇v (m,): places fixed in A, axes in B."""
    world = lambda x, y: jnp.concatenate([x, y[None].astype(x.dtype)])  # noqa: E731

    def poses(q):
        R, p = forward_kinematics(sys, q)
        R, p = world(R, jnp.eye(3)), world(p, jnp.zeros(3))
        return R[found.bodies[:, 1]], R[found.bodies[:, 0]], p[found.bodies[:, 0]]

    R_b, R_a, p_a = poses(q)
    place = jnp.einsum("nji,nj->ni", R_a, found.position - p_a)
    turn = jnp.einsum("nji,njk->nik", R_b, found.axes)

    def velocity(t):
        now = integrate(sys, q, t * v)
        R_b, R_a, p_a = poses(now)
        at = jnp.einsum("nij,nj->ni", R_a, place) + p_a
        return _jacobian(sys, now, at, jnp.einsum("nij,njk->nik", R_b, turn), found.bodies, found.dims) @ v

    zero = jnp.zeros((), sys.dtype)
    return jax.jvp(velocity, (zero,), (jnp.ones_like(zero),))[1]
