"""Where constraints sit, and their multipliers as wrenches: Jᵀ lam by the Jacobians of both frames."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.model.shapes import pose


def test_wrenches_at_places_are_the_joint_forces_of_the_multipliers():
    sys = rbd.zoo.quadruped()
    q = rbd.random_configuration(sys, jax.random.key(1))
    feet = [n for n in sys.frame_names if n.endswith("foot")]
    frame_a, frame_b = feet[0], feet[1]
    place = pose([0.1, 0.2, -0.3], [0.3, 0.2, 0.1])
    sets = [
        con.weld(sys, frame_a, to=frame_b, offset=(place.R, place.p), q=q),
        con.connect(sys, feet[2], q=q),
        con.coupling(sys, sys.joint_names[1], sys.joint_names[2], ratio=1.0),
    ]
    lam = jnp.asarray(np.random.default_rng(0).standard_normal(10))
    both = con.combine(*sets)
    places = con.constraint_places(sys, both, q)
    wrenches = con.constraint_wrenches(sys, both, q, lam)
    assert np.isnan(places[2]).all() and not np.asarray(wrenches[2]).any()
    np.testing.assert_allclose(places[:2, 0], places[:2, 1], atol=1e-12)  # met at q

    def joint_forces(name, place, w):
        _, p = rbd.frame_pose(sys, q, name)
        J = rbd.frame_jacobian(sys, q, name)
        return J.T @ jnp.concatenate([w[:3] + jnp.cross(place - p, w[3:]), w[3:]])

    wanted = joint_forces(frame_a, places[0, 0], wrenches[0]) - joint_forces(
        frame_b, places[0, 0], wrenches[0]
    )
    wanted += joint_forces(feet[2], places[1, 0], wrenches[1])
    J = con.constraint_jacobian(sys, sets[:2], q)
    np.testing.assert_allclose(J.T @ lam[:9], wanted, atol=1e-11)
    np.testing.assert_allclose(wrenches[1, :3], 0, atol=1e-12)  # a point holds no torque about itself


def test_multipliers_of_another_size_are_refused():
    sys = rbd.zoo.quadruped()
    with pytest.raises(rbd.ArgumentError, match=r"lam has shape \(2,\), expected \(3,\)"):
        con.constraint_wrenches(sys, con.connect(sys, "FL_foot", q=sys.q0), sys.q0, jnp.zeros(2))
