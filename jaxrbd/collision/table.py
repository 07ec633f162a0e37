"""Which shapes of a System may touch: a static table, grouped by kinds of pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from jaxrbd.collision.broad import bounding_sphere
from jaxrbd.collision.heightfield import Grid, window_of
from jaxrbd.collision.hulls import hull_sizes, mesh_hull, padded
from jaxrbd.collision.kinds import KINDS, PAIRS
from jaxrbd.collision.shapes import Hull, Placed
from jaxrbd.errors import ArgumentError
from jaxrbd.model.names import find
from jaxrbd.model.system import System, check_system, pytree, static
from jaxrbd.model.topology import Topology
from jaxrbd.typing import Numbers

NamePair = tuple[str, str]
_MOST = 100_000  # pairs of one table


@pytree
class Group:
    """Pairs of the same two kinds; shapes by their index in the System."""

    kinds: tuple[str, str] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    data_a: Hull | Grid | None = None  # stacked over pairs
    data_b: Hull | Grid | None = None

    @property
    def count(self) -> int:
        """Places that each pair gives."""
        return PAIRS[self.kinds][1]


@pytree
class Pairs:
    """A pair table; make it with `pairs`. `names` are those of the shapes of each pair, group after group."""

    groups: tuple[Group, ...] = field()
    names: tuple[NamePair, ...] = static()

    def __len__(self) -> int:
        return len(self.names)

    def shapes(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of shapes (A, B) of every pair."""
        join = lambda side: np.array([i for g in self.groups for i in getattr(g, side)], int)  # noqa: E731
        return join("a"), join("b")


def pairs(
    sys: System,
    *,
    include: Iterable[NamePair] = (),
    exclude: Iterable[NamePair | str] = (),
    self_collision: bool = True,
    max_hull_vertices: int = 32,
    heights: Mapping[str, Numbers] | None = None,
) -> Pairs:
    """The pairs of collision shapes of a System that may touch.

    Left out: shapes that do not move in each other, bodies joined by a joint (but not the world's), bodies
    that a loop joins, what the model excludes or its masks keep apart, and `exclude`: pairs of link names, or
    single ones for all that a link is part of.
    `include` puts pairs of links back. `self_collision=False` keeps only pairs with shapes of the world.
    Meshes become convex hulls of at most `max_hull_vertices` vertices. `heights` has the elevations of
    heightfields by the shape's name: (rows, columns), rows along y, as shares of the field's top.
    """
    check_system(sys, "pairs", single=False)
    table = table_of(sys.topology, include, exclude, self_collision, max_hull_vertices, heights or {})
    return _with_windows(sys, table) if heights else table


def table_of(
    t: Topology,
    include: Iterable[NamePair] = (),
    exclude: Iterable[NamePair | str] = (),
    self_collision: bool = True,
    max_hull_vertices: int = 32,
    heights: Mapping[str, Numbers] | None = None,
) -> Pairs:
    """`pairs` of a topology, which is all that a table depends on."""
    named = {frozenset(x) for x in t.contact_pairs}
    index = [
        i for i, role in enumerate(t.shape_roles) if role == "collision" or any(i in pair for pair in named)
    ]
    wanted, banned, alone = _chosen(t, include, exclude)
    banned |= {frozenset(x) for x in t.exclusions} - wanted
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for k, i in enumerate(index):
        for j in index[k + 1 :]:
            links = frozenset((t.shape_frames[i], t.shape_frames[j]))
            asked = links in wanted or frozenset((i, j)) in named
            if links in banned or links & alone or not _may_touch(t, i, j, asked, self_collision):
                continue
            a, b = sorted((i, j), key=lambda s: KINDS.index(_kind(t, s)))
            kinds = (_kind(t, a), _kind(t, b))
            if kinds not in PAIRS and kinds[::-1] in PAIRS:
                (a, b), kinds = (b, a), kinds[::-1]
            if kinds not in PAIRS:
                links_named = (_link(t, a), _link(t, b))
                raise ArgumentError(
                    f"pairs: {shape_name(t, a)!r} against {shape_name(t, b)!r}: {' and '.join(kinds)} "
                    f"are not supported. Pass exclude=[{links_named}], or use other shapes."
                )
            found.setdefault(kinds, []).append((a, b))
    if sum(map(len, found.values())) > _MOST:
        raise ArgumentError(f"pairs: more than {_MOST} pairs. Use fewer collision shapes, or exclude links.")
    groups = []
    for kinds in sorted(found, key=lambda x: (KINDS.index(x[0]), KINDS.index(x[1]))):
        first, second = zip(*found[kinds])
        data = [
            _data(t, side, kind, max_hull_vertices, heights or {})
            for side, kind in zip((first, second), kinds)
        ]
        groups.append(Group(kinds, first, second, *data))
    names = tuple((shape_name(t, i), shape_name(t, j)) for g in groups for i, j in zip(g.a, g.b))
    return Pairs(tuple(groups), names)


def shape_name(t: Topology, i: int) -> str:
    """The shape's own name, or one made of its link's, its kind and its number there."""
    if t.shape_names[i]:
        return t.shape_names[i]
    number = sum(t.shape_frames[k] == t.shape_frames[i] for k in range(i))
    return f"{_link(t, i)}/{t.shape_kinds[i]}{number}"


def body_of(t: Topology, shape: int) -> int:
    """The moving body of a shape, -1 for the world."""
    frame = t.shape_frames[shape]
    return t.frame_bodies[frame] if frame >= 0 else -1


def _link(t: Topology, i: int) -> str:
    return t.frame_names[t.shape_frames[i]] if t.shape_frames[i] >= 0 else "world"


def _kind(t: Topology, i: int) -> str:
    return "convex" if t.shape_kinds[i] == "mesh" else t.shape_kinds[i]


def _chosen(t: Topology, include: Iterable[NamePair], exclude: Iterable[NamePair | str]):
    links = t.frame_names[: t.link_count]
    at = lambda name: -1 if name == "world" and name not in links else find(links, name, "link")  # noqa: E731

    def pair(value, what: str) -> frozenset[int]:
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
            raise ArgumentError(f"pairs: {what} has {value!r:.80}, expected pairs of link names.")
        return frozenset(map(at, value))

    exclude = list(exclude)
    alone = {at(x) for x in exclude if isinstance(x, str)}
    return (
        {pair(x, "include") for x in include},
        {pair(x, "exclude") for x in exclude if not isinstance(x, str)},
        alone,
    )


def _may_touch(t: Topology, i: int, j: int, wanted: bool, self_collision: bool) -> bool:
    a, b = body_of(t, i), body_of(t, j)
    if a == b:
        return False
    if wanted:
        return True
    (type_a, affinity_a), (type_b, affinity_b) = (
        t.shape_masks[k] if t.shape_masks else (1, 1) for k in (i, j)
    )
    if not (type_a & affinity_b or type_b & affinity_a):
        return False
    return min(a, b) < 0 or (self_collision and not _joined(t, a, b))


def _joined(t: Topology, a: int, b: int) -> bool:
    """Whether a joint or a loop joins two moving bodies."""
    if _above(t, a) == b or _above(t, b) == a:
        return True
    ends = (
        {t.frame_bodies[f] if f >= 0 else -1 for f in frames}
        for frames, kind, on in zip(t.loop_frames, t.loop_kinds, t.loop_active)
        if kind not in ("coupling", "distance") and on
    )
    return {a, b} in ends


def _above(t: Topology, body: int) -> int:
    """The parent; links in between that only stand for further joints of the same body do not count."""
    name, parent = t.body_names[body], t.parents[body]
    while parent >= 0 and t.body_names[parent].startswith(f"{name}/"):
        parent = t.parents[parent]
    return parent


def _data(
    t: Topology, shapes: Sequence[int], kind: str, limit: int, heights: Mapping[str, Numbers]
) -> Hull | Grid | None:
    """Hulls of the shapes, padded to one size and stacked; elevations of fields, all of one size."""
    if kind == "heightfield":
        fields = [_elevation(t, i, heights) for i in shapes]
        if len({z.shape for z in fields}) > 1:
            raise ArgumentError(
                "pairs: heightfields differ in their numbers of rows or columns. Resample them."
            )
        return Grid(np.stack(fields), np.zeros((len(fields), *(n - 1 for n in fields[0].shape))))
    if kind != "convex":
        return None
    made = []
    for i in shapes:
        written, path = t.shape_files[i]
        if not path:
            raise ArgumentError(
                f"pairs: the mesh {written!r} of {_link(t, i)!r} was not found. Load the model with "
                f"package_dirs=, or pass exclude=[{_link(t, i)!r}]."
            )
        made.append(mesh_hull(path, limit))
    sizes = tuple(max(x) for x in zip(*map(hull_sizes, made)))
    return Hull(*(np.stack(x) for x in zip(*(padded(h, sizes) for h in made))))


def _elevation(t: Topology, i: int, heights: Mapping[str, Numbers]) -> np.ndarray:
    name = shape_name(t, i)
    if name not in heights:
        raise ArgumentError(
            f"pairs: the elevations of heightfield {name!r} are not known. Pass heights={{{name!r}: array}}, "
            f"or exclude=[{_link(t, i)!r}]."
        )
    z = np.asarray(heights[name], float)
    if z.ndim != 2 or min(z.shape) < 2 or not np.isfinite(z).all():
        raise ArgumentError(
            f"pairs: heights of {name!r} have shape {z.shape}, expected (rows, columns), at least 2 of each, "
            "all finite. Fill gaps first."
        )
    return z


def _with_windows(sys: System, table: Pairs) -> Pairs:
    """How many cells of a field a shape can be over: by the sizes that the System has now, a quarter more."""
    groups = []
    for g in table.groups:
        if isinstance(g.data_b, Grid):
            size = np.asarray(sys.shape_size, float)
            need = []
            for k, (a, b) in enumerate(zip(g.a, g.b)):
                hull = None if g.data_a is None else Hull(*(np.asarray(x[k]) for x in g.data_a))
                x = Placed(np.eye(3), np.zeros(3), size[a], hull)
                radius = 1.25 * float(bounding_sphere(g.kinds[0], x)[1])
                need.append(window_of(g.data_b.elevation[k], size[b], radius))
            cells = tuple(int(n) for n in np.max(need, 0))
            g = replace(g, data_b=g.data_b._replace(window=np.zeros((len(g.a), *cells))))
        groups.append(g)
    return replace(table, groups=tuple(groups))
