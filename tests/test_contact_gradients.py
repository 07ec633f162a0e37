"""Derivatives of a step with impulses, modes held, of every kind of row by every kind of number;
`linearize`, warm-started rollouts.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd import contact, dual

DT = 2e-3
# two balls, one of which is tied to the other by a rod's end, a link at its limit, a link with dry friction
BALLS = ("left", "right")


def scene():
    """A forest: two balls over the ground, a held body, a link near its limit, a link with dry friction."""
    b = rbd.Builder("scene")
    for k, name in enumerate(BALLS):
        b.body(name, 1.0 + k, shapes=[b.sphere(0.1)])
        b.joint(f"{name} root", "free", None, name)
    b.body("held", 1.5, inertia=np.diag([0.1, 0.2, 0.3]))
    b.joint("held root", "free", None, "held")
    for name, more in (("stopped", {"limits": (-1.0, 0.4)}), ("rubbed", {"friction": 4.0})):
        b.body(name, 1.0, com=(0.3, 0, 0), inertia=np.diag([0.01, 0.1, 0.1]))
        b.joint(name, "revolute", None, name, axis=(0, 1, 0), **more)
    sys = b.build(dtype="float64")
    return sys, con.connect(sys, "held", offset=(0.1, 0.05, -0.1), anchor=(0, 0, 0))


def states(sys):
    """(modes, nq), (modes, nv), names: what the left ball, the stopped link and the rubbed link do."""
    still = np.asarray(sys.q0)
    q, v, names = [], [], []
    # height over the ground, velocity of the balls; angle and rate of the links
    modes = {
        "stick": (-1e-4, (0.01, 0, -0.3), 0.4003, 1.0, 0.0),
        "slip": (-1e-4, (2.0, 1.0, -0.3), 0.4003, 1.0, 3.0),
        "bounce": (1e-4, (1.0, -1.0, -2.0), 0.399, 2.0, 3.0),
        "open": (0.05, (1.0, 0.0, -0.3), 0.1, 1.0, -3.0),
        "reached": (2e-4, (0.02, 0.01, -0.4), 0.3985, 1.0, -3.0),
    }
    for name, (gap, u, angle, rate, rub) in modes.items():
        x, w = still.copy(), np.zeros(sys.nv)
        x[:3], x[7:10] = (0, 0, 0.1 + gap), (1, 0, 0.1 - 2e-4)
        x[14:17] = -np.array([0.1, 0.05, -0.1])
        x[21] = angle
        w[3:6], w[9:12], w[12:15] = u, (0.5, 0.1, -0.2), (0.5, -1.0, 2.0)
        w[15:18] = np.cross(w[12:15], x[14:17])
        w[18], w[19] = rate, rub
        q.append(x), v.append(w), names.append(name)
    return jnp.array(q), jnp.array(v), names


@pytest.mark.all_robots
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scheme": "midpoint"},
        {"soft": contact.Soft(limits=contact.Softening(), contacts=contact.CFM(1e-3))},
    ],
    ids=["hard", "midpoint", "soft"],
)
def test_derivatives_with_modes_held(options):
    """v⁺ by state, torques, masses, friction, restitution, ground, radii, limits, dry friction."""
    sys, held = scene()
    q, v, names = states(sys)
    solver = dual.NBGS(iterations=60)
    integrator = rbd.HardContact(DT, solver=solver, **options)
    numbers = {
        "dq": jnp.zeros(sys.nv),
        "dv": jnp.zeros(sys.nv),
        "tau": jnp.zeros(sys.nv),
        "mass": sys.mass,
        "friction": jnp.array([0.4, 0.6]),
        "restitution": jnp.array([0.5, 0.3]),
        "radius": jnp.array([0.1, 0.1]),
        "offset": jnp.zeros((2, 3)),
        "normal": jnp.array([0.0, 0.0, 1.0]),
        "height": jnp.array(0.0),
        "upper": sys.upper,
        "rub": sys.friction,
        "place": held.position_a[0],
    }
    # limits at infinity have no derivative; of dry friction only the row that there is
    numbers["upper"], numbers["rub"] = sys.upper[18], sys.friction[19]
    base, unravel = ravel_pytree(numbers)

    def after(x, q, v):
        p = unravel(x)
        model = sys.replace(
            mass=p["mass"], upper=sys.upper.at[18].set(p["upper"]), friction=sys.friction.at[19].set(p["rub"])
        )
        zero = jnp.zeros(2)
        ground = contact.OnPlane(
            p["offset"], p["radius"], p["normal"], p["height"], jnp.stack([p["friction"], zero, zero], 1),
            p["restitution"], BALLS, (3, 3),
        )  # fmt: skip
        loops = held.replace(position_a=held.position_a.at[0].set(p["place"]))
        state = rbd.State(rbd.integrate(sys, q, p["dq"]), v + p["dv"])
        end = rbd.step(
            model, state, integrator=integrator, contacts=ground, constraints=loops, tau=p["tau"]
        )  # fmt: skip
        return end.value.v, (end.stats.lam, end.stats.v, end.stats.residual)

    h = 1e-6

    @jax.jit
    @jax.vmap
    def everything(q, v):
        forward, aux = jax.jacfwd(lambda x: after(x, q, v), has_aux=True)(base)
        reverse = jax.jacrev(lambda x: after(x, q, v)[0])(base)
        moved = h * jnp.concatenate([jnp.eye(len(base)), -jnp.eye(len(base))])
        ends = jax.lax.map(lambda d: after(base + d, q, v)[0], moved)
        up, down = ends[: len(base)], ends[len(base) :]
        return forward, reverse, ((up - down) / (2 * h)).T, aux

    forward, reverse, differences, (lam, rows, residual) = everything(q, v)
    assert residual.max() < 1e-10
    for k, name in enumerate(names):
        scale = np.maximum(1, np.abs(differences[k]).max(0))  # of every number
        np.testing.assert_allclose(forward[k] / scale, differences[k] / scale, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(reverse[k] / scale, forward[k] / scale, atol=1e-9, err_msg=name)
    modes_seen(names, np.asarray(lam), np.asarray(rows), options)


def modes_seen(names, lam, rows, options):
    """The modes are what their names say: rows are three of the joint, a limit and a box per link."""
    assert np.abs(lam[:, :3]).max(1).min() > 1e-4  # the joint holds
    of = {name: k for k, name in enumerate(names)}
    normal, slip = lam[:, 9], np.linalg.norm(rows[:, 7:9], axis=1)
    if not options:
        assert normal[of["open"]] == 0 and lam[of["open"], 3] == 0
        assert (normal[[of[n] for n in ("stick", "slip", "bounce", "reached")]] > 0).all()
        assert slip[of["stick"]] < 1e-9 < 1e-2 < slip[of["slip"]]
        assert lam[of["stick"], 3] > 0 and lam[of["bounce"], 3] > 0
        assert abs(rows[of["stick"], 6]) < 1e-9 and abs(rows[of["slip"], 6]) > 1


@pytest.mark.all_robots
def test_linearize():
    """A and B of a step against differences, in every mode."""
    sys, held = scene()
    q, v, _ = states(sys)
    ground = contact.on_plane(sys, list(BALLS), radius=0.1, friction=0.5, restitution=0.3)
    integrator = rbd.HardContact(DT, solver=dual.NBGS(iterations=60))
    more = {"integrator": integrator, "contacts": ground, "constraints": held}
    tau = jnp.zeros(sys.nv)
    h = 1e-6

    @jax.jit
    @jax.vmap
    def both(q, v):
        A, B = rbd.linearize(sys, rbd.State(q, v), tau, **more)

        def end(d):
            n = sys.nv
            moved = rbd.State(rbd.integrate(sys, q, d[:n]), v + d[n : 2 * n])
            x = rbd.step(sys, moved, tau + d[2 * n :], **more).value
            return x.q, x.v

        d = h * jnp.eye(3 * sys.nv)
        up, down = jax.lax.map(end, d), jax.lax.map(end, -d)
        dq = jax.vmap(lambda a, b: rbd.difference(sys, b, a))(up[0], down[0])
        return jnp.concatenate([A, B], 1), jnp.concatenate([dq, up[1] - down[1]], 1).T / (2 * h)

    found, wanted = both(q[:4], v[:4])
    for k in range(4):
        np.testing.assert_allclose(found[k], wanted[k], atol=1e-6 * max(1, np.abs(wanted[k]).max()))


def test_a_rollout_starts_each_solve_from_the_last():
    """A box on four corners, few sweeps: cut in two it goes on as if whole; without memory it errs more."""
    b = rbd.Builder("box")
    b.body("box", 2.0, shapes=[b.box(0.2, 0.2, 0.2)])
    b.joint("root", "free", None, "box")
    sys = b.build(dtype="float64")
    corners = [(x, y, -0.1) for x in (-0.1, 0.1) for y in (-0.1, 0.1)]
    ground = contact.on_plane(sys, ["box"] * 4, corners, normal=(0.2, 0, 1.0), friction=0.6)
    few = rbd.HardContact(DT, solver=dual.NBGS(iterations=2))
    go = jax.jit(lambda s, n: rbd.rollout(sys, s, steps=n, integrator=few, contacts=ground), static_argnums=1)
    turn = np.arctan(0.2) / 2
    start = rbd.State(jnp.array([0.0196, 0, 0.098, np.cos(turn), 0, np.sin(turn), 0]), jnp.zeros(6))
    whole, half = go(start, 80), go(start, 40)
    last = jax.tree.map(lambda x: x[-1], half.value)
    rest, cold = go(last, 40), go(rbd.State(last.q, last.v), 40)
    np.testing.assert_allclose(rest.value.v, whole.value.v[40:], atol=1e-13)
    assert rest.stats.residual[0] < 0.5 * cold.stats.residual[0]
