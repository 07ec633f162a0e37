"""Hard contact, limits and dry friction in time steps ([LOOPS] V): statics, impacts, exact accelerations,
gradients, bad input.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import contact, dual

G = 9.81
CORNERS = [(x, y, -0.1) for x in (-0.1, 0.1) for y in (-0.1, 0.1)]
ADMM = dual.ADMM(iterations=200)


def box(mass=2.0, size=(0.2, 0.2, 0.2)):
    b = rbd.Builder("box")
    b.body("box", mass, shapes=[b.box(*size)])
    b.joint("root", "free", None, "box")
    return b.build(dtype="float64")


def ball(radius=0.1):
    b = rbd.Builder("ball")
    b.body("ball", 1.0, shapes=[b.sphere(radius)])
    b.joint("root", "free", None, "ball")
    return b.build(dtype="float64")


def pendulum(**joint):
    """One link of inertia 1/3 + small about its axis, which lies in the horizontal plane."""
    b = rbd.Builder("pendulum")
    b.body("link", 1.0, com=(0.5, 0, 0), inertia=(0.01, 1 / 12, 1 / 12))
    b.joint("j", "revolute", None, "link", axis=(0, 1, 0), **joint)
    return b.build(dtype="float64")


def run(sys, state, steps, integrator, contacts=None, **more):
    return jax.jit(
        lambda s: rbd.rollout(sys, s, steps=steps, integrator=integrator, contacts=contacts, **more)
    )(state)


@pytest.mark.parametrize("more", [-1e-3, 1e-3], ids=["sticks", "slips"])
def test_block_on_an_incline(more):
    """At tan θ = μ ± 1e-3: at rest for ever, or sliding with g (sin θ - μ cos θ); forces carry the weight."""
    sys, mu = box(), 0.5
    slope = np.arctan(mu + more)
    ground = contact.on_plane(
        sys, ["box"] * 4, CORNERS, normal=(np.sin(slope), 0, np.cos(slope)), friction=mu
    )
    q = jnp.array([0.1 * np.sin(slope), 0, 0.1 * np.cos(slope), np.cos(slope / 2), 0, np.sin(slope / 2), 0])
    path = run(sys, rbd.State(q, jnp.zeros(6)), 300, rbd.HardContact(dt=2e-3, solver=ADMM), ground)
    assert path.converged.all()
    speed = np.linalg.norm(path.value.v[-1, 3:])
    wanted = max(0.0, 0.6 * G * (np.sin(slope) - mu * np.cos(slope)))
    np.testing.assert_allclose(speed, wanted, atol=1e-8)
    normal = path.stats.lam[-1].reshape(4, 3)[:, 2].sum() / 2e-3
    np.testing.assert_allclose(normal, 2.0 * G * np.cos(slope), rtol=1e-6)
    assert np.abs(path.stats.gap).max() < 1e-9


def test_bounces_lose_the_square_of_restitution():
    sys = ball()
    ground = contact.on_plane(sys, ["ball"], radius=0.1, restitution=0.8)
    state = rbd.State(jnp.array([0, 0, 1.1, 1, 0, 0, 0.0]), jnp.zeros(6))
    path = run(sys, state, 4000, rbd.HardContact(dt=5e-4), ground)
    z = np.asarray(path.value.q[:, 2]) - 0.1
    peaks = z[1:-1][(z[1:-1] > z[:-2]) & (z[1:-1] >= z[2:])][:3]
    np.testing.assert_allclose(peaks, 0.64 ** np.arange(1, 4), rtol=5e-3)


@pytest.mark.parametrize("share", [0.95, 1.05], ids=["stands", "tips"])
def test_a_tall_box_tips(share):
    """Pushed at its top by F: it tips where F h > m g w / 2, long before it slides."""
    sys = box(2.0, (0.2, 0.2, 0.6))
    feet = [(x, y, -0.3) for x in (-0.1, 0.1) for y in (-0.1, 0.1)]
    ground = contact.on_plane(sys, ["box"] * 4, feet, friction=1.0)
    F = share * 2.0 * G * 0.1 / 0.6
    push = jnp.array([[0, F * 0.3, 0, F, 0, 0.0]])  # at the top, as a wrench at the centre
    state = rbd.State(jnp.array([0, 0, 0.3, 1, 0, 0, 0.0]), jnp.zeros(6))
    path = run(sys, state, 200, rbd.HardContact(dt=2e-3, solver=ADMM), ground, f_ext=push)
    turned = 2 * np.abs(path.value.q[-1, 5])
    assert turned > 0.02 if share > 1 else turned < 1e-9


def test_a_ball_rolls():
    """Down a slope with enough friction: acceleration 5/7 g sin θ, and no slip at the touching point."""
    sys, slope = ball(), 0.3
    n = np.array([np.sin(slope), 0, np.cos(slope)])
    ground = contact.on_plane(sys, ["ball"], radius=0.1, normal=n, friction=0.5)
    q = jnp.concatenate([jnp.asarray(0.1 * n), jnp.array([1.0, 0, 0, 0])])
    path = run(sys, rbd.State(q, jnp.zeros(6)), 500, rbd.HardContact(dt=1e-3), ground)
    along = np.array([np.cos(slope), 0, -np.sin(slope)])
    np.testing.assert_allclose(
        (np.asarray(path.value.q[-1, :3]) - q[:3]) @ along, 0.5 * 5 / 7 * G * np.sin(slope) * 0.25, rtol=5e-3
    )
    assert np.abs(path.stats.v).max() < 1e-9


def test_limits_and_dry_friction_are_rows():
    """A link falls onto its limit and stays; friction holds exactly what it can hold and no more."""
    sys = pendulum(limits=(-1.0, 0.4))
    path = run(sys, rbd.State(jnp.zeros(1), jnp.zeros(1)), 600, rbd.HardContact(dt=2e-3))
    assert path.converged.all() and abs(path.value.q[-1, 0] - 0.4) < 2e-5 and abs(path.value.v[-1, 0]) < 1e-9
    moment = G * 0.5 * np.cos(0.4)  # of the weight about the axis
    np.testing.assert_allclose(path.stats.lam[-1, 0] / 2e-3, moment, rtol=1e-4)
    sys = pendulum(friction=2.0)
    sys = sys.replace(gravity=jnp.zeros(3))
    inertia = float(rbd.mass_matrix(sys, jnp.zeros(1))[0, 0])
    for torque, rate in ((1.9, 0.0), (-1.9, 0.0), (2.6, 0.6 / inertia), (-2.6, -0.6 / inertia)):
        end = rbd.step(
            sys, rbd.State(jnp.zeros(1), jnp.zeros(1)), integrator=rbd.HardContact(dt=1e-2), tau=[torque]
        )
        np.testing.assert_allclose(end.value.v, [1e-2 * rate], atol=1e-12)


def test_loops_as_rows_accelerate_as_constrained_dynamics():
    """With `acceleration`, (v' - v) / dt is the constrained acceleration, contact or not."""
    tree = rbd.zoo.four_bar(dtype="float64")
    loops = con.of_model(tree)
    sys = rbd.cluster(tree)
    q, v = rbd.to_tree(sys, sys.q0, jnp.ones(1))
    rule = contact.Stabilisation(joints=0.0, acceleration=True)
    integrator = rbd.HardContact(
        dt=1e-3, stabilisation=rule, solver=dual.ADMM(iterations=400), limits=False, dry_friction=False
    )
    still = tree.replace(damping=0 * tree.damping, friction=0 * tree.friction)
    end = jax.jit(lambda s: rbd.step(still, s, integrator=integrator, constraints=loops))(rbd.State(q, v))
    a = rbd.constrained_dynamics(still, q, v, rbd.passive_force(still, q, v), loops).value.a
    np.testing.assert_allclose((end.value.v - v) / 1e-3, a, atol=1e-6)


def test_a_body_that_turns_about_a_held_corner():
    """With `acceleration`, impulses / dt are the forces of constrained dynamics: turning is counted once."""
    sys = box()
    held = con.connect(sys, "box", offset=CORNERS[0], anchor=(0, 0, 0))
    rule = contact.Stabilisation(joints=0.0, acceleration=True)
    integrator = rbd.HardContact(dt=1e-3, stabilisation=rule, solver=dual.ADMM(iterations=200))
    q = jnp.array([*(-np.array(CORNERS[0])), 1.0, 0, 0, 0])
    w = np.array([3.0, -2.0, 4.0])
    v = jnp.array([*w, *np.cross(w, q[:3])])  # about the corner

    @jax.jit
    def forces(q, v):
        step = rbd.step(sys, rbd.State(q, v), integrator=integrator, constraints=held)
        return step.stats.lam / 1e-3, rbd.constrained_dynamics(sys, q, v, jnp.zeros(6), held).value.lam

    mine, other = forces(q, v)
    assert np.abs(other).max() > 1
    np.testing.assert_allclose(mine, other, atol=1e-7)


@pytest.fixture(scope="module")
def standing():
    """A quadruped held by its servos on four feet: System, contacts, integrator, the state after 2 s."""
    sys = rbd.zoo.quadruped(actuation="position", dtype="float64")
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    ground = contact.on_plane(sys, feet, radius=0.02, friction=0.8)
    integrator = rbd.HardContact(dt=2e-3, solver=dual.NBGS(iterations=40))
    u = sys.q0[7:]
    go = jax.jit(
        lambda s: rbd.rollout(
            sys, s, jnp.tile(u, (1000, 1)), integrator=integrator, contacts=ground, keep="last"
        )
    )
    path = go(rbd.State(sys.q0, jnp.zeros(sys.nv)))
    return sys, ground, integrator, u, jax.tree.map(lambda x: x[0], path)


def test_a_quadruped_stands(standing):
    sys, _, _, _, end = standing
    weight = G * float(jnp.sum(sys.mass))
    normal = np.asarray(end.stats.lam[-12:]).reshape(4, 3)[:, 2].sum() / 2e-3
    assert abs(normal / weight - 1) < 1e-6 and np.abs(end.value.v).max() < 1e-6
    assert (np.asarray(end.stats.lam[-12:]).reshape(4, 3)[:, 2] > 0).all()
    assert end.stats.gap[-4:].min() > -1e-4 and end.value.q[2] > 0.15


def test_gradients_of_a_sliding_ball():
    """A ball that hits the ground while it slides: by velocity, friction and mass, both modes."""
    sys = ball()
    direction = jnp.asarray(np.random.default_rng(0).normal(size=6))
    weigh = jnp.arange(1.0, 7.0)
    state = rbd.State(jnp.array([0, 0, 0.0999, 1, 0, 0, 0.0]), jnp.array([1.0, 2, 3, 2, 1, -1]))

    def after(s):
        model = sys.replace(mass=sys.mass * (1 + s))
        floor = contact.on_plane(sys, ["ball"], radius=0.1, friction=0.2 + s, restitution=0.3 + s)
        found = rbd.step(
            model,
            rbd.State(state.q, state.v + s * direction),
            integrator=rbd.HardContact(2e-3),
            contacts=floor,
        )
        return found.value.v

    @jax.jit
    def everything(s):
        """Value, forward and reverse mode in one program."""
        return (*jax.jvp(after, (s,), (1.0,)), jax.grad(lambda s: weigh @ after(s))(s))

    h = 1e-6
    _, forward, reverse = everything(0.0)
    differences = (everything(h)[0] - everything(-h)[0]) / (2 * h)
    np.testing.assert_allclose(forward, differences, atol=1e-6 * np.abs(differences).max())
    np.testing.assert_allclose(reverse, weigh @ forward, rtol=1e-9)


@pytest.mark.all_robots
@pytest.mark.parametrize("rows", [12, 36])
def test_gradients_of_a_step(standing, rows):
    """By state, controls, friction and masses: forward against differences, reverse against forward."""
    sys, ground, integrator, u, end = standing
    if rows == 12:  # contacts alone
        integrator = rbd.HardContact(2e-3, solver=dual.NBGS(iterations=40), limits=False, dry_friction=False)
    # feet overlap by 0.1 mm: at a gap of zero, what a row wants has a kink
    state = rbd.State(end.value.q.at[2].add(-1e-4), end.value.v, end.value.memory[-rows:])
    rng = np.random.default_rng(0)
    d = {
        "q": 0.1 * jnp.asarray(rng.normal(size=sys.nv)),
        "v": 0.1 * jnp.asarray(rng.normal(size=sys.nv)),
        "u": jnp.asarray(rng.normal(size=len(u))),
        "mass": 0.1 * sys.mass,
        "friction": jnp.full((4, 3), 0.1) * jnp.array([1.0, 0, 0]),
    }
    kick = jnp.asarray(0.5 * rng.normal(size=sys.nv))  # so that feet slip and lift

    def after(s):
        model = sys.replace(mass=sys.mass + s * d["mass"])
        floor = ground.__class__(
            ground.offset, ground.radius, ground.normal, ground.height, ground.friction + s * d["friction"],
            ground.restitution, ground.names, ground.dims,
        )  # fmt: skip
        start = rbd.State(rbd.integrate(sys, state.q, s * d["q"]), state.v + kick + s * d["v"], state.memory)
        found = rbd.step(model, start, u + s * d["u"], integrator=integrator, contacts=floor)
        return found.value.v, found.stats.residual

    forward = jax.jit(lambda s: jax.jvp(lambda s: after(s)[0], (s,), (1.0,))[1])(0.0)
    weigh = jnp.asarray(rng.normal(size=sys.nv))
    reverse = jax.jit(jax.grad(lambda s: weigh @ after(s)[0]))(0.0)
    value = jax.jit(after)
    h = 1e-6
    assert value(0.0)[1] < 1e-9
    differences = (value(h)[0] - value(-h)[0]) / (2 * h)
    np.testing.assert_allclose(forward, differences, atol=2e-6 * (1 + np.abs(differences).max()))
    np.testing.assert_allclose(reverse, weigh @ forward, rtol=1e-8)


def test_batches_in_float32():
    sys = ball().astype("float32")
    ground = contact.on_plane(sys, ["ball"], radius=0.1, friction=0.3)
    integrator = rbd.HardContact(dt=2e-3)
    q = jnp.tile(sys.q0.at[2].set(0.3), (16, 1))
    v = jnp.asarray(np.random.default_rng(0).normal(size=(16, 6)), jnp.float32)
    go = lambda s: rbd.rollout(sys, s, steps=300, integrator=integrator, contacts=ground, keep="last")  # noqa: E731
    path = jax.jit(jax.vmap(go))(rbd.State(q, v))
    assert path.value.q.dtype == jnp.float32 and path.converged.all()
    assert np.abs(path.value.q[:, 0, 2] - 0.1).max() < 1e-4 and np.isfinite(path.value.q).all()
    linear = jax.jit(lambda s: rbd.linearize(sys, s, integrator=integrator, contacts=ground)[0])
    A = linear(rbd.State(q[0], v[0]))
    assert A.shape == (12, 12) and np.isfinite(A).all()


def test_bad_input_is_refused():
    sys = box()
    state = rbd.State(sys.q0, jnp.zeros(6))
    wrong = [
        (lambda: contact.on_plane(sys, ["box"], restitution=1.2), "restitution"),
        (lambda: contact.on_plane(sys, ["box"], friction=-0.1), "friction"),
        (lambda: contact.on_plane(sys, ["bocks"]), "bocks"),
        (lambda: contact.on_plane(sys, ["box"], dims=2), "dims"),
        (lambda: contact.on_plane(sys, ["box"], dims=4), "spinning"),
        (
            lambda: contact.contacts(sys, [("box", "box")], (0, 0, 0), (0, 0, 1), 0.0),
            "do not move in each other",
        ),
        (lambda: rbd.step(sys, state, contacts=contact.on_plane(sys, ["box"])), "HardContact"),
        (lambda: rbd.step(sys, state, integrator=rbd.HardContact(dt=1e-3), contacts=3), "contacts is 3"),
        (lambda: rbd.HardContact(dt=1e-3, solver=rbd.ProxLTL()), "rbd.dual"),
        (lambda: rbd.HardContact(dt=0.0), "positive"),
        (
            lambda: rbd.step(sys, state, integrator=rbd.HardContact(dt=1e-3), contacts=lambda sys, q: 1),
            "expected rbd.contact.contacts",
        ),
    ]
    for call, words in wrong:
        with pytest.raises(rbd.ArgumentError, match=words):
            call()


def test_spinning_friction_stops_a_top():
    """A ball that spins about the normal: only dimension 4 slows it down, by 0.01 m times its weight."""
    sys = ball()
    inertia = 0.4 * 0.01
    for dims, loss in ((3, 0.0), (4, 0.01 * G * 0.2 / inertia)):
        ground = contact.on_plane(sys, ["ball"], radius=0.1, dims=dims, friction=np.array([[0.5, 0.01, 0.0]]))
        state = rbd.State(jnp.array([0, 0, 0.1, 1, 0, 0, 0.0]), jnp.array([0, 0, 30.0, 0, 0, 0]))
        path = run(sys, state, 100, rbd.HardContact(dt=2e-3), ground)
        np.testing.assert_allclose(path.value.v[-1, 2], 30.0 - loss, rtol=1e-6)
