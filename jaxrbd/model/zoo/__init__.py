"""Models in code, no files: `zoo.humanoid()` is a System, `zoo.DESCRIPTIONS["humanoid"]()` its description.

Every function takes the arguments of its description, and `dtype` and `strict` of `build`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from jaxrbd.errors import ArgumentError
from jaxrbd.model.compile import build
from jaxrbd.model.description import Description
from jaxrbd.model.names import hint
from jaxrbd.model.system import System
from jaxrbd.model.zoo import arm, families, geared_robots, legged, loops, pendulums
from jaxrbd.typing import DTypeLike

DESCRIPTIONS: dict[str, Callable[..., Description]] = {
    "chain": families.chain,
    "binary_tree": families.binary_tree,
    "random_tree": families.random_tree,
    "cart_pole": pendulums.cart_pole,
    "double_pendulum": pendulums.double_pendulum,
    "arm7": arm.arm7,
    "quadruped": legged.quadruped,
    "humanoid": legged.humanoid,
    "geared_chain": loops.geared_chain,
    "belt_chain": loops.belt_chain,
    "linkage_chain": loops.linkage_chain,
    "four_bar": loops.four_bar,
    "five_bar": loops.five_bar,
    "six_bar": loops.six_bar,
    "slider_crank": loops.slider_crank,
    "rod_leg": loops.rod_leg,
    "cassie_leg": loops.cassie_leg,
    "mini_cheetah": geared_robots.mini_cheetah,
    "mit_humanoid": geared_robots.mit_humanoid,
    "tello": geared_robots.tello,
    "jvrc1": geared_robots.jvrc1,
}


def describe(name: str, *args: Any, **kwargs: Any) -> Description:
    """Description of a zoo model by its name, e.g. describe("chain", 20)."""
    if name not in DESCRIPTIONS:
        raise ArgumentError(f"the zoo has no model {name!r}. {hint(name, DESCRIPTIONS)}")
    return DESCRIPTIONS[name](*args, **kwargs)


def _system(description: Callable[..., Description]) -> Callable[..., System]:
    """The function that builds what `description` describes; it takes `dtype` and `strict` as well."""

    def make(*args: Any, dtype: DTypeLike | None = None, strict: bool = False, **kwargs: Any) -> System:
        return build(description(*args, **kwargs), dtype=dtype, strict=strict)

    own, given = inspect.signature(make), inspect.signature(description)
    named = [own.parameters["dtype"], own.parameters["strict"]]
    update_wrapper(make, description, ("__module__", "__name__", "__qualname__", "__doc__"))
    vars(make)["__signature__"] = own.replace(parameters=[*given.parameters.values(), *named])
    return make


chain = _system(families.chain)
binary_tree = _system(families.binary_tree)
random_tree = _system(families.random_tree)
cart_pole = _system(pendulums.cart_pole)
double_pendulum = _system(pendulums.double_pendulum)
arm7 = _system(arm.arm7)
quadruped = _system(legged.quadruped)
humanoid = _system(legged.humanoid)
geared_chain = _system(loops.geared_chain)
belt_chain = _system(loops.belt_chain)
linkage_chain = _system(loops.linkage_chain)
four_bar = _system(loops.four_bar)
five_bar = _system(loops.five_bar)
six_bar = _system(loops.six_bar)
slider_crank = _system(loops.slider_crank)
rod_leg = _system(loops.rod_leg)
cassie_leg = _system(loops.cassie_leg)
mini_cheetah = _system(geared_robots.mini_cheetah)
mit_humanoid = _system(geared_robots.mit_humanoid)
tello = _system(geared_robots.tello)
jvrc1 = _system(geared_robots.jvrc1)
