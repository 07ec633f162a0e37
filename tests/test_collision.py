"""Collision: every pair of kinds against coal, by optimality, by differences, and at degenerate poses.

A normal n proves d: if a in A, b in B, a - b = d n, and no point of A is nearer along n than d, then no
direction separates them less; `collision_cases.separation` is that bound in plain NumPy.
"""

import collision_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import collision
from jaxrbd.collision.kinds import PAIRS, swapped, touch

KINDS = sorted(k for k in PAIRS if k[1] != "heightfield")
QUICK = {
    ("sphere", "cylinder"),
    ("capsule", "capsule"),
    ("capsule", "box"),
    ("box", "box"),
    ("cylinder", "box"),
    ("ellipsoid", "ellipsoid"),
    ("box", "plane"),
}
KIND_CASES = [
    pytest.param(*k, id="-".join(k), marks=() if k in QUICK else pytest.mark.all_robots) for k in KINDS
]
SMOOTH = {"cylinder", "ellipsoid"}


@pytest.fixture(scope="module")
def count(request):
    return 10_000 if request.config.getoption("--all-robots") else 300


def program(a, b):
    """(places, gradient) of a weighted sum of distance, witness points and normal, over a batch of pairs."""

    def weighed(moving, A, B, w):
        (Ra, pa, sa), (Rb, pb, sb) = moving
        found = touch(a, b, A._replace(R=Ra, p=pa, size=sa), B._replace(R=Rb, p=pb, size=sb))
        parts = (found.distance[0], *found.a[0], *found.b[0], *found.normal[0])
        return sum(x * y for x, y in zip(w, parts)), found

    def one(A, B, w):
        moving = tuple((x.R, x.p, x.size) for x in (A, B))
        return jax.value_and_grad(weighed, has_aux=True)(moving, A, B, w)

    run = jax.jit(jax.vmap(one))

    def in_pieces(A, B, w):  # gradients of ten thousand pairs at once take gigabytes
        n = min(len(w), 500)
        cut = [jax.tree.map(lambda x, k=k: x[k : k + n], (A, B, w)) for k in range(0, len(w), n)]
        found = [jax.tree.map(np.asarray, run(*piece)) for piece in cut]
        return jax.tree.map(lambda *x: np.concatenate(x), *found)

    return in_pieces


def weights(rng, n):
    return rng.normal(size=(n, 10))


@pytest.mark.parametrize("a, b", KIND_CASES)
def test_pairs(a, b, count):
    rng = np.random.default_rng(7)
    A, B = cases.pairs(a, b, rng, count)
    w = weights(rng, count)
    run = program(a, b)
    (value, found), grad = jax.tree.map(np.asarray, run(A, B, w))
    optimal(a, b, A, B, found)
    by_coal(a, b, A, B, found)
    by_differences(a, b, A, B, w, run, value, grad, rng)
    # touching, and as deep as centres on each other: numbers everywhere, in values and gradients
    touching = B._replace(p=B.p + (found.distance[:, 0] - 0 * w[:, 0])[:, None] * found.normal[:, 0])
    (_, close), slope = jax.tree.map(np.asarray, run(A, touching, w))
    assert np.abs(close.distance[:, 0]).max() < (1e-9 if not SMOOTH & {a, b} else 1e-8)
    use = np.ones(count, bool)
    if SMOOTH & {
        a,
        b,
    }:  # a limit: faces in one plane that meet in a single point of a rim have the wrong point
        use = ~np.isin(np.arange(count) % 6, (1, 2))
    optimal(a, b, *jax.tree.map(lambda x: x[use], (A, touching, close)))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((close, slope)))
    middle = B._replace(p=A.p, R=np.where((np.arange(count) % 2 == 0)[:, None, None], A.R, B.R))
    (_, deep), slope = jax.tree.map(np.asarray, run(A, middle, w))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((deep, slope)))
    optimal(a, b, A, middle, deep)


def optimal(a, b, A, B, found, tol=2e-7):
    """Every place: points of the two bodies across from each other; the first proves its distance."""
    n = len(found.distance)
    along = found.a - found.b - found.distance[..., None] * found.normal
    assert np.abs(along[found.valid]).max() < 1e-9
    assert found.valid[:, 0].all()
    for k in range(found.distance.shape[1]):
        use = found.valid[:, k]
        for kind, x, points in ((a, A, found.a[:, k]), (b, B, found.b[:, k])):
            out = np.where(use, cases.outside(kind, x, points), -1)
            assert out.max() < tol, (k, kind, np.argmax(out), np.sum(out > tol))
        assert (found.distance[:, k] >= found.distance[:, 0] - 1e-9).all()
    gap = cases.separation(a, b, A, B, found.normal[:, 0]) - found.distance[:, 0]
    assert np.abs(gap).max() < tol, (np.argmax(np.abs(gap)), np.sum(np.abs(gap) > tol), n)


def by_coal(a, b, A, B, found):
    """Nowhere deeper than coal; where less deep by more than 1e-6, `optimal` has proved coal wrong."""
    n = len(found.distance)
    reference = [cases.coal_distance(a, b, A, B, k) for k in range(n)]
    d, normal = (np.array(x) for x in zip(*reference))
    ours = found.distance[:, 0]
    assert (ours > d - 1e-6).all(), (np.argmin(ours - d), np.sum(ours <= d - 1e-6))
    wrong = ours > d + 1e-6
    assert wrong.mean() < (0.1 if SMOOTH & {a, b} else 1e-3), wrong.mean()
    if not (SMOOTH & {a, b}):
        turned = np.linalg.norm(normal - found.normal[:, 0], axis=1) > 1e-3
        tied = cases.separation(a, b, A, B, normal) > ours - 1e-7  # another direction is as good
        assert not (turned & ~tied & ~wrong).any()


def by_differences(a, b, A, B, w, run, value, grad, rng, h=1e-6):
    """The gradient along a random motion of both shapes, where no feature changes within the step."""
    n = len(value)
    motions = []
    for x in (A, B):
        ds = np.where(x.size > 0, rng.normal(size=x.size.shape), 0)
        motions.append((rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), ds))
    up, down = (
        np.asarray(run(cases.turned(A, s * h, *motions[0]), cases.turned(B, s * h, *motions[1]), w)[0][0])
        for s in (1, -1)
    )
    slope = np.zeros(n)
    for x, (gR, gp, gs), (turn, move, ds) in zip((A, B), grad, motions):
        skew = np.swapaxes(np.cross(turn[:, None], np.eye(3)[None]), 1, 2)  # columns turn × e_i
        slope += np.sum(gR * (x.R @ skew), (1, 2))
        slope += np.sum(gp * move, 1) + np.sum(gs * ds, 1)
    measured = (up - down) / (2 * h)
    kink = np.abs(up - 2 * value + down) / h
    smooth = (kink < 1e-3) & ~np.isin(np.arange(n) % 6, (1, 2))
    error = np.abs(slope - measured) / (1 + np.abs(measured))
    assert smooth.mean() > 0.5
    bad = smooth & (error > 1e-5)
    assert not bad.any(), (np.sum(bad), np.sum(smooth), np.flatnonzero(bad)[:5], error[bad][:5])


def test_float32_and_both_orders():
    """Single precision gives the same to 1e-5; exchanged shapes give the same places."""
    rng = np.random.default_rng(3)
    A, B = cases.pairs("capsule", "box", rng, 200)
    run = jax.jit(
        jax.vmap(lambda A, B: (touch("capsule", "box", A, B), swapped(touch("capsule", "box", A, B))))
    )
    wide, back = run(A, B)
    narrow, _ = run(*jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (A, B)))
    assert narrow.distance.dtype == jnp.float32
    np.testing.assert_allclose(narrow.distance[:, 0], wide.distance[:, 0], atol=2e-6)
    np.testing.assert_array_equal(back.normal, -wide.normal)
    np.testing.assert_array_equal(back.a, wide.b)


FIELD = [pytest.param(k, marks=() if k in ("sphere", "box") else pytest.mark.all_robots) for k in sorted(
    a for a, b in PAIRS if b == "heightfield")]  # fmt: skip


@pytest.mark.parametrize("kind", FIELD)
def test_heightfields(kind, count):
    """Just apart: the least distance to the prisms, by coal. Flat ground: a plane, overlapping too."""
    rng, n = np.random.default_rng(5), count // 5
    rows, columns, size = 6, 7, np.array([1.2, 1.0, 0.3, 0.1])
    A = cases.shapes(kind, rng, n)
    size_a = A.size * 0.4
    A = A._replace(
        size=size_a, p=np.concatenate([rng.uniform(-0.5, 0.5, (n, 2)), rng.uniform(0.1, 0.6, (n, 1))], 1)
    )
    z = rng.uniform(0, 1, (n, rows, columns))
    flat = np.arange(n) % 3 == 0
    z[flat] = 0.5
    window = np.zeros((n, 4, 3 if kind == "sphere" else 4))
    B = collision.Placed(np.tile(np.eye(3), (n, 1, 1)), np.zeros((n, 3)), np.tile(size, (n, 1)),
                         collision.Grid(z, window))  # fmt: skip

    def one(A, B):
        def weighed(p):
            found = touch(kind, "heightfield", A._replace(p=p), B)
            return found.distance[0] + found.a[0] @ jnp.arange(1.0, 4), found

        plane = touch(kind, "plane", A, B._replace(p=B.p + 0.5 * B.size[2] * B.R[:, 2], data=None))
        return jax.value_and_grad(weighed, has_aux=True)(A.p), plane.distance[0]

    ((_, found), slope), plane = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(A, B))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((found, slope)))
    shallow = flat & (plane > -0.05)
    np.testing.assert_allclose(found.distance[shallow, 0], plane[shallow], atol=1e-9)
    np.testing.assert_allclose(found.normal[shallow][found.valid[shallow]] @ [0, 0, 1.0], 1, atol=1e-9)
    reference = np.array([cases.field_distance(kind, A, k, z[k], size) for k in range(n)])
    apart = (reference > 1e-6) & (reference < 0.1)  # farther off, the nearest cell may be beyond the window
    assert apart.sum() > n / 20
    np.testing.assert_allclose(found.distance[apart, 0], reference[apart], atol=1e-6)
    assert (found.distance[reference < -1e-6, 0] < 0).all()


# --- Systems ----------------------------------------------------------------------------------------------


def arm(*world):
    """Three links of capsules, a box at the end, a ball in the world."""
    b = rbd.Builder("arm")
    for k in range(3):
        b.body(f"l{k}", 1.0, com=(0.2, 0, 0), inertia=(0.01, 0.02, 0.02),
               shapes=[b.capsule(0.05, 0.3, xyz=(0.2, 0, 0), rpy=(0, np.pi / 2, 0))])  # fmt: skip
        parent = None if k == 0 else f"l{k - 1}"
        b.joint(f"j{k}", "revolute", parent, f"l{k}", axis=(0, 0, 1), xyz=(0.4 * (k > 0), 0, 0))
    b.body("hand", 0.5, shapes=[b.box(0.1, 0.1, 0.1)])
    b.joint("wrist", "revolute", "l2", "hand", axis=(0, 1, 0), xyz=(0.45, 0, 0))
    b.ground(b.sphere(0.2, xyz=(0.3, 0.9, 0.0), name="ball"), *world)
    return b.build(dtype="float64")


def test_tables_leave_out_what_cannot_or_must_not_touch():
    sys = arm()
    table = collision.pairs(sys)
    names = {frozenset(x) for x in table.names}
    assert {"l0/capsule0", "l1/capsule0"} not in names  # joined by a joint
    assert frozenset(("l0/capsule0", "ball")) in names  # the world is everybody's parent and still counts
    assert frozenset(("l0/capsule0", "l2/capsule0")) in names
    assert len(table) == 4 + 3
    assert len(collision.pairs(sys, self_collision=False)) == 4
    assert len(collision.pairs(sys, exclude=["l0", ("hand", "world")])) == 3
    assert len(collision.pairs(sys, include=[("l0", "l1")])) == 8
    with pytest.raises(rbd.ArgumentError, match="link"):
        collision.pairs(sys, exclude=["elbow"])
    with pytest.raises(rbd.ArgumentError, match="pairs of link names"):
        collision.pairs(sys, include=["l0"])


def test_distances_of_a_system():
    """Under jit, vmap and grad; against the same shapes placed by hand, and differences in q."""
    sys = arm()
    qs = jax.random.normal(jax.random.key(0), (16, 4)) * 0.7

    def all_of(q):
        found = rbd.distances(sys, q)
        return found, jax.jacrev(lambda x: rbd.distances(sys, x).distance)(q)

    run = jax.jit(jax.vmap(all_of))
    found, J = run(qs)
    row = found.names.index(("ball", "l1/capsule0"))
    R, p = jax.jit(jax.vmap(lambda q: rbd.frame_pose(sys, q, "l1")))(qs)
    ball = np.array([0.3, 0.9, 0.0])
    ends = [np.asarray(p + R @ np.array([x, 0, 0])) for x in (0.05, 0.35)]
    u = ends[1] - ends[0]
    t = np.clip(np.sum((ball - ends[0]) * u, 1) / np.sum(u * u, 1), 0, 1)
    gap = np.linalg.norm(ball - ends[0] - t[:, None] * u, axis=1) - 0.25
    np.testing.assert_allclose(found.distance[:, row], gap, atol=1e-12)
    h = 1e-6
    dq = np.asarray(jax.random.normal(jax.random.key(1), (4,)))
    up, down = (np.asarray(run(qs + s * h * dq)[0].distance) for s in (1, -1))
    error = np.abs((up - down) / (2 * h) - np.asarray(J) @ dq)
    kink = np.abs(up + down - 2 * np.asarray(found.distance)) / h
    assert error[kink < 1e-3].max() < 1e-5 and (kink < 1e-3).mean() > 0.8


def test_touches_and_the_budget():
    """With a budget the nearest pairs are those of the full table, and what is left out is counted."""
    rng = np.random.default_rng(0)
    b = rbd.Builder("balls")
    for k in range(12):
        b.body(f"b{k}", 1.0, shapes=[b.sphere(0.1)])
        b.joint(f"j{k}", "free", None, f"b{k}")
    b.ground(rbd.model.description.Shape("plane"))
    sys = b.build(dtype="float64")
    table = collision.pairs(sys)
    assert len(table) == 66 + 12
    x = rng.uniform(-0.2, 0.2, (12, 3)) + np.array([0, 0, 0.2])
    q = np.concatenate([x, np.tile([1.0, 0, 0, 0], (12, 1))], 1).ravel()

    @jax.jit
    def run(q):
        return [collision.touches(sys, q, table, budget=n, margin=0.0) for n in (None, 20, 3)]

    full, some, few = run(q)

    def near(f):
        return {(int(a), int(b)): float(d) for a, b, d in zip(f.shape_a, f.shape_b, f.distance) if d < 0}

    assert near(full) and near(some) == near(full)
    assert int(full.dropped) == int(some.dropped) == 0
    assert int(few.dropped) == len(near(full)) - len(near(few)) > 0
    assert len(few.distance) == 3 + 3 and (np.asarray(full.body_a) >= 0).all()
    i = np.flatnonzero(np.asarray(full.body_b) == -1)
    np.testing.assert_allclose(full.normal[i], np.tile([0, 0, 1.0], (12, 1)))
    np.testing.assert_allclose(full.distance[i], x[:, 2] - 0.1, atol=1e-12)
    with pytest.raises(rbd.ArgumentError, match="budget"):
        collision.touches(sys, q, table, budget=0)


def test_meshes_become_hulls(tmp_path):
    """A cube from a file is a box; a fine ball is cut to the limit with a warning; bad ones are refused."""
    trimesh = pytest.importorskip("trimesh")
    cube, fine, flat = tmp_path / "cube.stl", tmp_path / "ball.stl", tmp_path / "flat.stl"
    trimesh.creation.box((0.2, 0.4, 0.6)).export(cube)
    trimesh.creation.icosphere(3, 0.1).export(fine)
    trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]]).export(flat)

    def with_mesh(path, scale=(1.0, 1.0, 1.0)):
        b = rbd.Builder("mesh")
        found = str(path) if path.exists() else ""
        shape = rbd.model.description.Shape("mesh", scale, mesh=path.name, path=found)
        b.body("m", 1.0, com=(0, 0, 0), inertia=(1, 1, 1), shapes=[shape])
        b.joint("free", "free", None, "m")
        b.ground(b.box(0.3, 0.3, 0.3, name="block"))
        return b.build(dtype="float64")

    sys = with_mesh(cube, (2.0, 1.0, 1.0))
    table = collision.pairs(sys)
    hull = table.groups[0].data_b
    assert hull.vertices.shape == (1, 8, 3) and hull.triples.shape == (1, 6, 3)
    q = np.array([[0.0, 0, 0.5, 1, 0, 0, 0], [0.5, 0.1, 0, 1, 0, 0, 0]])
    found = jax.jit(jax.vmap(lambda x: rbd.distances(sys, x, table).distance))(q)
    np.testing.assert_allclose(found, [[0.05], [0.15]], atol=1e-7)
    with pytest.warns(rbd.ModelWarning, match="reduced to 32"):
        collision.pairs(with_mesh(fine))
    with pytest.raises(rbd.ArgumentError, match="plane or a line"):
        collision.pairs(with_mesh(flat))
    with pytest.raises(rbd.ArgumentError, match="exclude"):
        collision.pairs(with_mesh(tmp_path / "missing.stl"))
    with pytest.raises(rbd.ArgumentError, match="max_vertices"):
        collision.convex_hull(np.eye(4, 3), 3)


def test_overlaps_at_the_default_pose_are_named():
    b = rbd.Builder("pile")
    for k, x in enumerate((0.0, 0.15, 1.0)):
        b.body(f"b{k}", 1.0, shapes=[b.sphere(0.1)])
        b.joint(f"j{k}", "prismatic", None, f"b{k}", xyz=(x, 0, 0))
    sys = b.build(dtype="float64")
    with pytest.warns(rbd.ModelWarning, match="b0 and b1"):
        bad = collision.overlapping(sys, collision.pairs(sys))
    assert bad == [("b0", "b1")]
    assert len(collision.pairs(sys, exclude=bad)) == 2


def test_unsupported_pairs_are_refused_when_the_table_is_made():
    b = rbd.Builder("plate")
    b.body("plate", 1.0, com=(0, 0, 0), inertia=(1, 1, 1), shapes=[rbd.model.description.Shape("plane")])
    b.joint("j", "free", None, "plate")
    b.ground(rbd.model.description.Shape("plane", name="floor"))
    with pytest.raises(rbd.ArgumentError, match=r"'floor'.*not supported.*exclude"):
        collision.pairs(b.build())


def test_what_a_file_says_of_contacts_is_kept(tmp_path):
    """contype and conaffinity, <exclude> and <pair> of MJCF; saved and described too."""
    pytest.importorskip("mujoco")
    body = '<body name="{0}" pos="{1} 0 1"><freejoint/><geom name="g{0}" size="0.1" {2}/></body>'
    text = "<mujoco><worldbody><geom name='floor' type='plane' size='1 1 1'/>" + "".join(
        body.format(name, k, more)
        for k, (name, more) in enumerate(
            [("a", ""), ("b", ""), ("c", 'contype="2" conaffinity="2"'), ("d", 'contype="0" conaffinity="0"')]
        )
    )
    text += (
        '</worldbody><contact><exclude body1="a" body2="b"/><pair geom1="ga" geom2="gd"/></contact></mujoco>'
    )
    with pytest.warns(rbd.ModelWarning, match="parameters of contact pairs"):
        sys = rbd.load(text)
    wanted = {frozenset(x) for x in (("ga", "floor"), ("gb", "floor"), ("ga", "gd"))}
    pairs_of = lambda s: {frozenset(x) for x in collision.pairs(s).names}  # noqa: E731
    assert pairs_of(sys) == wanted
    rbd.save(sys, tmp_path / "model.rbd")
    assert pairs_of(rbd.load_system(tmp_path / "model.rbd")) == wanted
    assert pairs_of(rbd.build(rbd.describe(sys))) == wanted
    assert len(collision.pairs(sys, include=[("a", "b")])) == 4
