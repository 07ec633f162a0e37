"""Joint types as records: what a joint's coordinates are, how they move it, how it is written to a file.

`TYPES` holds them by name; `register` adds one of your own, made of `Column`s: see `JointType`.
"""

from jaxrbd.joints.groups import SE3, SO3, Group
from jaxrbd.joints.record import PITCH, Column, Geometry, JointType, turn
from jaxrbd.joints.types import TYPES, register

__all__ = ["PITCH", "SE3", "SO3", "TYPES", "Column", "Geometry", "Group", "JointType", "register", "turn"]
