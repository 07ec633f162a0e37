"""A Topology from untrusted values: types, lengths, indices and the order of the tree are all checked."""

from __future__ import annotations

from dataclasses import fields

from jaxrbd.errors import ModelError
from jaxrbd.joints import TYPES
from jaxrbd.model.checks import SHAPE_SIZES
from jaxrbd.model.system import Topology
from jaxrbd.model.validate import LOOP_KINDS

_LATE = (
    "linear_names",
    "linear_joints",
    "followers",
    "functions",
    "clusters",
    "independent",
    "dependent",
    "folded",
    "shape_masks",
    "exclusions",
    "contact_pairs",
)
_TYPES = {f.name: str(f.type) for f in fields(Topology)}  # as written there, for example "tuple[str, ...]"


def check_topology(values, where: str) -> Topology:
    """The Topology with these fields (JSON values), or a ModelError."""

    def need(condition: bool, cause: str) -> None:
        if not condition:
            raise ModelError(f"{where}, topology", cause, "Save the System again, or copy the file anew.")

    need(isinstance(values, dict), "the fields are not those of a Topology")
    values = {key: [] for key in _LATE} | values  # files from before have no such relations
    need(set(values) == set(_TYPES), "the fields are not those of a Topology")
    need(values["functions"] == [], "it has relations written as functions, which no file can hold")
    t = Topology(**{key: _converted(value, _TYPES[key], f"{where}, {key}") for key, value in values.items()})

    def indices(what: str, items, count: int, least: int = 0) -> None:
        need(all(least <= i < count for i in items), f"{what} points outside")

    nb, nf, nj = t.nb, len(t.frame_names), len(t.joint_names)
    need(nj == nb == len(t.joint_types) == len(t.parents) == len(t.body_frames), "bodies and joints differ")
    unknown = sorted(set(t.joint_types) - set(TYPES) | set(t.joint_types) & {"fixed"})
    if unknown:
        remedy = "Register joint types of your own with rbd.joints.register before loading."
        raise ModelError(f"{where}, topology", f"an unknown joint type {unknown[0]!r:.40}", remedy)
    need(all(-1 <= p < i for i, p in enumerate(t.parents)), "a parent does not come before its child")
    need(0 <= t.link_count <= nf == len(t.frame_bodies), "frames and their bodies differ")
    indices("frame_bodies", t.frame_bodies, nb, -1)
    indices("body_frames", t.body_frames, t.link_count)
    own = zip(t.body_frames, t.body_names)
    need(
        all(t.frame_names[f] == name and t.frame_bodies[f] == i for i, (f, name) in enumerate(own)),
        "a body's frame is another one's",
    )
    for names in (t.joint_names, t.frame_names):
        need(len(set(names)) == len(names) and "" not in names, "a name is empty or not unique")
    shapes = (t.shape_frames, t.shape_kinds, t.shape_names, t.shape_roles, t.shape_files)
    need(len({len(x) for x in shapes}) == 1, "the lists of shapes differ in length")
    need(set(t.shape_kinds) <= set(SHAPE_SIZES), "an unknown kind of shape")
    need(len(t.shape_masks) in (0, len(t.shape_kinds)), "the lists of shapes differ in length")
    for pair in t.exclusions:
        indices("exclusions", pair, t.link_count, -1)
    for pair in t.contact_pairs:
        indices("contact_pairs", pair, len(t.shape_kinds))
    indices("shape_frames", t.shape_frames, t.link_count, -1)
    single = {i for i, kind in enumerate(t.joint_types) if TYPES[kind].nv == 1}
    need(all(a in single and b in single and a != b for a, b in t.mimics), "mimics points outside")
    need(len({a for a, _ in t.mimics}) == len(t.mimics), "a joint mimics two others")
    need(
        len(t.actuator_names) == len(t.actuator_kinds) == len(t.actuator_dofs),
        "the lists of actuators differ in length",
    )
    indices("actuator_dofs", t.actuator_dofs, t.nv)
    loops = (t.loop_names, t.loop_kinds, t.loop_frames, t.loop_active)
    need(len({len(x) for x in loops}) == 1, "the lists of loops differ in length")
    need(set(t.loop_kinds) <= set(LOOP_KINDS), "an unknown kind of loop")
    for kind, ends in zip(t.loop_kinds, t.loop_frames):
        indices("loop_frames", ends, nj if kind == "coupling" else t.link_count, -1)
    need(len(t.linear_names) == len(t.linear_joints), "the lists of couplings differ in length")
    need(all(set(joints) <= single for joints in t.linear_joints), "a coupling points outside")
    indices("followers", t.followers, nj)
    _check_clusters(t, need)
    need(set(t.massless) <= set(t.body_names), "massless names an unknown body")
    need(t.row_width is None or 1 <= t.row_width <= 2**20, "row_width is out of range")
    return t


def _check_clusters(t: Topology, need) -> None:
    bodies = [b for cluster in t.clusters for b in cluster]
    need(len(set(bodies)) == len(bodies) and all(0 <= b < t.nb for b in bodies), "a cluster points outside")
    for cluster in t.clusters:
        above = {t.parents[b] for b in cluster} - set(cluster)
        need(list(cluster) == sorted(cluster) and len(above) == 1, "a cluster hangs on several bodies")
    dofs, inside = t.independent, set(bodies)
    need(
        list(dofs) == sorted(set(dofs)) and all(0 <= d < t.v_starts[-1] for d in dofs), "independent is wrong"
    )
    free = {d for b in range(t.nb) if b not in inside for d in range(t.v_starts[b], t.v_starts[b + 1])}
    need(not t.clusters or free <= set(dofs), "a joint outside of clusters is not independent")
    need(
        set(t.dependent) <= inside and set(t.folded) <= inside - set(t.parents),
        "dependent or folded is wrong",
    )
    need(all(TYPES[t.joint_types[b]].sizes == (1, 1) for b in t.dependent + t.folded), "dependent is wrong")


def _converted(value, kind: str, where: str):
    """JSON lists as the (nested) tuples that the annotation `kind` asks for."""
    if kind.startswith("tuple["):
        inner = kind[len("tuple[") : -1]
        if inner.endswith(", ..."):
            if isinstance(value, list):
                return tuple(_converted(x, inner[: -len(", ...")], where) for x in value)
        elif isinstance(value, list) and len(value) == len(inner.split(", ")):
            return tuple(_converted(x, k, where) for x, k in zip(value, inner.split(", ")))
    elif " | None" in kind and value is None:
        return None
    elif type(value) is {"str": str, "int": int, "bool": bool}[kind.removesuffix(" | None")]:
        return value
    raise ModelError(where, f"expected {kind}, got {value!r:.60}", "Save the System again.")
