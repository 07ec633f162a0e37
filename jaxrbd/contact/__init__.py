"""Contacts, limits and dry friction of a mechanism as one dual problem ([LOOPS] V)."""

from jaxrbd.contact.contacts import Contacts, OnPlane, contacts, on_plane
from jaxrbd.contact.mechanism import ContactStats, Stabilisation
from jaxrbd.contact.pooled import Pooled, as_pooled, pooled
from jaxrbd.contact.shapes import BetweenShapes, between_shapes
from jaxrbd.contact.softening import CFM, Soft, Softening

__all__ = [
    "CFM",
    "BetweenShapes",
    "ContactStats",
    "Contacts",
    "OnPlane",
    "Pooled",
    "Soft",
    "Softening",
    "Stabilisation",
    "as_pooled",
    "between_shapes",
    "contacts",
    "on_plane",
    "pooled",
]
