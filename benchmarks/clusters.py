"""Clusters beside what they replace:  python -m benchmarks.clusters [--quick] [--json FILE] [--parts NAME
...].

dynamics   C-RNEA, C-ABA and C-EFPA beside projection, Lagrange multipliers and reflected inertia on the
robots of
           [GRBDA] Fig. 8: its Tables II, III and IV as percentages, ours beside the document's
growth     chains of 2 to 24 links: Figs. 11 and 13
trees      C-ABA beside ABA of the links alone, of the open tree, and ConstrainedABA; compile times
loop       a humanoid with one loop beside the same without it
torques    Fig. 14: torques at the ankle of a humanoid's leg without rotors and with reflected inertia
mjx        a four-bar and a five-bar in MJX with soft equalities: loop error and throughput

One process, float32, batch 1024, `configure_cpu()`; contenders take turns and the best of each counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from benchmarks import report
from benchmarks.cluster_one_loop import one_loop
from benchmarks.cluster_race import BATCH, race, row, states
from jaxrbd import constraints as con

PARTS = ("trees", "loop", "dynamics", "growth", "torques", "mjx")
ROBOTS = ("geared_chain", "belt_chain", "mini_cheetah", "mit_humanoid", "tello", "jvrc1")
# [GRBDA] Tables II, III, IV: per cent more time than the cluster algorithm, in the order of ROBOTS
PAPER = {
    ("inverse", "reflected"): (-40.3, -36.2, -41.0, -42.0, -59.6, -37.7),
    ("inverse", "projection"): (38.0, 37.8, 36.7, 35.9, 22.4, 36.6),
    ("forward", "reflected"): (-34.1, -34.6, -35.3, -38.6, -49.4, -38.4),
    ("forward", "projection"): (86.8, 73.5, 21.0, 32.5, 22.2, 87.3),
    ("forward", "multipliers"): (133.1, 119.8, 76.3, 106.2, 82.7, 212.8),
    ("osim", "reflected"): (-35.7, -52.1, -28.6, -37.4, -51.4, -22.54),
    ("osim", "projection"): (51.8, 6.3, 19.0, 23.2, 7.80, 107.4),
}


def links_of(sys: rbd.System):
    """Reflected inertia where it exists, else None."""
    try:
        return rbd.reflected(sys)[0]
    except rbd.ArgumentError:
        return None


def feet(sys: rbd.System) -> list[str]:
    """Ends of limbs: bodies that carry nothing and are no rotors."""
    t = sys.topology
    tips = [t.body_names[b] for b in range(t.nb) if b not in t.parents and b not in t.folded]
    return tips[:4]


def projected_inverse(sys: rbd.System):
    tree = sys.tree

    def f(q, v, a):
        q_t, v_t = rbd.to_tree(sys, q, v)
        G = rbd.loop_jacobian(sys, q)
        return G.T @ rbd.inverse_dynamics(tree, q_t, v_t, G @ a + rbd.loop_bias(sys, q, v))

    return f


def projected_osim(sys: rbd.System, rows):
    def f(q):
        J = con.constraint_jacobian(sys, rows, q)
        return J @ jax.scipy.linalg.solve(rbd.mass_matrix(sys, q), J.T, assume_a="pos")

    return f


def dynamics(rounds: int, robots=ROBOTS) -> list[dict]:
    rows = []
    for k, name in enumerate(robots):
        tree = getattr(rbd.zoo, name)()
        sys = rbd.cluster(tree)
        q, v, tau = states(sys)
        q_t, v_t = jax.vmap(lambda q, v, sys=sys: rbd.to_tree(sys, q, v))(q, v)
        links, loops = links_of(sys), con.of_model(tree)
        ends = con.combine(*(con.connect(sys, foot) for foot in feet(sys)))
        full = jnp.zeros((BATCH, tree.nv), jnp.float32)
        parts = {
            "inverse": {
                "clusters": (lambda q, v, a, s=sys: rbd.inverse_dynamics(s, q, v, a), (q, v, tau)),
                "projection": (projected_inverse(sys), (q, v, tau)),
            },
            "forward": {
                "clusters": (lambda q, v, t, s=sys: rbd.forward_dynamics(s, q, v, t), (q, v, tau)),
                "projection": (lambda q, v, t, s=sys: rbd.projected_dynamics(s, q, v, t), (q, v, tau)),
                "multipliers": (
                    lambda q, v, t, s=tree, c=loops: (
                        rbd.constrained_dynamics(s, q, v, t, c, rbd.Classic()).value.a
                    ),
                    (q_t, v_t, full),
                ),
            },
            "osim": {
                "clusters": (lambda q, s=sys, e=ends: con.delassus_matrix(s, e, q), (q,)),
                "projection": (projected_osim(sys, ends), (q,)),
            },
        }
        if links is not None:
            held = con.combine(*(con.connect(links, foot) for foot in feet(sys)))
            own = jnp.tile(links.q0, (BATCH, 1))
            parts["inverse"]["reflected"] = (
                lambda q, v, a, s=links: rbd.inverse_dynamics(s, q, v, a),
                (own, v, tau),
            )
            parts["forward"]["reflected"] = (
                lambda q, v, t, s=links: rbd.forward_dynamics(s, q, v, t),
                (own, v, tau),
            )
            parts["osim"]["reflected"] = (
                lambda q, s=links, e=held: con.delassus_matrix(s, e, q, "efpa"),
                (own,),
            )
        for what, contenders in parts.items():
            best = race(contenders, rounds)
            for other in sorted(set(best) - {"clusters"}):
                percent = 100 * (best[other] / best["clusters"] - 1)
                paper = PAPER.get((what, other), (None,) * len(ROBOTS))[ROBOTS.index(name)]
                print(
                    f"{name:14s} {what:8s} {other:12s} {percent:+7.0f} %   document {paper:+.0f} %   "
                    f"({1e6 * best['clusters'] / BATCH:.2f} us a state)",
                    flush=True,
                )
                rows.append(row(f"{name}, {what}", best["clusters"], best[other], other, document=paper))
        del k
    return rows


def growth(rounds: int, sizes=(2, 4, 8, 12, 24)) -> list[dict]:
    rows = []
    for family in ("geared_chain", "belt_chain"):
        for n in sizes:
            sys = rbd.cluster(getattr(rbd.zoo, family)(n))
            q, v, tau = states(sys)
            tip = con.connect(sys, feet(sys)[0])
            best = race(
                {
                    "C-ABA": (lambda q, v, t, s=sys: rbd.forward_dynamics(s, q, v, t), (q, v, tau)),
                    "projection": (lambda q, v, t, s=sys: rbd.projected_dynamics(s, q, v, t), (q, v, tau)),
                    "C-EFPA": (lambda q, s=sys, e=tip: con.delassus_matrix(s, e, q), (q,)),
                    "projected EFPA": (projected_osim(sys, tip), (q,)),
                },
                rounds,
            )
            print(
                f"{family:13s} {n:3d} links: "
                + ", ".join(f"{k} {1e6 * x / BATCH:.2f} us" for k, x in best.items())
            )
            rows.append(row(f"{family} {n}, Fig. 11", best["C-ABA"], best["projection"], "projection"))
            rows.append(row(f"{family} {n}, Fig. 13", best["C-EFPA"], best["projected EFPA"], "projection"))
    return rows


def trees(rounds: int) -> list[dict]:
    """C-ABA beside ABA of fewer or more joints: what a loop costs."""
    rows = []
    models = {f"geared_chain {n}": rbd.zoo.geared_chain(n) for n in (6, 12, 48)}
    models |= {"belt_chain 12": rbd.zoo.belt_chain(12)}
    models |= {f"four-bars on {m}s": rbd.zoo.linkage_chain(4, mount=m) for m in ("coupler", "rocker")}
    models |= {"jvrc1": rbd.zoo.jvrc1()}
    for name, tree in models.items():
        sys = rbd.cluster(tree)
        q, v, tau = states(sys)
        q_t, v_t = jax.vmap(lambda q, v, sys=sys: rbd.to_tree(sys, q, v))(q, v)
        full = jnp.zeros((BATCH, tree.nv), jnp.float32)
        loops = con.of_model(tree)
        contenders = {
            "C-ABA": (lambda q, v, t, s=sys: rbd.forward_dynamics(s, q, v, t), (q, v, tau)),
            "ABA of the open tree": (
                lambda q, v, t, s=tree: rbd.forward_dynamics(s, q, v, t),
                (q_t, v_t, full),
            ),
            "projection": (lambda q, v, t, s=sys: rbd.projected_dynamics(s, q, v, t), (q, v, tau)),
            "ConstrainedABA": (
                lambda q, v, t, s=tree, c=loops: rbd.constrained_dynamics(s, q, v, t, c).value.a,
                (q_t, v_t, full),
            ),
        }
        links = links_of(sys)
        if links is not None:
            own = jnp.tile(links.q0, (BATCH, 1))
            contenders["ABA of the links"] = (
                lambda q, v, t, s=links: rbd.forward_dynamics(s, q, v, t),
                (own, v, tau),
            )
        compiled = {}
        for key in ("C-ABA", "ABA of the open tree"):
            f, args = contenders[key]
            start = time.perf_counter()
            jax.jit(jax.vmap(lambda *x, f=f: f(*x))).lower(*args).compile()
            compiled[key] = time.perf_counter() - start
        best = race(contenders, rounds)
        text = ", ".join(f"{k} {best[k] / best['C-ABA']:.2f}" for k in best if k != "C-ABA")
        ratio = compiled["C-ABA"] / compiled["ABA of the open tree"]
        own = f"{name:20s} C-ABA {1e6 * best['C-ABA'] / BATCH:.2f} us"
        print(f"{own}; times of others: {text}; compile {ratio:.2f} x tree", flush=True)
        rows += [row(name, best["C-ABA"], x, k) for k, x in best.items() if k != "C-ABA"]
        rows.append(
            row(
                f"{name}, compile",
                compiled["C-ABA"],
                compiled["ABA of the open tree"],
                "ABA of the open tree",
            )
        )
    return rows


def torques() -> list[dict]:
    """rms error over the largest torque at the left ankle, joints in phase, 0.5 rad at 1.5 Hz."""
    with jax.enable_x64(True):
        sys = rbd.cluster(rbd.zoo.mit_humanoid(dtype="float64"))
        links, H = rbd.reflected(sys)
        bare = links.replace(armature=links.armature - jnp.diag(H))
        moving = (np.arange(sys.nv) >= 6).astype(float)
        w, A = 2 * np.pi * 1.5, 0.5

        @jax.jit
        @jax.vmap
        def torque(t):
            x, v, a = (
                A * jnp.sin(w * t),
                A * w * jnp.cos(w * t) * moving,
                -A * w * w * jnp.sin(w * t) * moving,
            )
            q, own = rbd.integrate(sys, sys.q0, x * moving), rbd.integrate(links, links.q0, x * moving)
            plain = rbd.inverse_dynamics(bare, own, v, a)
            return (
                rbd.inverse_dynamics(sys, q, v, a),
                plain,
                rbd.inverse_dynamics(links, own, v, a),
                plain + H @ a,
            )

        k = sys.v_index(next(j for j in sys.joint_names if "ankle" in j and "rotor" not in j)).start
        exact, *others = (np.asarray(x)[:, k] for x in torque(jnp.linspace(0, 2 / 1.5, 400)))
    rows = []
    for name, x, paper in zip(("no rotors", "diagonal", "block"), others, ("39.2 %", "9.5 %", "-")):
        error = float(np.sqrt(np.mean((x - exact) ** 2)) / np.abs(exact).max())
        print(f"Fig. 14, {name:10s} {100 * error:5.1f} %   document: unconstrained 39.2 %, approximate 9.5 %")
        rows.append({"case": f"Fig. 14, {name}", "metric": "rms / max", "ours": error, "peer": paper})
    return rows


FOUR_BAR = """<mujoco><option timestep="0.001"/><worldbody>
<body name="crank"><joint name="a" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .2" size=".02"/>
  <body name="coupler" pos="0 0 .2"><joint name="b" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 .05"
  size=".02"/> </body></body>
<body name="rocker" pos=".3 0 0"><joint name="c" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .25"
size=".02"/></body> </worldbody><equality><connect body1="coupler" body2="rocker" anchor=".3 0
.05"/></equality></mujoco>"""
FIVE_BAR = """<mujoco><option timestep="0.001"/><worldbody>
<body name="left"><joint name="a" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 -.1 0 -.2" size=".02"/>
  <body name="shin" pos="-.1 0 -.2"><joint name="b" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .15 0
  -.2" size=".02"/> </body></body>
<body name="right" pos=".1 0 0"><joint name="c" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .1 0 -.2"
size=".02"/>
  <body name="rod" pos=".1 0 -.2"><joint name="d" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 -.15 0 -.2"
  size=".02"/> </body></body>
</worldbody><equality><connect body1="shin" body2="rod" anchor=".15 0 -.2"/></equality></mujoco>"""


def against_mjx(rounds: int, steps: int = 200) -> list[dict]:
    import mujoco
    from mujoco import mjx

    rows = []
    for name, text in (("four-bar", FOUR_BAR), ("five-bar", FIVE_BAR)):
        model = mujoco.MjModel.from_xml_string(text)
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        peer, blank = mjx.put_model(model), mjx.make_data(model)
        sys = rbd.load(text, loops="cluster", dtype="float32")
        q_t = rbd.to_tree(sys, sys.q0)
        push = 1.0 + np.linspace(0, 1, BATCH)
        v = jnp.asarray(push[:, None] * np.ones(sys.nv), jnp.float32)
        v_t = jax.vmap(lambda v, sys=sys: rbd.to_tree(sys, sys.q0, v)[1])(v)
        one = {name: sys.joint_names.index(name) for name in sys.joint_names}
        order = np.array([one[model.joint(i).name] for i in range(model.njnt)])
        gap = con.of_model(sys.tree)

        def ours(v, sys=sys):
            path = rbd.rollout(sys, rbd.State(sys.q0, v), steps=steps, keep="last")
            return rbd.to_tree(sys, path.value.q[0])

        def theirs(v, peer=peer, blank=blank, order=order, q_t=q_t):
            data = blank.replace(qpos=q_t[order], qvel=v[order])
            return jax.lax.scan(lambda d, _: (mjx.step(peer, d), None), data, length=steps)[0].qpos[
                np.argsort(order)
            ]

        best = race({"ours": (ours, (v,)), "MJX": (theirs, (v_t,))}, max(2, rounds // 4))
        error = lambda q, gap=gap, sys=sys: jnp.max(jnp.abs(con.constraint_error(sys.tree, gap, q)))  # noqa: E731
        worst = [float(jax.vmap(error)(jax.jit(jax.vmap(f))(x)).max()) for f, x in ((ours, v), (theirs, v_t))]
        speed = {k: BATCH * steps / x for k, x in best.items()}
        print(
            f"{name}: loop error ours {worst[0]:.1e} m, MJX {worst[1]:.1e} m; "
            f"ours {speed['ours'] / 1e3:.0f} k steps/s, {speed['ours'] / speed['MJX']:.1f} x MJX"
        )
        rows.append(row(f"{name}, steps", best["ours"], best["MJX"], "MJX"))
        rows.append(
            {
                "case": f"{name}, loop error",
                "metric": "m",
                "ours": worst[0],
                "peer": worst[1],
                "peer_name": "MJX",
            }
        )
    return rows


def elsewhere(part: str) -> list[dict]:
    """One part in another process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        subprocess.run(
            [sys.executable, "-m", "benchmarks.clusters", "--parts", part, "--json", str(file)], check=True
        )
        return json.loads(file.read_text())


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the chains alone, few rounds")
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore", rbd.ModelWarning)
    # XLA's multi-output fusion aborts on MJX, so that part has a process of its own without it
    rbd.configure_cpu(fusion=chosen.parts != ["mjx"])
    rounds = 5 if chosen.quick else 20
    parts = chosen.parts or (("trees",) if chosen.quick else PARTS)
    run = {
        "dynamics": lambda: dynamics(rounds),
        "growth": lambda: growth(rounds),
        "trees": lambda: trees(rounds),
        "loop": lambda: one_loop(rounds),
        "torques": torques,
        "mjx": lambda: against_mjx(rounds) if chosen.parts == ["mjx"] else elsewhere("mjx"),
    }
    print(report.machine())
    rows = [r for part in parts for r in run[part]()]
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
