"""Collision: signed distances and places of contact between the shapes of a System."""

from jaxrbd.collision.distances import Distances, Touches, distances, overlapping, touches
from jaxrbd.collision.heightfield import Grid
from jaxrbd.collision.hulls import convex_hull
from jaxrbd.collision.kinds import KINDS, PAIRS, touch
from jaxrbd.collision.shapes import Hull, Placed, Touch
from jaxrbd.collision.table import Pairs, pairs
