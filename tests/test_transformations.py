"""jit, vmap, grad and jvp of the dynamics: equal numbers in any batch, derivatives as finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robots

import jaxrbd as rbd

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
    one = jax.jit(lambda *x: function(sys, *x))
    many = jax.jit(jax.vmap(lambda *x: function(sys, *x)))
    full = many(*batch)
    assert full.shape[0] == 1009
    for count in (1, 3, 300):
        assert_same(many(*(x[:count] for x in batch)), full[:count])
    for k in (0, 150, 299, 700, 1008):
        assert_same(one(*(x[k] for x in batch)), full[k])
    assert_same(function(sys, *(x[7] for x in batch)), full[7])


QUICK = ("forward_dynamics", "inverse_dynamics", "integrate")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.all_robots) for n in FUNCTIONS]
)
def test_nested_vmap_and_mixed_axes(sys, name):
    """vmap of vmap, and a batch over some arguments only."""
    batch, function = states(sys, 6), FUNCTIONS[name]
    flat = jax.jit(jax.vmap(lambda *x: function(sys, *x)))(*batch)
    nested = jax.jit(jax.vmap(jax.vmap(lambda *x: function(sys, *x))))
    folded = nested(*(x.reshape(2, 3, *x.shape[1:]) for x in batch))
    assert_same(folded.reshape(flat.shape), flat)
    q, v, a, tau, f = batch
    mixed = jax.jit(jax.vmap(lambda v: function(sys, q[0], v, a[0], tau[0], f[0]), in_axes=1, out_axes=0))
    expected = jnp.stack(
        [jax.jit(lambda *x: function(sys, *x))(q[0], v[k], a[0], tau[0], f[0]) for k in (0, 5)]
    )
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


def perturb(sys, q, v, a, tau, f, mass, direction, t):
    """The arguments moved by t along a direction (q on the manifold)."""
    dq, dv, da, dtau, df, dmass = direction
    arguments = (v + t * dv, a + t * da, tau + t * dtau, f + t * df)
    return sys.replace(mass=mass + t * dmass), rbd.integrate(sys, q, t * dq), *arguments


PARTS = ["q", "v", "a", "tau", "f_ext", "mass"]


@pytest.mark.parametrize("name", ["forward_dynamics", "inverse_dynamics"])
def test_derivatives_match_finite_differences(sys, name):
    """Directional derivatives in q, v, a, tau, f_ext and the masses, forward and reverse mode."""
    state, function = [x[0] for x in states(sys, 1, seed=5)], FUNCTIONS[name]
    rng = np.random.default_rng(6)
    sizes = [(sys.nv,)] * 4 + [(sys.nb, 6), sys.mass.shape]
    full = [jnp.asarray(rng.standard_normal(size)) for size in sizes]
    full[-1] = full[-1] * 0.2
    weight = jnp.asarray(rng.standard_normal(sys.nv))

    @jax.jit
    def along(t, mask):
        direction = [m * d for m, d in zip(mask, full, strict=True)]
        return function(*perturb(sys, *state, sys.mass, direction, t))

    @jax.jit
    def slopes(mask):
        forward = jax.jvp(lambda t: along(t, mask), (0.0,), (1.0,))[1]
        reverse = jax.grad(lambda t: weight @ along(t, mask))(0.0)
        return forward, reverse

    for k, part in enumerate(PARTS):
        mask = jnp.zeros(len(PARTS)).at[k].set(1.0)
        h = 1e-3  # five-point differences: error of order h^4
        numbers = [along(m * h, mask) for m in (-2, -1, 1, 2)]
        expected = (numbers[0] - 8 * numbers[1] + 8 * numbers[2] - numbers[3]) / (12 * h)
        forward, reverse = slopes(mask)
        unused = {"forward_dynamics": "a", "inverse_dynamics": "tau"}[name]
        if part == unused:
            assert not np.any(forward)
            continue
        scale = max(float(np.abs(expected).max()), 1e-3)
        np.testing.assert_allclose(forward, expected, rtol=0, atol=1e-6 * scale, err_msg=part)
        np.testing.assert_allclose(reverse, weight @ forward, rtol=1e-9, atol=1e-9 * scale, err_msg=part)


def test_gradient_with_respect_to_a_system(sys):
    """jax.grad over the System itself gives every leaf the gradient that finite differences give."""
    q, v, _, tau, _ = (x[0] for x in states(sys, 1, seed=8))
    cost = jax.jit(lambda s: jnp.sum(rbd.forward_dynamics(s, q, v, tau) ** 2))
    gradient = jax.grad(cost)(sys)
    leaves = {"mass", "com", "inertia", "joint_position", "axis", "gravity", "armature"}
    for leaf in leaves:
        assert np.all(np.isfinite(getattr(gradient, leaf))), leaf
    rng = np.random.default_rng(9)
    for leaf in sorted(leaves - {"axis"}):
        value = getattr(sys, leaf)
        step = 1e-5 * jnp.asarray(rng.standard_normal(value.shape))
        up, down = (cost(sys.replace(**{leaf: value + sign * step})) for sign in (1, -1))
        slope = float(jnp.sum(getattr(gradient, leaf) * step))
        scale = float(jnp.linalg.norm(getattr(gradient, leaf)) * jnp.linalg.norm(step))
        assert slope == pytest.approx(float(up - down) / 2, abs=1e-4 * scale), leaf


def test_derivatives_at_rest_and_straight(sys):
    """Zero velocity, neutral pose, zero force: derivatives are finite and agree in both modes."""
    q, zero = rbd.neutral(sys), jnp.zeros(sys.nv)
    for function in (rbd.forward_dynamics, rbd.inverse_dynamics):
        for argument in range(3):
            forward = jax.jit(jax.jacfwd(lambda *x, f=function: f(sys, *x), argument))(q, zero, zero)
            reverse = jax.jit(jax.jacrev(lambda *x, f=function: f(sys, *x), argument))(q, zero, zero)
            assert np.all(np.isfinite(forward))
            assert_same(reverse, forward, 1e-9)


def test_second_derivatives(sys):
    """Hessian of a cost of forward dynamics, forward over reverse, against differences of the gradient."""
    q, v, _, tau, _ = (x[0] for x in states(sys, 1, seed=10))
    cost = lambda v, tau: jnp.sum(rbd.forward_dynamics(sys, q, v, tau) ** 2)  # noqa: E731
    gradient = jax.jit(jax.grad(cost))
    direction = states(sys, 1, seed=11)[1][0]
    curvature = jax.jit(lambda d: jax.jvp(lambda x: gradient(x, tau), (v,), (d,))[1])(direction)
    h = 1e-4
    expected = (gradient(v + h * direction, tau) - gradient(v - h * direction, tau)) / (2 * h)
    assert_same(curvature, expected, 1e-6)
