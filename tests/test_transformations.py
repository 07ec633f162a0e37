"""jit and vmap of the dynamics: equal numbers in any batch; derivatives are in test_gradients.py."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robots

import jaxrbd as rbd
from jaxrbd.engine.gather import gather

TYPES = ("revolute", "prismatic", "universal", "cylindrical", "planar", "spherical", "free")
FUNCTIONS = {
    "forward_dynamics": lambda sys, q, v, a, tau, f: rbd.forward_dynamics(sys, q, v, tau, f),
    "inverse_dynamics": lambda sys, q, v, a, tau, f: rbd.inverse_dynamics(sys, q, v, a, f),
    "mass_matrix": lambda sys, q, v, a, tau, f: rbd.mass_matrix(sys, q),
    "mass_matrix_inverse": lambda sys, q, v, a, tau, f: rbd.mass_matrix_inverse(sys, q),
    "mass_matrix_solve": lambda sys, q, v, a, tau, f: rbd.mass_matrix_solve(sys, q, tau),
    "coriolis_matrix": lambda sys, q, v, a, tau, f: rbd.coriolis_matrix(sys, q, v),
    "centroidal_momentum": lambda sys, q, v, a, tau, f: rbd.centroidal_momentum(sys, q, v),
    "integrate": lambda sys, q, v, a, tau, f: rbd.integrate(sys, q, v),
}
RTOL = 1e-11


@pytest.fixture(scope="module")
def sys():
    return rbd.zoo.random_tree(9, seed=4, joint_types=TYPES)


def states(sys, count, seed=0):
    return [jnp.asarray(x) for x in robots.random_states(sys, count, seed)]


def assert_same(ours, expected, rtol=RTOL):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(ours, expected, rtol=0, atol=rtol * scale)


@pytest.mark.parametrize("name", ["forward_dynamics", "inverse_dynamics", "mass_matrix"])
def test_batch_size_does_not_matter(sys, name):
    """1009 states at once (a prime, so that no chunk divides it), 300, 3, 1, and one without vmap."""
    batch, function = (
        [jnp.tile(x, (4, *[1] * (x.ndim - 1)))[:1009] for x in states(sys, 300)],
        FUNCTIONS[name],
    )
    one = lambda *x: function(sys, *x)  # noqa: E731
    many = jax.jit(jax.vmap(lambda *x: function(sys, *x)))
    full = many(*batch)
    assert full.shape[0] == 1009
    for count in (1, 3, 300):
        assert_same(many(*(x[:count] for x in batch)), full[:count])
    for k in (0, 150, 299, 700, 1008):
        assert_same(one(*(x[k] for x in batch)), full[k])


QUICK = ("forward_dynamics", "inverse_dynamics", "integrate")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.all_robots) for n in FUNCTIONS]
)
def test_nested_vmap_and_mixed_axes(sys, name):
    """vmap of vmap, and a batch over some arguments only."""
    batch, function = states(sys, 6), FUNCTIONS[name]
    nested = jax.jit(jax.vmap(jax.vmap(lambda *x: function(sys, *x))))
    folded = nested(*(x.reshape(2, 3, *x.shape[1:]) for x in batch))
    folded = folded.reshape(6, *folded.shape[2:])
    alone = lambda *x: function(sys, *x)  # noqa: E731
    assert_same(folded, jnp.stack([alone(*(x[k] for x in batch)) for k in range(6)]))
    q, v, a, tau, f = batch
    mixed = jax.jit(jax.vmap(lambda v: function(sys, q[0], v, a[0], tau[0], f[0]), in_axes=1, out_axes=0))
    expected = jnp.stack([alone(q[0], v[k], a[0], tau[0], f[0]) for k in (0, 5)])
    assert_same(mixed(v.T)[jnp.array([0, 5])], expected)


def test_vmap_over_systems(sys):
    """Domain randomisation: masses, gravity and placements differ from row to row."""
    factors = jnp.array([0.7, 1.0, 1.4])
    make = lambda k: sys.replace(  # noqa: E731
        mass=sys.mass * k,
        gravity=sys.gravity * k,
        joint_position=sys.joint_position * k,
        inertia=sys.inertia * k,
    )
    batch = states(sys, 3)
    for name in ("forward_dynamics", "inverse_dynamics"):
        function = FUNCTIONS[name]
        together = jax.jit(jax.vmap(lambda k, *x, f=function: f(make(k), *x)))(factors, *batch)
        systems = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(make(k) for k in factors))
        stacked = jax.jit(jax.vmap(function))(systems, *batch)
        alone = jnp.stack([function(make(k), *(x[i] for x in batch)) for i, k in enumerate(factors)])
        assert_same(together, alone)
        assert_same(stacked, alone)


def test_the_program_does_not_grow_with_the_links():
    """A chain of a hundred links lowers to as many operations as one of ten, so it compiles as fast."""

    def operations(links):
        sys = rbd.zoo.chain(links)
        x = jax.ShapeDtypeStruct((64, links), sys.dtype)
        lowered = jax.jit(jax.vmap(lambda *x: rbd.forward_dynamics(sys, *x))).lower(x, x, x)
        return len(lowered.as_text().splitlines())

    assert operations(100) == operations(10)


def test_sums_over_a_batch_count_every_state_once():
    """The gradient by a shared System is the sum over the states, padded (256) or in overlapping chunks."""
    sys = rbd.zoo.double_pendulum()
    state = np.random.default_rng(0).standard_normal((3, 1000, sys.nv))
    cost = lambda s, q, v, a: jnp.sum(jnp.sin(rbd.inverse_dynamics(s, q, v, a)))  # noqa: E731
    single = jax.jit(jax.vmap(jax.grad(cost), (None, 0, 0, 0)))(sys, *state)
    total = jax.jit(jax.grad(lambda s, *x: jnp.sum(jax.vmap(cost, (None, 0, 0, 0))(s, *x))))
    for size in (256, 1000):
        shared = total(sys, *state[:, :size])
        total_of_each = jax.tree.map(lambda x, n=size: jnp.sum(x[:n], 0), single)
        chex.assert_trees_all_close(shared, total_of_each, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "index",
    [
        [0, 1, 2],
        [4, 4, 0, 1, 2, 4],
        [8, 8, 9, 9],
        [0, 3, 6],
        [2, 2],
        [3, 1, 0],
        [0, 2, 1, 5, 0],
        [[1, 2], [0, 3]],
    ],
    ids=str,
)
def test_rows_are_read_like_an_index(index):
    """Runs, steps and repeats are slices, everything else a gather; the transpose sums what was read."""
    x, index = np.arange(20.0).reshape(10, 2) ** 2, np.array(index)
    np.testing.assert_array_equal(gather(x, index), x[index])
    np.testing.assert_array_equal(gather(x.T, index, 1), x.T[:, index])
    weight = np.random.default_rng(0).standard_normal(x[index].shape)
    expected = np.zeros_like(x)
    np.add.at(expected, index, weight)
    np.testing.assert_allclose(jax.grad(lambda y: jnp.sum(weight * gather(y, index)))(x), expected)
