"""Every tree algorithm against Pinocchio, on the robots of example-robot-data, fixed and floating, float64.

Compiling dominates: all quantities are one jitted function, mapped over random states, and several robots are
one System.
"""

from __future__ import annotations

import itertools
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import robots

import jaxrbd as rbd

STATES = 4
TOLERANCE = 1e-9
EPS = np.finfo(np.float64).eps
BASES = ["fixed", "free"]
FOREST = 10  # robots side by side
PR2 = ("pr2_description/urdf/pr2.urdf", "free")
FULL = [
    pytest.param(*case, marks=() if case == PR2 else pytest.mark.all_robots)
    for case in itertools.product(robots.REPRESENTATIVE, BASES)
]


def chosen_frame(sys):
    """A link that a fixed joint merged into another, far from the root; else the last body; else any."""
    merged = [name for name in sys.frame_names if name not in sys.body_names]
    return (merged[-1:] or list(sys.body_names[-1:]) or list(sys.frame_names[-1:]))[0]


def scales(reference, sys):
    """A natural size per quantity, so that a value that happens to vanish is not compared with itself."""
    torque = np.abs(reference["inverse_dynamics"]).max(initial=0.0)
    weight = 9.81 * float(rbd.total_mass(sys))
    floors = {"gravity_force": torque, "bias_force": torque, "coriolis": torque, "potential_energy": weight}
    return {key: floors.get(key, 1.0 if " " in key or key == "center_of_mass" else 0.0) for key in reference}


def disagreements(ours, reference, sys, forward_tolerance):
    """A line per quantity whose relative error exceeds its tolerance."""
    floors = scales(reference, sys)
    lines = []
    for key in ours:
        expected = reference[key]
        tolerance = forward_tolerance if key in ("forward_dynamics", "mass_matrix_inverse") else TOLERANCE
        error = robots.relative_error(ours[key], expected, floors[key])
        if not error <= tolerance:
            lines.append(f"{key}: relative error {error:.2e} > {tolerance:.1e}")
    return lines


def stack(rows):
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def compare(urdf, base, everything):
    """Quantities that differ from Pinocchio's on random states; ABA as far as the condition number allows."""
    sys = robots.load(urdf, base)
    states = robots.random_states(sys, STATES, seed=sys.nv)
    frames = [chosen_frame(sys)]
    forward = urdf not in robots.SINGULAR
    reference = references_of(sys, urdf, base, states, frames)
    everything = everything and sys.nb > 0  # a centre of mass must exist
    evaluate = robots.quantities(sys, frames, forward=forward, everything=everything)
    ours = evaluate(*map(jnp.asarray, states))
    return disagreements(ours, reference, sys, forward_tolerance(reference, sys, forward))


def references_of(sys, urdf, base, states, frames):
    twin = robots.Twin(sys, robots.pinocchio_model(urdf, base))
    return stack([twin.reference(*state, frames=frames) for state in zip(*states, strict=True)])


def forward_tolerance(reference, sys, forward=True):
    worst = np.linalg.cond(reference["mass_matrix"]).max() if sys.nv and forward else 1.0
    return max(TOLERANCE, 10 * EPS * worst)


# --- forests: robots side by side in one System, so that one program serves them all ------------------------


def forests(config):
    """(urdf, base) in groups; the two robots whose mass matrix is singular stand alone."""
    cases = robots.REPRESENTATIVE_CASES
    if config.getoption("--all-robots"):
        cases = [(urdf, base) for urdf in robots.URDFS for base in BASES]
    singular = [[case] for case in cases if case[0] in robots.SINGULAR]
    cases = [case for case in cases if case[0] not in robots.SINGULAR]
    return [cases[k : k + FOREST] for k in range(0, len(cases), FOREST)] + singular


def pytest_generate_tests(metafunc):
    if "forest" in metafunc.fixturenames:
        found = forests(metafunc.config)
        names = [f"{robots.short_name(group[0][0])}-and-{len(group) - 1}" for group in found]
        metafunc.parametrize("forest", found, ids=names)


def test_kinematics_and_dynamics(forest, request):
    """Poses, Jacobians and J-dot v, RNEA and ABA with external forces, CRBA of robots side by side.

    Robots of a forest do not know of each other: outside of its own block every matrix is zero. Three robots
    of each forest have Jacobians, each in another reference frame; with --all-robots all of them.
    """
    parts = [robots.load(urdf, base) for urdf, base in forest]
    names = [str(k) for k in range(len(parts))]
    sys = rbd.combine(*parts, names=names)
    assert sys.body_names == tuple(f"{n}/{b}" for n, part in zip(names, parts) for b in part.body_names)
    states = [robots.random_states(part, STATES, seed=part.nv) for part in parts]
    joined = [np.concatenate(x, 1) for x in zip(*states, strict=True)]
    every = request.config.getoption("--all-robots")
    chosen = {n: chosen_frame(part) for n, part in zip(names, parts)} if every else {}
    for n, part in [(n, p) for n, p in zip(names, parts) if p.nv][:3]:
        chosen[n] = chosen_frame(part)
    frames = {n: list(robots.REFERENCE_FRAMES)[int(n) % 3] for n in chosen}
    forward = forest[0][0] not in robots.SINGULAR
    evaluate = robots.forest_quantities(sys, {n: f"{n}/{f}" for n, f in chosen.items()}, frames, forward)
    ours = {key: np.asarray(x) for key, x in evaluate(*map(jnp.asarray, joined)).items()}
    body, dof = 0, 0
    for n, part, (urdf, base), state in zip(names, parts, forest, states, strict=True):
        bodies, dofs = slice(body, body + part.nb), slice(dof, dof + part.nv)
        body, dof = body + part.nb, dof + part.nv
        outside = np.delete(ours["mass_matrix"][:, dofs], np.arange(sys.nv)[dofs], 2)
        assert not outside.any(), f"{urdf}: coupled to other robots"
        mine = {"poses": ours["poses"][:, bodies], "mass_matrix": ours["mass_matrix"][:, dofs, dofs]}
        mine |= {key: ours[key][:, dofs] for key in ("inverse_dynamics", "forward_dynamics") if key in ours}
        if n in chosen:
            for what in ("pose", f"jacobian {frames[n]}", f"jacobian_dot_v {frames[n]}"):
                x = ours[f"{n} {what}"]
                if what.startswith("jacobian "):
                    assert not np.delete(x, np.arange(sys.nv)[dofs], 2).any()
                    x = x[:, :, dofs]
                mine[f"{chosen[n]} {what}"] = x
        reference = references_of(part, urdf, base, state, [chosen[n]] if n in chosen else [])
        lines = disagreements(mine, reference, part, forward_tolerance(reference, part, forward))
        assert not lines, f"{urdf}, {base}: {lines}"


@pytest.mark.parametrize(("urdf_full", "base_full"), FULL, ids=lambda x: robots.short_name(x))
def test_every_quantity(urdf_full, base_full):
    """Also gravity, bias and Coriolis forces, velocities, momentum, energies, regressor, M^-1."""
    assert not compare(urdf_full, base_full, everything=True)


@pytest.mark.parametrize("any_base", BASES)
@pytest.mark.parametrize("any_urdf", robots.URDFS, ids=robots.short_name)
def test_every_robot_loads_with_the_same_tree(any_urdf, any_base):
    """All links are frames, those on fixed joints included; joints, parents and masses are Pinocchio's."""
    sys = robots.load(any_urdf, any_base)
    model = robots.Twin(sys, robots.pinocchio_model(any_urdf, any_base)).model
    links = [f.name for f in model.frames if f.type == robots.pin.FrameType.BODY and f.name != "universe"]
    assert set(links) <= set(sys.frame_names)
    assert set(sys.body_names) <= set(links)
    assert float(rbd.total_mass(sys)) == pytest.approx(robots.pin.computeTotalMass(model), rel=1e-12)
    parent_names = {model.names[i]: model.names[model.parents[i]] for i in range(1, model.njoints)}
    for name, parent in zip(sys.joint_names, sys.parents, strict=True):
        assert parent_names[name] == ("universe" if parent < 0 else sys.joint_names[parent])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("urdf_singular", robots.SINGULAR, ids=robots.short_name)
def test_singular_mass_matrix_is_reported(urdf_singular, base):
    """Massless moving links: a warning names them on loading, forward dynamics refuses when traced."""
    with pytest.warns(rbd.errors.ModelWarning, match="mass"):
        sys = rbd.load(
            str(robots.ROBOTS / urdf_singular), base=base, package_dirs=[str(robots.SHARE)], strict=False
        )
    q, v = rbd.neutral(sys), jnp.zeros(sys.nv)
    with pytest.raises(rbd.errors.RbdError, match="mass"):
        rbd.forward_dynamics(sys, q, v, v)


@pytest.mark.parametrize("urdf_singular", robots.SINGULAR, ids=robots.short_name)
def test_strict_refuses_massless_links(urdf_singular):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(rbd.errors.ModelError, match="mass"):
            rbd.load(str(robots.ROBOTS / urdf_singular), package_dirs=[str(robots.SHARE)], strict=True)


def test_a_robot_that_cannot_move():
    """No joints, a fixed base: empty results, no momentum, and no centre of mass, which is said."""
    sys = robots.load("hector_description/robots/quadrotor_base.urdf", "fixed")
    nothing = jnp.zeros(0)
    assert rbd.forward_dynamics(sys, nothing, nothing, nothing).shape == (0,)
    assert rbd.mass_matrix(sys, nothing).shape == (0, 0)
    assert not rbd.centroidal_momentum(sys, nothing, nothing).any()
    assert rbd.energy(sys, nothing, nothing) == 0
    with pytest.raises(rbd.ArgumentError, match="no moving body, so no centre of mass.*base='free'"):
        rbd.center_of_mass(sys, nothing)


def test_all_robots_are_listed():
    """68 of the 69 files parse; the representative ones are among them."""
    assert len(robots.URDFS) == 68
    assert set(robots.REPRESENTATIVE) | set(robots.SINGULAR) <= set(robots.URDFS)
