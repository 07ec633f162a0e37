"""Contacts, limits and dry friction of a mechanism as one dual problem ([LOOPS] V)."""

from jaxrbd.contact.contacts import Contacts, OnPlane, contacts, on_plane
from jaxrbd.contact.mechanism import ContactStats, Stabilisation

__all__ = ["ContactStats", "Contacts", "OnPlane", "Stabilisation", "contacts", "on_plane"]
