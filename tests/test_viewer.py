"""What the viewer shows, without a browser: shapes, poses, replays, pictures, answers to mistakes."""

import socket
import subprocess
import sys as system
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
import robots

import jaxrbd as rbd
from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model import shapes
from jaxrbd.viewer import drawing, motion
from jaxrbd.viewer.viewer import Viewer

TEN = [
    robots.PANDA,
    robots.SOLO12,
    robots.TALOS,
    "ur_description/urdf/ur5_robot.urdf",
    "baxter_description/urdf/baxter.urdf",
    "tiago_description/robots/tiago_no_hand.urdf",
    "kinova_description/robots/kinova.urdf",
    "iris_description/robots/iris.urdf",
    "anymal_b_simple_description/robots/anymal.urdf",
    "bolt_description/robots/bolt.urdf",
]


def test_importing_the_package_imports_nothing_of_the_viewer():
    script = (
        "import sys, jaxrbd\n"
        "loaded = {m.split('.')[0] for m in sys.modules} & {'viser', 'trimesh', 'PIL', 'collada'}\n"
        "assert not loaded and 'jaxrbd.viewer' not in sys.modules, loaded\n"
        "jaxrbd.viewer\n"
        "loaded = {m.split('.')[0] for m in sys.modules} & {'viser', 'trimesh', 'PIL'}\n"
        "assert not loaded, loaded"
    )
    subprocess.run([system.executable, "-c", script], check=True)


# --- shapes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "extents"),
    [
        (shapes.box(0.1, 0.2, 0.3), (0.1, 0.2, 0.3)),
        (shapes.sphere(0.2), (0.4, 0.4, 0.4)),
        (shapes.cylinder(0.1, 0.5), (0.2, 0.2, 0.5)),
        (shapes.capsule(0.1, 0.5), (0.2, 0.2, 0.7)),
        (shapes.ellipsoid(0.1, 0.2, 0.3), (0.2, 0.4, 0.6)),
        (shapes.box(0.1, 0.2, 0.3, rpy=(0, 0, np.pi / 2)), (0.2, 0.1, 0.3)),
    ],
    ids=lambda x: getattr(x, "kind", ""),
)
def test_primitives_have_their_size(shape, extents):
    sys = one_body(shape)
    (part,) = (p for p in drawing.draw(sys).parts if p.role == "collision")
    np.testing.assert_allclose(part.mesh.extents, extents, rtol=0.02)
    assert part.body == 0 and part.mesh.is_watertight


def one_body(*parts):
    robot = rbd.Builder("robot")
    robot.body("body", mass=1.0, shapes=parts)
    robot.joint("joint", "revolute", None, "body")
    return robot.build()


def test_meshes_come_with_scale_and_colour(tmp_path):
    import trimesh

    trimesh.creation.box((1, 2, 3)).export(tmp_path / "part.stl")
    sys = load_text(tmp_path, '<mesh filename="part.stl" scale="0.1 0.1 0.2"/>', '<color rgba="1 0 0 1"/>')
    drawn = drawing.draw(sys)
    (part,) = (p for p in drawn.parts if p.role == "visual")
    np.testing.assert_allclose(part.mesh.extents, (0.1, 0.2, 0.6))
    np.testing.assert_array_equal(part.mesh.visual.material.baseColorFactor, [255, 0, 0, 255])
    assert not drawn.notes and drawn.roles() == ("visual",)


@pytest.mark.parametrize("content", [None, b"this is no mesh", b""], ids=["missing", "damaged", "empty"])
def test_a_mesh_that_cannot_be_shown_is_a_box_and_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "part.stl").write_bytes(content)
    sys = load_text(tmp_path, '<mesh filename="part.stl"/>')
    drawn = drawing.draw(sys)
    (part,) = (p for p in drawn.parts if p.role == "visual")
    (note,) = drawn.notes
    assert "part.stl" in note and "the box of its inertia stands in" in note
    # a solid box of mass 2 with these moments: sides² = 12 (sum / 2 - I) / m
    sides = np.sqrt(12 / 2 * (0.06 / 2 - np.array([0.01, 0.02, 0.03])).clip(0)).clip(0.02)
    np.testing.assert_allclose(sorted(part.mesh.extents), sorted(sides), rtol=1e-6)


def load_text(folder, geometry, material=""):
    material = f'<material name="m">{material}</material>' if material else ""
    text = (
        '<robot name="r"><link name="a"><inertial><mass value="2"/>'
        '<inertia ixx="0.01" iyy="0.02" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial>'
        f"<visual><geometry>{geometry}</geometry>{material}</visual></link></robot>"
    )
    (folder / "robot.urdf").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.ModelWarning)
        return rbd.load(folder / "robot.urdf", base="free")


def test_ellipsoids_have_the_inertia_of_their_links():
    sys = rbd.zoo.humanoid()
    parts = [p for p in drawing.draw(sys).parts if p.role == "inertia"]
    assert len(parts) == sum(np.asarray(sys.mass) > 0)
    for part in parts[:4]:
        i = sys.link_names.index(part.name)
        mesh = part.mesh.copy()
        mesh.apply_transform(np.linalg.inv(drawing.link_placements(sys)[i]))
        mesh.density = float(sys.mass[i]) / mesh.volume
        xx, xy, xz, yy, yz, zz = np.asarray(sys.inertia[i])
        expected = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        np.testing.assert_allclose(mesh.moment_inertia, expected, atol=0.06 * np.trace(expected))
        np.testing.assert_allclose(mesh.center_mass, sys.com[i], atol=1e-6)


# --- poses ----------------------------------------------------------------------------------------------


def test_quaternions_of_rotations():
    rng = np.random.default_rng(0)
    q = rng.standard_normal((200, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    half = np.eye(4)[1:]  # half turns
    R = np.stack([matrix_from_quaternion(x) for x in [*q, *half]])
    back = np.stack([matrix_from_quaternion(x) for x in motion.quaternions(R)])
    np.testing.assert_allclose(back, R, atol=1e-12)


@pytest.mark.parametrize(
    "urdf", [TEN[0], *(pytest.param(x, marks=pytest.mark.all_robots) for x in TEN[1:])], ids=robots.short_name
)
def test_shapes_are_where_pinocchio_has_them(urdf):
    sys, model = robots.load(urdf, "fixed"), robots.pinocchio_model(urdf, "fixed")
    q = robots.random_q(sys, np.random.default_rng(1))
    path, folders = str(robots.ROBOTS / urdf), [str(robots.SHARE)]
    found = pin.buildGeomFromUrdf(model, path, pin.GeometryType.VISUAL, package_dirs=folders)
    data, places = model.createData(), pin.GeometryData(found)
    pin.updateGeometryPlacements(model, data, found, places, robots.Twin(sys, model).q(q))
    R, p = (x[0] for x in motion.poses(sys, q[None]))
    t, own, seen = sys.topology, drawing.shape_placements(sys), {}
    compared = 0
    for i, frame in enumerate(t.shape_frames):
        if t.shape_roles[i] != "visual" or frame < 0:
            continue
        link = sys.frame_names[frame]
        k = seen[link] = seen.get(link, -1) + 1
        index = found.getGeometryId(f"{link}_{k}")
        body = t.frame_bodies[frame]
        X = drawing.placement(R[body], p[body]) @ own[i] if body >= 0 else own[i]
        theirs = places.oMg[index].homogeneous
        np.testing.assert_allclose(X, theirs, atol=1e-9, err_msg=link)
        compared += 1
    assert compared == found.ngeoms > 0


@pytest.mark.all_robots
@pytest.mark.parametrize("urdf", robots.URDFS, ids=lambda x: x)
def test_every_robot_can_be_shown(urdf):
    sys = robots.load(urdf, "free")
    with Viewer(sys) as viewer:
        R, p = viewer.robot.move(np.asarray(sys.q0, float)[None])
        assert viewer.robot.objects and np.isfinite(R).all() and np.isfinite(p).all()


def test_objects_follow_the_path():
    sys, path = fall(rbd.zoo.quadruped(), environments=3)
    with Viewer(sys, path, dt=1e-2) as viewer:
        made = viewer.robot.objects[0, "collision"]
        viewer.player.seek(0.05)
        q = np.asarray(path.q[:, 5])
        R, p = motion.poses(sys, q)
        np.testing.assert_allclose(made.batched_positions, p[:, 0] + viewer.robot.offsets, atol=1e-6)
        np.testing.assert_allclose(made.batched_wxyzs, motion.quaternions(R[:, 0]), atol=1e-6)
        viewer.player.choose(2, 1)
        np.testing.assert_allclose(
            viewer.robot.objects[0, "collision"].batched_positions, p[2:, 0], atol=1e-6
        )
        viewer.player.plot("v root[5]")
        np.testing.assert_allclose(viewer.player.curve.data[1], path.v[2, :, 5], atol=1e-6)
        viewer.player.plot("total")
        energy = [rbd.energy(sys, q, v) for q, v in zip(path.q[2], path.v[2])]
        np.testing.assert_allclose(viewer.player.curve.data[1], energy, rtol=1e-5)


def fall(sys, environments=1, steps=20):
    q = jnp.broadcast_to(sys.q0, (environments, sys.nq))
    v = jnp.asarray(np.random.default_rng(0).standard_normal((environments, sys.nv)), sys.dtype)
    run = jax.jit(
        jax.vmap(lambda s: rbd.rollout(sys, s, steps=steps, integrator=rbd.SemiImplicitEuler(dt=1e-2)))
    )
    return sys, run(rbd.State(q, v)).value


# --- posing and watching --------------------------------------------------------------------------------


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_sliders_move_joints_and_a_handle_drags_a_frame():
    sys = rbd.zoo.arm7()
    with Viewer(sys) as viewer:
        posing = viewer.posing
        joint = sys.joint_names[3]
        slider = posing.sliders[posing.labels.index(joint)]
        assert (slider.min, slider.max) == pytest.approx((float(sys.lower[3]), float(sys.upper[3])))
        slider.value = 0.5 * (slider.min + slider.max)
        wait_until(lambda: abs(posing.q[3] - slider.value) < 1e-9)
        frame = sys.frame_names[-1]
        posing.drag(frame)
        R, p = (np.asarray(x) for x in rbd.frame_pose(sys, posing.q, frame))
        np.testing.assert_allclose(posing.handle.position, p, atol=1e-9)
        goal = p - [0.02, 0.03, 0.04]
        posing.reach(motion.quaternions(R), goal)
        np.testing.assert_allclose(rbd.frame_pose(sys, posing.q, frame)[1], goal, atol=1e-6)
        np.testing.assert_allclose([s.value for s in posing.sliders], posing.q, atol=1e-9)
        posing.go_to("default pose")
        np.testing.assert_allclose(posing.q, sys.q0, atol=1e-9)


def test_manifold_joints_have_sliders_in_the_tangent_space():
    sys = rbd.zoo.quadruped()
    with Viewer(sys) as viewer:
        labels = viewer.posing.labels
        assert labels[:6] == [f"root {x}" for x in ("turn x", "turn y", "turn z", "x", "y", "z")]
        viewer.posing.sliders[2].value = 0.7
        expected = rbd.integrate(sys, sys.q0, jnp.zeros(sys.nv).at[2].set(0.7))
        wait_until(lambda: np.allclose(viewer.posing.q, expected))


def test_a_rollout_is_watched_while_it_runs():
    sys = rbd.zoo.double_pendulum()
    seen = []
    with Viewer(sys, live=True) as viewer:
        viewer.live.offer = lambda q, t: seen.append((np.array(q), t))
        controller = viewer.live.watched(every=10, dt=1e-3)
        states = rbd.State(jnp.ones((4, 2)) * jnp.arange(4)[:, None], jnp.zeros((4, 2)))
        run = jax.jit(jax.vmap(lambda s: rbd.rollout(sys, s, controller, steps=35)))
        path = jax.block_until_ready(run(states)).value
        jax.effects_barrier()
    assert sorted(t for _, t in seen) == pytest.approx([0.0, 0.01, 0.02, 0.03])
    q, _ = max(seen, key=lambda x: x[1])
    np.testing.assert_allclose(q, path.q[:, 29], atol=1e-12)  # the state at 30 ms, of all at once
    plain = jax.jit(jax.vmap(lambda s: rbd.rollout(sys, s, steps=35)))(states).value
    np.testing.assert_array_equal(path.q, plain.q)


def test_the_newest_state_is_drawn():
    sys = rbd.zoo.double_pendulum()
    with Viewer(sys, live=True) as viewer:
        q = np.array([0.3, 0.4])
        viewer.live.offer(q, 1.5)
        wait_until(lambda: np.allclose(viewer.q, q) and viewer.live.clock.value == "1.500")
        viewer.live._due = 0.0
        viewer.live.offer(np.array([np.nan, 0.0]), 2.0)
        wait_until(lambda: viewer.live.clock.value == "2.000: 1 not finite")


# --- overlays -------------------------------------------------------------------------------------------


def test_overlays_show_centres_anchors_and_forces():
    sys = rbd.zoo.quadruped()
    con = rbd.constraints.connect(sys, "FL_foot", q=sys.q0)
    lam = jnp.asarray([1.0, 2.0, 3.0])
    f = np.zeros((sys.nb, 6))
    f[0, 5] = 10.0
    with Viewer(sys, constraints=con, multipliers=lam, wrenches=f) as viewer:
        for what in ("centres of mass", "constraints", "multipliers", "wrenches", "frames", "inertia"):
            viewer.switch(what, True)
        drawn = {k: made for k, (made, _) in viewer.overlays.drawn.items()}
        centre = drawn["centres of mass"][1].batched_positions[0]
        np.testing.assert_allclose(centre, rbd.center_of_mass(sys, sys.q0), atol=1e-6)
        foot = rbd.frame_pose(sys, sys.q0, "FL_foot")[1]
        np.testing.assert_allclose(drawn["constraints"][0].batched_positions[0], foot, atol=1e-6)
        start, end = drawn["multipliers"][0].points[0]
        np.testing.assert_allclose((end - start) / viewer.overlays.scale, lam, rtol=1e-4)
        start, end = drawn["wrenches"][0].points[0]
        np.testing.assert_allclose((end - start) / viewer.overlays.scale, [0, 0, 10], atol=1e-4)
        assert all(made.visible for k in drawn for made in drawn[k])
        assert viewer.robot.objects[0, "inertia"].visible
        with pytest.raises(rbd.ArgumentError, match="'wings' is nothing to show here"):
            viewer.switch("wings", True)


# --- files ----------------------------------------------------------------------------------------------


def test_a_replay_is_one_file_and_says_what_it_left_out(tmp_path):
    sys, path = fall(rbd.zoo.quadruped(), environments=70, steps=50)
    replay = rbd.viewer.save_html(sys, path, tmp_path / "run.html", dt=1e-2)
    assert (replay.frames, replay.environments) == (16, 64)
    assert replay.thinned == "16 of 50 states, 64 of 70 environments, at most 64"
    text = replay.path.read_text()
    assert replay.bytes == len(text.encode()) < 5e6 and "__VISER_EMBED_DATA__" in text
    assert "16 frames of 64 environments" in str(replay)
    for odd in ("run.txt", "no-such-folder/run.html"):
        with pytest.raises(rbd.RbdError, match="run"):
            rbd.viewer.save_html(sys, path, tmp_path / odd)


def test_pictures_show_the_robot(tmp_path):
    from PIL import Image

    sys = rbd.zoo.quadruped()
    rbd.viewer.save_png(sys, tmp_path / "a.png", size=(200, 150))
    bent = np.asarray(sys.q0).copy()
    bent[sys.q_index("FL_thigh")] += 1.0
    rbd.viewer.save_png(sys, tmp_path / "b.png", bent, size=(200, 150))
    a, b = (np.asarray(Image.open(tmp_path / f"{x}.png"), float) for x in "ab")
    assert a.shape == (150, 200, 3)
    assert 0.03 < (a.min(-1) < 200).mean() < 0.6  # a robot and its shadow on white
    assert 0.002 < (np.abs(a - b).max(-1) > 40).mean() < 0.3
    _, path = fall(sys, steps=30)
    rbd.viewer.save_gif(sys, path, tmp_path / "c.gif", dt=1e-2, size=(96, 72), fps=10)
    with Image.open(tmp_path / "c.gif") as film:
        assert film.n_frames == 3 and film.size == (96, 72)


def test_a_picture_is_a_projection():
    """Against the triangle itself: pixels inside are filled, nearer ones win."""
    from jaxrbd.viewer.raster import Camera, Canvas

    camera = Camera(np.array([0.0, -5.0, 0.0]), np.zeros(3), fov=60.0)
    x = np.array([[-1.0, 0, -1], [1, 0, -1], [0, 0, 1], [-1, 1, -1], [1, 1, -1], [0, 1, 1]])
    screen = camera.project(x, 200, 200)
    focus = 100 / np.tan(np.radians(30))
    np.testing.assert_allclose(screen[2], [100, 100 - focus / 5, 5])
    canvas = Canvas(200, 200)
    canvas.triangles(screen[[[3, 4, 5]]], np.array([[0.0, 255, 0]]))
    canvas.triangles(screen[[[0, 1, 2]]], np.array([[255.0, 0, 0]]))
    canvas.triangles(screen[[[3, 4, 5]]], np.array([[0.0, 255, 0]]))
    red = (canvas.colour == [255, 0, 0]).all(-1).sum()
    np.testing.assert_allclose(red, 2 * (focus / 5) ** 2, rtol=0.03)  # half base times height
    assert not (canvas.colour == [0, 255, 0]).all(-1)[110:130, 95:105].any()


# --- mistakes -------------------------------------------------------------------------------------------


def test_mistakes_get_our_errors(tmp_path):
    sys = rbd.zoo.double_pendulum()
    show = lambda *args, **kw: Viewer(sys, *args, **kw)  # noqa: E731
    cases = [
        (lambda: show(jnp.zeros((5, 3))), "another System"),
        (lambda: show(jnp.zeros((0, 2))), "holds nothing"),
        (lambda: show("run"), "expected what rollout returns"),
        (lambda: show(jnp.zeros((5, 2)), dt=0.0), "dt is 0.0"),
        (lambda: show(jnp.zeros((2, 5, 2)), environments=3), "the path has 2"),
        (lambda: show(multipliers=jnp.zeros(3)), "without constraints="),
        (lambda: show(wrenches=jnp.zeros(3)), r"wrenches has shape \(3,\)"),
        (lambda: show(port=99999), "port 99999"),
        (lambda: show(host="no.such.host.invalid"), "cannot be used"),
        (lambda: Viewer(sys.replace(mass=jnp.ones((3, 2)))), "batched"),
        (lambda: Viewer("robot.urdf"), "Load it first"),
        (lambda: rbd.viewer.save_png(sys, tmp_path / "x.jpg"), "does not end in .png"),
        (lambda: rbd.viewer.save_png(sys, tmp_path / "x.png", size=(0, 5)), "size is"),
    ]
    for call, message in cases:
        with pytest.raises(rbd.RbdError, match=message):
            call()


def test_a_port_that_is_taken(capsys):
    sys = rbd.zoo.double_pendulum()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(rbd.ArgumentError, match=f"port {port} of '127.0.0.1' cannot be used"):
            Viewer(sys, port=port)
    with rbd.viewer.show(sys) as viewer, Viewer(sys) as other:
        assert viewer.url != other.url and viewer.url.startswith("http://127.0.0.1:")
    assert capsys.readouterr().out == f"double_pendulum is shown at {viewer.url}\n"


def test_states_that_are_not_finite_are_marked():
    sys = rbd.zoo.double_pendulum()
    q = np.ones((2, 10, 2))
    q[1, 4:] = np.nan
    with Viewer(sys, q, dt=0.1) as viewer:
        assert any("environment 1 is not finite from t = 0.4 s" in note for note in viewer.notes)
        viewer.player.seek(0.9)
        assert np.isfinite(viewer.q).all()
    never = np.full((1, 3, 2), np.nan)
    with Viewer(sys, never) as viewer:
        np.testing.assert_array_equal(viewer.q[0], sys.q0)
        assert "not finite from t = 0 s" in "".join(viewer.notes)


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(system.modules, "viser", None)
    with pytest.raises(
        rbd.ArgumentError, match=r"needs viser. Install it with: pip install 'jaxrbd\[viewer\]'"
    ):
        Viewer(rbd.zoo.double_pendulum())
