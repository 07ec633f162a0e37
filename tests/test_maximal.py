"""Maximal coordinates: the same motion as the tree's, for every joint type, loops, couplings and contacts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import contact, dual
from jaxrbd.maximal.geometry import HELD
from jaxrbd.model.description import Pose

TYPES = ("free", *(kind for kind in HELD if kind != "free"))


def chain(types=TYPES, seed=0):
    """One body per joint type, with crooked axes and placements; links off their bodies' origins."""
    rng, b, parent = np.random.default_rng(seed), rbd.Builder("chain"), None
    for k, kind in enumerate(types):
        b.body(f"b{k}", mass=1 + 0.2 * k, com=(0.05, 0.02 * k, -0.03), inertia=np.diag([0.02, 0.03, 0.04]))
        axis, other = rng.normal(size=(2, 3))
        axis /= np.linalg.norm(axis)
        across = np.cross(axis, other) / np.linalg.norm(np.cross(axis, other))
        more = {} if kind in ("free", "spherical") else {"axis": axis}
        if kind == "planar":
            more["axis2"] = across
        if kind == "universal":  # not at right angles
            more["axis2"] = (across + 0.3 * axis) / np.sqrt(1.09)
        if kind == "screw":
            more["pitch"] = 0.07
        place = {"xyz": 0.2 * rng.normal(size=3), "rpy": rng.normal(size=3)} if k else {}
        b.joint(f"j{k}", kind, parent, f"b{k}", **place, **more)
        parent = f"b{k}"
    return b.build(dtype="float64")


def bodies_accelerate(sys, q, v, a):
    """A of every body in its own axes, as maximal coordinates have it."""
    return jnp.concatenate([rbd.frame_acceleration(sys, q, v, a, n, "body") for n in sys.body_names])


@pytest.fixture(scope="module")
def cut():
    sys = chain()
    rng = np.random.default_rng(1)
    q = jax.vmap(lambda k: rbd.random_configuration(sys, k))(jax.random.split(jax.random.key(2), 4))
    v, tau = jnp.asarray(rng.normal(size=(2, 4, sys.nv)))
    return sys, rbd.maximal(sys), q, v, tau


def test_states_go_there_and_back(cut):
    sys, m, q, v, _ = cut

    @jax.jit
    @jax.vmap
    def both(q, v):
        Q, V = m.to_maximal(q, v)
        q1, v1 = m.from_maximal(Q, V)
        off = (
            con.constraint_error(m.system, m.constraints, Q),
            con.constraint_velocity(m.system, m.constraints, Q, V),
        )
        return (
            rbd.difference(sys, q, q1),
            v1 - v,
            off,
            rbd.kinetic_energy(m.system, Q, V) - rbd.kinetic_energy(sys, q, v),
        )

    for x in jax.tree.leaves(both(q, v)):
        assert np.abs(x).max() < 1e-12
    assert m.constraints.rows == 6 * sys.nb - sys.nv


def test_every_joint_type_moves_as_in_the_tree(cut):
    sys, m, q, v, tau = cut

    @jax.jit
    @jax.vmap
    def off(q, v, tau):
        Q, V = m.to_maximal(q, v)
        found = rbd.constrained_dynamics(m.system, Q, V, m.forces(Q, tau), m.constraints, rbd.Dense())
        a = rbd.forward_dynamics(sys, q, v, tau)
        return found.value.a - bodies_accelerate(sys, q, v, a), found.result

    error, result = off(q, v, tau)
    assert np.abs(error).max() < 1e-9 and (result == 0).all()


def test_forces_do_the_same_work(cut):
    _, m, q, v, tau = cut

    def work(q, v, tau):
        Q, V = m.to_maximal(q, v)
        return m.forces(Q, tau) @ V

    np.testing.assert_allclose(jax.jit(jax.vmap(work))(q, v, tau), jnp.sum(tau * v, 1), rtol=1e-12)


def test_angles_follow_the_ones_before(cut):
    sys, m, *_ = cut
    i = sys.q_index("j1").start
    far = np.array(sys.q0)
    far[i] = 7.0

    @jax.jit
    def angles(q):
        Q, _ = m.to_maximal(q)
        return m.from_maximal(Q)[0][i], m.from_maximal(Q, near=q - 1.0)[0][i]

    np.testing.assert_allclose(angles(far), [7.0 - 2 * np.pi, 7.0], atol=1e-12)


def test_derivatives(cut):
    """Positions and rates by the state and by a placement of the original, against differences."""
    sys, m, q, v, _ = cut

    def end(x):
        p, dq, v = jnp.split(x, [3, 3 + sys.nv])
        moved = sys.replace(joint_position=sys.joint_position.at[3].set(p))
        here = m.at(moved)
        Q, V = here.to_maximal(rbd.integrate(moved, q[0], dq), v)
        back = here.from_maximal(Q, V)[1]
        return Q[-7:-4] @ jnp.array([1.0, 2.0, 3.0]) + jnp.sum(V) + 0.1 * jnp.sum(jnp.sin(back))

    x, h = jnp.concatenate([sys.joint_position[3], jnp.zeros(sys.nv), v[0]]), 1e-6
    value = jax.jit(jax.vmap(end))
    numeric = (value(x + h * jnp.eye(len(x))) - value(x - h * jnp.eye(len(x)))) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(end))(x), numeric, atol=1e-7)


def ring(n):
    """n bodies joined by n hinges in a circle, with no root: a joint per corner, every body alike."""
    b = rbd.Builder("ring", graph=True)
    turn = 2 * np.pi / n
    for k in range(n):
        b.body(f"b{k}", mass=1 + 0.1 * k, com=(0.15, 0.02, 0), inertia=np.diag([0.01, 0.02, 0.03]))
    for k in range(n):
        b.joint(f"j{k}", "revolute", f"b{k}", f"b{(k + 1) % n}", xyz=(0.3, 0, 0), rpy=(0, 0, turn))
    return b


def closed_ring(n):
    """The same as a tree with a loop."""
    b, loose = rbd.Builder("ring"), ring(n)
    bodies = loose.description().bodies
    for x in bodies:
        b.body(x.name, x.mass, x.com, x.inertia)
    b.joint("root", "free", None, "b0")
    turn = 2 * np.pi / n
    for k in range(n - 1):
        b.joint(f"j{k}", "revolute", f"b{k}", f"b{k + 1}", xyz=(0.3, 0, 0), rpy=(0, 0, turn))
    b.loop("closing", "hinge", f"b{n - 1}", "b0", pose_a=Pose(p=np.array([0.3, 0, 0])))
    return b.build(dtype="float64")


def test_a_ring_without_a_root():
    """Six bodies, six hinges, no first one: rows, rank, and the accelerations of a tree that is closed."""
    m, tree = rbd.maximal(ring(6), dtype="float64"), closed_ring(6)
    loops = con.of_model(tree)
    assert m.constraints.rows == 30 and m.system.nb == 6 and m.origin.nb == 7
    rng = np.random.default_rng(6)
    v, tau = jnp.asarray(rng.normal(size=(2, tree.nv)))

    @jax.jit
    def off(v, tau):
        q = tree.q0
        J = con.constraint_jacobian(tree, loops, q)
        v = v - jnp.linalg.pinv(J) @ (J @ v)
        a = rbd.constrained_dynamics(tree, q, v, tau, loops, rbd.Dense()).value.a
        turning = jnp.concatenate([v[:6], v[6:], -jnp.sum(v[6:])[None]])  # plane: angles add up to a turn
        Q, V = m.to_maximal(m.origin.q0, turning)
        back = m.from_maximal(Q, V)
        push = jnp.concatenate([tau, jnp.zeros(1)])
        found = rbd.constrained_dynamics(m.system, Q, V, m.forces(Q, push), m.constraints, rbd.Dense())
        J = con.constraint_jacobian(m.system, m.constraints, Q)
        return (
            con.constraint_error(m.system, m.constraints, Q),
            con.constraint_velocity(m.system, m.constraints, Q, V),
            back[1] - turning,
            found.value.a - bodies_accelerate(tree, q, v, a),
        ), J

    off, J = off(v, tau)
    for x in off:
        assert np.abs(x).max() < 1e-9
    assert np.linalg.matrix_rank(J, 1e-8) == 27


def test_a_body_on_two_joints():
    """Hung by two balls it is a pendulum about the line between them, with a second body on it; a weld as
    third joint stops it."""

    def swing(graph):
        b = rbd.Builder("swing", graph=graph)
        b.body("plank", mass=2.0, com=(0.1, 0.3, -0.4), inertia=np.diag([0.1, 0.2, 0.3]))
        if graph:
            b.joint("left", "spherical", None, "plank")
            b.joint("right", "spherical", None, "plank", xyz=(0, 1, 0), offset=Pose(p=np.array([0, -1.0, 0])))
        else:
            b.joint("line", "revolute", None, "plank", axis=(0, 1, 0))
        b.body("tail", mass=1.0, com=(0.1, 0, -0.1), inertia=np.diag([0.01, 0.02, 0.03]))
        b.joint("tail", "revolute", "plank", "tail", xyz=(0.1, 0.5, -0.6), rpy=(0.1, 0.2, 0.3))
        return b

    b, one = swing(True), swing(False).build(dtype="float64")
    m, free = rbd.maximal(b, dtype="float64"), rbd.maximal(one)
    b.joint("stop", "fixed", None, "plank")
    stopped = rbd.maximal(b, dtype="float64")
    assert m.constraints.rows == 11 and stopped.constraints.rows == 17
    assert m.system.body_names == free.system.body_names

    @jax.jit
    def accelerations(q, v):
        Q, V = free.to_maximal(q, v)

        def moving(s, Q, V):
            rows = s.constraints
            return rbd.constrained_dynamics(s.system, Q, V, jnp.zeros(12), rows, rbd.Dense()).value.a

        expected = bodies_accelerate(one, q, v, rbd.forward_dynamics(one, q, v, jnp.zeros(2)))
        return moving(m, Q, V), expected, moving(stopped, stopped.system.q0, 0 * V), m.from_maximal(Q, V)[1]

    v = jnp.array([0.7, -0.4])
    hung, expected, still, rates = accelerations(jnp.array([0.3, 0.2]), v)
    np.testing.assert_allclose(hung, expected, atol=1e-10)
    np.testing.assert_allclose(still[:6], 0, atol=1e-10)
    tail = m.origin.v_index("tail").start
    np.testing.assert_allclose(rates[tail], v[1], atol=1e-12)


def quiet(sys):
    """Without what acts along the freedoms of joints."""
    return sys.replace(
        armature=0 * sys.armature,
        friction=0 * sys.friction,
        damping=0 * sys.damping,
        lower=jnp.full(sys.nv, -jnp.inf),
        upper=jnp.full(sys.nv, jnp.inf),
    )


def busy(sys, seed=0):
    """With armature, dampers, springs and dry friction everywhere, and limits at which joints are."""
    rng, n = np.random.default_rng(seed), sys.nv
    where = rbd.forces.joint_coordinates(sys.topology)
    scalar = where < sys.nq
    number = lambda low, high: jnp.asarray(rng.uniform(low, high, n))  # noqa: E731
    x = np.append(np.asarray(sys.q0), 0)[where]
    return sys.replace(
        # a turning frame that has armature in three different directions is another mechanism in other axes
        armature=jnp.where(scalar, number(0.01, 0.1), 0.05),
        damping=number(0.0, 0.5),
        stiffness=jnp.where(scalar, 2.0, 0.0),
        friction=number(0.05, 3.0),
        lower=jnp.where(scalar, x - np.resize([0.0001, 0.37], n), -jnp.inf),
        upper=jnp.where(scalar, x + np.resize([0.4, -0.0001, 0.3], n), jnp.inf),
    )


RULE = contact.Stabilisation(joints=0.0, acceleration=True)
EXACT = dual.NBGS(iterations=2000, tolerance=1e-13)


def one_step(sys, m, q, v, tau, loops=None, feet=(), solver=EXACT):
    """(λ, v⁺) of limits, dry friction and contacts, from the tree and from maximal coordinates."""
    ground = lambda s: contact.on_plane(s, feet, radius=0.02, friction=0.6) if feet else None  # noqa: E731
    small = rbd.HardContact(2e-3, RULE, dual.Reduced(solver))
    large = rbd.HardContact(2e-3, RULE, dual.Reduced(solver), joints=m.joints())

    @jax.jit
    def both(q, v, tau):
        a = rbd.step(sys, rbd.State(q, v), None, small, tau=tau, constraints=loops, contacts=ground(sys))
        at = rbd.State(*m.to_maximal(q, v))
        push = m.forces(at.q, tau)
        b = rbd.step(
            m.system, at, None, large, tau=push, constraints=m.constraints, contacts=ground(m.system)
        )
        return a, b

    a, b = both(q, v, tau)
    # the tolerance is for what is left when joints are eliminated; with all rows there is more rounding
    assert a.stats.residual < 1e-11 and b.stats.residual < 1e-10
    limits, dry = (np.argsort(np.argsort(x)) for x in (m.slots.limits, m.slots.dry))
    first = 3 * len(feet) + len(limits) + len(dry)
    rest = np.arange(first)
    order = np.concatenate([limits, len(limits) + dry, rest[len(limits) + len(dry) :]]).astype(int)
    tail = lambda x: np.asarray(x)[-first:]  # noqa: E731
    return [(tail(x)[order], tail(y)) for x, y in ((a.stats.lam, b.stats.lam), (a.stats.v, b.stats.v))], len(
        limits
    )


@pytest.mark.parametrize(
    "name",
    ["arm", *(pytest.param(n, marks=pytest.mark.all_robots) for n in ("types", "four_bar", "cassie_leg"))],
)
def test_limits_friction_and_armature_are_those_of_the_tree(name):
    """One step in both coordinates: the same impulses at limits and of friction, the same rates of all
    joints, which all have dry friction."""
    chains = {
        "arm": ("revolute", "prismatic"),
        "types": ("free", "cylindrical", "universal", "planar", "spherical", "screw"),
    }
    sys = chain(chains[name]) if name in chains else getattr(rbd.zoo, name)(dtype="float64")
    loops = None if name in chains else con.of_model(sys)
    v, tau = jnp.asarray(np.random.default_rng(5).normal(size=(2, sys.nv)))
    v = jnp.abs(v) * jnp.resize(jnp.array([-1.0, 1.0]), sys.nv)  # towards the limits of `busy`
    q = sys.q0
    if loops is not None:
        q = jax.jit(lambda q: rbd.project(sys, loops, q).value.q)(q)
        J = con.constraint_jacobian(sys, loops, q)
        v = v - jnp.linalg.pinv(J) @ (J @ v)
    sys = busy(sys.replace(q0=q))
    found, limits = one_step(sys, rbd.maximal(sys), q, v, tau, loops)
    (tree, cut), (tree_v, cut_v) = found
    assert np.abs(tree[:limits]).max() > 1e-3 and np.abs(tree[limits:]).max() > 1e-5
    np.testing.assert_allclose(cut, tree, atol=1e-9)
    np.testing.assert_allclose(cut_v, tree_v, atol=1e-10)


def servo_arm(**limits):
    b = rbd.Builder("arm")
    for k, kind in enumerate(("revolute", "prismatic")):
        b.body(f"b{k}", mass=1.0, com=(0.1, 0.02, 0.05), inertia=np.diag([0.02, 0.03, 0.04]))
        b.joint(
            f"j{k}", kind, f"b{k - 1}" if k else None, f"b{k}", xyz=(0.2, 0, 0), axis=(0, 1, 0), armature=0.02
        )
        b.actuator(f"j{k}", "position", kp=40.0, kd=3.0, gear=1.5, **limits)
    return b.build(dtype="float64")


def test_servos_are_implicit_and_bounded():
    """Strong ones are armature of dt k_d + dt² k_p on a tree; weak ones pull with what they have."""
    sys, dt = servo_arm(), 5e-3
    strong, weak = rbd.maximal(sys), rbd.maximal(servo_arm(limits=(-2.0, 1.0)))
    q, v, u = jnp.array([0.3, -0.1]), jnp.array([1.0, -2.0]), jnp.array([2.0, -2.0])
    kp, kd = 1.5**2 * 40.0, 1.5**2 * 3.0
    solver = dual.Reduced(EXACT)

    @jax.jit
    def go(q, v, u):
        def cut(m, u):
            after = rbd.step(
                m.system,
                rbd.State(*m.to_maximal(q, v)),
                integrator=rbd.HardContact(dt, RULE, solver, joints=m.joints(u)),
                constraints=m.constraints,
            )
            return after.stats

        def tree(armature, tau):
            heavy = sys.replace(armature=sys.armature + armature)
            return rbd.step(heavy, rbd.State(q, v), None, rbd.HardContact(dt, RULE, solver), tau=tau).value.v

        implicit = tree(dt * kd + dt**2 * kp, 1.5 * 40.0 * u - kp * (q + dt * v) - kd * v)
        bounded = tree(0.0, 1.5 * jnp.where(u > 0, 1.0, -2.0))
        return cut(strong, u), cut(weak, u), implicit, bounded

    strong, weak, implicit, bounded = go(q, v, u)
    m = 0.02 + dt * kd + dt**2 * kp
    pull = 0.02 * v + dt * (1.5 * 40.0 * u - kp * q)
    np.testing.assert_allclose((pull - strong.lam[-2:]) / m, implicit, atol=1e-10)
    np.testing.assert_allclose(weak.lam[-2:] / dt, 1.5 * np.array([1.5, -1.5]), rtol=1e-9)
    # the row in front of the servo is that of the armature: λ = a (v - v⁺)
    np.testing.assert_allclose(v - weak.lam[-4:-2] / 0.02, bounded, atol=1e-10)


@pytest.mark.all_robots
def test_batches_of_controls_in_float32():
    """Servos of many controls at once come where those of float64 come."""

    def ends(sys):
        m = rbd.maximal(sys)
        start = rbd.State.at_rest(m.system, m.system.q0)

        def run(u):
            integrator = rbd.HardContact(5e-3, RULE, dual.Reduced(dual.NBGS(20)), joints=m.joints(u))
            path = rbd.rollout(
                m.system, start, steps=20, integrator=integrator, constraints=m.constraints, keep="last"
            )
            return m.from_maximal(path.value.q[0])[0], path.converged

        return jax.jit(jax.vmap(run))(jnp.linspace(-1.0, 1.0, 16, dtype=sys.dtype).reshape(8, 2))

    sys = servo_arm(limits=(-20.0, 30.0))
    (double, _), (single, good) = ends(sys), ends(sys.astype("float32"))
    assert single.dtype == jnp.float32 and good.all() and np.ptp(double[:, 0]) > 0.1
    np.testing.assert_allclose(single, double, atol=2e-4)


@pytest.mark.all_robots
def test_derivatives_of_a_step():
    """By every kind of number that a joint has, in both modes, against differences."""
    sys = busy(chain(("revolute", "prismatic")))
    m = rbd.maximal(sys)
    rng = np.random.default_rng(7)
    words = ("mass", "com", "joint_position", "axis", "armature", "damping", "friction", "lower")
    ways = {w: 0.1 * jnp.asarray(rng.normal(size=getattr(sys, w).shape)) for w in words}
    tau, v = jnp.asarray(rng.normal(size=sys.nv)), jnp.array([-1.0, -0.8])  # into a limit, and slipping
    weigh = jnp.asarray(rng.normal(size=6 * sys.nb))

    def after(s):
        moved = sys.replace(**{w: getattr(sys, w) + s * ways[w] for w in words})
        moved = moved.replace(axis=moved.axis / jnp.linalg.norm(moved.axis, axis=1, keepdims=True))
        here = m.at(moved)
        state = rbd.State(*here.to_maximal(sys.q0, v))
        push = here.forces(state.q, tau)
        integrator = rbd.HardContact(2e-3, RULE, dual.Reduced(dual.NBGS(20)), joints=here.joints())
        end = rbd.step(here.system, state, None, integrator, tau=push, constraints=here.constraints)
        return weigh @ end.value.v

    h = 1e-6
    value = jax.jit(after)
    numeric = (value(h) - value(-h)) / (2 * h)
    assert abs(numeric) > 1e-3
    forward = jax.jit(lambda s: jax.jvp(after, (s,), (1.0,))[1])(0.0)
    reverse = jax.jit(jax.grad(after))(0.0)
    np.testing.assert_allclose(forward, numeric, rtol=1e-5)
    np.testing.assert_allclose(reverse, forward, rtol=1e-8)


@pytest.mark.all_robots
def test_rows_follow_placements(cut):
    """Accelerations by placements and axes of all joint types: the tree's derivative, and its differences."""
    sys, m, q, v, tau = cut
    rng = np.random.default_rng(8)
    ways = {w: 0.1 * jnp.asarray(rng.normal(size=getattr(sys, w).shape)) for w in ("joint_position", "pitch")}
    spin = jnp.asarray(rng.normal(size=(sys.nb, 3)))

    def moved(s):
        changed = {w: getattr(sys, w) + s * d for w, d in ways.items()}
        turn = jax.vmap(
            lambda a, w: rbd.joints.rotations.quaternion_product(a, rbd.joints.rotations.quaternion_exp(w))
        )
        return sys.replace(joint_quaternion=turn(sys.joint_quaternion, s * spin), **changed)

    def tree(s):
        x = moved(s)
        return bodies_accelerate(x, q[0], v[0], rbd.forward_dynamics(x, q[0], v[0], tau[0]))

    def free(s):
        x = m.at(moved(s))
        Q, V = x.to_maximal(q[0], v[0])
        return rbd.constrained_dynamics(
            x.system, Q, V, x.forces(Q, tau[0]), x.constraints, rbd.Dense()
        ).value.a

    mine = jax.jit(lambda s: jax.jvp(free, (s,), (1.0,))[1])(0.0)
    exact, h = jax.jit(lambda s: jax.jvp(tree, (s,), (1.0,)))(jnp.zeros(3)[0]), 1e-5
    value = jax.jit(tree)
    numeric = (value(h) - value(-h)) / (2 * h)
    size = np.abs(exact[1]).max()
    assert size > 1
    np.testing.assert_allclose(mine, exact[1], atol=1e-8 * size)
    np.testing.assert_allclose(mine, numeric, atol=1e-6 * size)


def geared():
    """Gear, mimic and polynomial couplings of three revolute joints and a slider."""
    b = rbd.Builder("geared")
    for k in range(4):
        b.body(f"b{k}", mass=1.0 + k, com=(0.1, 0, 0.05), inertia=np.diag([0.02, 0.03, 0.04]))
        kind = "prismatic" if k == 3 else "revolute"
        b.joint(f"j{k}", kind, f"b{k - 1}" if k else None, f"b{k}", xyz=(0.2, 0.1 * k, 0), axis=(0, k % 2, 1))
    b.gear("gear", {"j0": 1.0, "j1": -2.5})
    b.loop("cam", "coupling", "j3", "j2", coefficients=(0.1, 0.2, 0.3))
    return b.build(dtype="float64")


@pytest.mark.parametrize(
    "name",
    [
        "four_bar",
        pytest.param("cassie_leg", marks=pytest.mark.all_robots),
        pytest.param("geared", marks=pytest.mark.all_robots),
    ],
)
def test_loops_and_couplings(name):
    sys = quiet(geared() if name == "geared" else getattr(rbd.zoo, name)(dtype="float64"))
    loops, m = con.of_model(sys), rbd.maximal(sys)

    @jax.jit
    def off(q, v, tau):
        q = rbd.project(sys, loops, q).value.q
        J = con.constraint_jacobian(sys, loops, q)
        v = v - jnp.linalg.pinv(J) @ (J @ v)
        a = rbd.constrained_dynamics(sys, q, v, tau, loops, rbd.Dense()).value.a
        Q, V = m.to_maximal(q, v)
        found = rbd.constrained_dynamics(m.system, Q, V, m.forces(Q, tau), m.constraints, rbd.Dense())
        expected = bodies_accelerate(sys, q, v, a)
        size = jnp.maximum(1, jnp.max(jnp.abs(expected)))
        return (found.value.a - expected) / size, con.constraint_velocity(m.system, m.constraints, Q, V)

    v, tau = np.random.default_rng(3).normal(size=(2, sys.nv))
    for x in off(sys.q0 + (0.3 if name == "geared" else 0.0), v, tau):
        assert np.abs(x).max() < 1e-9


@pytest.mark.all_robots
@pytest.mark.parametrize("laws", [False, True])
def test_contacts_of_a_quadruped_in_both_coordinates(laws):
    """One dual problem from the tree and one from free bodies: the same velocities of the contacts; with
    limits, dry friction, armature and dampers, or without."""
    sys = quiet(rbd.zoo.quadruped(dtype="float64"))
    sys = busy(sys) if laws else sys
    m = rbd.maximal(sys)
    feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
    rng = np.random.default_rng(4)
    q = sys.q0.at[2].add(-0.01)
    v, tau = jnp.asarray(0.3 * rng.normal(size=sys.nv)), jnp.asarray(rng.normal(size=sys.nv))
    v, tau = v.at[5].set(-0.4), tau.at[:6].set(0)
    (_, (tree_v, cut_v)), _ = found, _ = one_step(sys, m, q, v, tau, feet=feet)
    assert np.abs(found[0][0][-10::3]).max() > 0.01
    np.testing.assert_allclose(cut_v, tree_v, atol=1e-10)


@pytest.mark.all_robots
def test_trajectories_meet_as_steps_shrink():
    """A swinging arm in both coordinates: the difference after 0.4 s is of first order in the step."""
    sys = quiet(chain(("revolute", "universal", "spherical")))
    m = rbd.maximal(sys)
    state = rbd.State(sys.q0, jnp.full(sys.nv, 0.5))

    def off(n):
        small = rbd.HardContact(dt=0.4 / n)
        large = rbd.HardContact(dt=0.4 / n, solver=dual.ADMM(iterations=400))
        end = rbd.rollout(sys, state, steps=n, integrator=small, keep="last").value
        cut = rbd.State(*m.to_maximal(state.q, state.v))
        cut = rbd.rollout(m.system, cut, steps=n, integrator=large, constraints=m.constraints, keep="last")
        q, _ = m.from_maximal(cut.value.q.reshape(-1))
        return jnp.max(jnp.abs(rbd.difference(sys, end.q.reshape(-1), q)))

    first, second = (float(jax.jit(off, static_argnums=0)(n)) for n in (40, 80))
    assert second < 0.06 and abs(np.log2(first / second) - 1) < 0.1


def test_what_is_unknown_is_named():
    with pytest.raises(rbd.ArgumentError, match=r"sys\.tree"):
        rbd.maximal(rbd.cluster(rbd.zoo.four_bar()))
    m = rbd.maximal(rbd.zoo.double_pendulum())
    with pytest.raises(rbd.ArgumentError, match="origin.replace"):
        m.at(rbd.zoo.four_bar())
    with pytest.raises(rbd.ArgumentError, match="joint forces"):
        m.joints(jnp.zeros(7))
    with pytest.raises(rbd.ArgumentError, match="another solver"):
        dual.Reduced(dual.Reduced())
    b = ring(3)
    with pytest.raises(rbd.ModelError, match="rbd.maximal"):
        b.build()
    with pytest.raises(rbd.ModelError, match="itself"):
        b.joint("own", "revolute", "b0", "b0")
