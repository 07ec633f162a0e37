"""The kinds of constraints, one file each. Every function gives a `Constraints` of one entry."""

from jaxrbd.constraints.kinds.coupling import coupling
from jaxrbd.constraints.kinds.distance import distance
from jaxrbd.constraints.kinds.frames import connect, hinge, hold, weld
from jaxrbd.constraints.kinds.function import function, velocity_function
from jaxrbd.constraints.kinds.linear import linear
from jaxrbd.constraints.kinds.of_model import of_model
from jaxrbd.constraints.kinds.plane import point_on_plane
from jaxrbd.constraints.kinds.rolling import rolling
from jaxrbd.constraints.kinds.velocity import velocity_rows
