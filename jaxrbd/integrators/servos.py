"""Springs, dampers and servos at the end of a step ([LOOPS] VI, implicit joint rows):  M̂ = M + dt b + dt² k.

A force -k x - b v taken at x + dt v⁺ and v⁺ = v + dt a is -k x - b v - dt k v - (dt b + dt² k) a: what
multiplies a is armature, so all else is solved with M̂ in place of M.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrbd.forces import actuator_rates, joint_coordinates
from jaxrbd.model.system import System
from jaxrbd.tree.opening import opened
from jaxrbd.typing import Array

IMPLICIT = ("none", "dampers", "all")


class Gains(NamedTuple):
    """Per degree of freedom of the open tree: what is implicit."""

    damping: Array
    stiffness: Array


def gains(sys: System, q: Array, v: Array, u: Array | None, implicit: str) -> Gains:
    """`dampers` of the joints, or `all`: springs of the joints, position and velocity servos under u, too.

    A servo at one of its limits of force has no slope there, and none is counted, nor one that pushes away.
    """
    damping, stiffness = jnp.zeros_like(sys.damping), jnp.zeros_like(sys.stiffness)
    if implicit == "none":
        return Gains(damping, stiffness)
    damping = sys.damping
    if implicit == "all":
        tree, q_t, v_t = opened(sys, q, v)
        t = tree.topology
        stiffness = sys.stiffness * np.asarray(joint_coordinates(t) < t.nq, sys.stiffness.dtype)
        if u is not None and sys.nu:
            by_q, by_v = actuator_rates(tree, q_t, v_t, u)
            stiffness = stiffness + jnp.maximum(-by_q, 0)
            damping = damping + jnp.maximum(-by_v, 0)
    return Gains(damping, stiffness)
