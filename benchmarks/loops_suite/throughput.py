"""Problems per second on a quadruped on its feet, and beside MJX's step:  --parts throughput.

Batch 4096, float32, one XLA device per core, each contender in a process of its own: ours with XLA's
multi-output fusion and without it, MJX without (its program aborts under it). The quadruped of the zoo, four
feet of dimension 3, 12 rows, in minimal coordinates; seed 0; standing pose and 0.3 rad (1 sigma) per joint
and of the base's rotation, 0.3 m of its place; velocities 1 rad/s and 1 m/s, torques 5 N m; friction 0.3
to 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd
from benchmarks.loops_suite.solvers import solvers
from jaxrbd import constraints as con
from jaxrbd import dual

BATCH, DT = 4096, 2e-3
LEGS = ("FL", "FR", "RL", "RR")
# what each makes: about what brings 90 % of these problems as far as the solver goes
ITERATIONS = {
    "PGS-CCP": 50, "PGS-NCP": 25, "NBGS": 8, "RAISIM": 8, "RAISIM-DS": 25, "RAISIM-DS-ES": 25, "ADMM-CCP": 50,
    "ADMM-NCP-FP": 50, "ADMM-NCP-LA": 100, "ADMM-NCP-SA": 100, "NBGS exact": 8, "ADMM balanced": 100,
}  # fmt: skip
MJX_ITERATIONS, MJX_LINE_SEARCH = 4, 8


def quadruped() -> rbd.System:
    return rbd.zoo.quadruped(dtype="float32")


def states(sys: rbd.System, batch: int):
    rng = np.random.default_rng(0)
    d = 0.3 * rng.normal(size=(batch, sys.nv))
    v, tau = rng.normal(size=(2, batch, sys.nv)) * np.array([1.0, 5.0])[:, None, None]
    tau[:, :6] = 0
    mu = rng.uniform(0.3, 1, size=(batch, 4))
    return [jnp.asarray(x, jnp.float32) for x in (d, v, tau, mu)]


def best_of(run, args, rounds: int) -> float:
    """Seconds of the best call."""
    jax.block_until_ready(run(*args))
    best = np.inf
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(run(*args))
        best = min(best, time.perf_counter() - start)
    return best


def ours(batch: int, rounds: int) -> list[dict]:
    """Every solver on problems that are there; D and v_f; both together."""
    sys = quadruped()
    feet = con.combine(*(con.connect(sys, f"{leg}_foot") for leg in LEGS))
    d, v, tau, mu = states(sys, batch)
    spread = lambda f: rbd.spread(f)  # noqa: E731
    q = spread(lambda d: rbd.integrate(sys, sys.q0, d))(d)

    def matrix(q):
        D = con.delassus_matrix(sys, feet, q, "pvr")
        return 0.5 * (D + D.T)

    def free(q, v, tau):
        a = rbd.forward_dynamics(sys, q, v, tau)
        return con.constraint_velocity(sys, feet, q, v + DT * a)

    def solved(solver, D, v_f, mu):
        found = dual.solve(dual.problem(D, v_f, mu, contacts=(3,) * 4), solver)
        r = found.stats.residuals
        return found.value.lam, r.ncp if solver.model == "ncp" else r.ccp, r.ncp

    D, v_f = spread(matrix)(q), spread(free)(q, v, tau)
    rows = []

    def add(what: str, run, args, residual=None, **more):
        seconds = best_of(run, args, rounds)
        row = {"case": what, "per second": batch / seconds, **more}
        if residual is not None:
            own, ncp = (np.asarray(x, float) for x in residual)
            row |= {"residual 90 %": float(np.quantile(own, 0.9)), "residual max": float(own.max())}
            row["NCP residual 90 %"] = float(np.quantile(ncp, 0.9))
        rows.append(row)

    for name, solver in fixed().items():
        run = spread(lambda D, v_f, mu, s=solver: solved(s, D, v_f, mu))
        add(name, run, (D, v_f, mu), run(D, v_f, mu)[1:], iterations=solver.iterations)
    add("D", spread(matrix), (q,))
    add("v_f: forward dynamics and J", spread(free), (q, v, tau))
    best = dual.NBGS(iterations=8)
    add("D, NBGS exact", spread(lambda q, v_f, mu: solved(best, matrix(q), v_f, mu)[0]), (q, v_f, mu))
    whole = spread(lambda q, v, tau, mu: solved(best, matrix(q), free(q, v, tau), mu)[0])
    add("D, v_f, NBGS exact", whole, (q, v, tau, mu))
    return rows


def fixed() -> dict[str, dual.Solver]:
    """The twelve solvers with a fixed number of iterations each; early stopping needs its tolerance."""
    from dataclasses import replace

    made = {}
    for name, solver in solvers(1e-4, 1).items():
        tolerance = solver.tolerance if name.endswith("-ES") else None
        made[name] = replace(solver, iterations=ITERATIONS[name], tolerance=tolerance)
    return made


def mjx(batch: int, rounds: int) -> list[dict]:
    """MJX's step of the same robot: four spheres on a plane, elliptic cones, Newton; nothing else collides,
    no limits, no dry friction."""
    import mujoco
    from mujoco import mjx

    sys = quadruped()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.ModelWarning)
        spec = mujoco.MjSpec.from_string(rbd.to_urdf(sys))  # its free joint "root" included
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.fusestatic = True
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    for leg in LEGS:
        spec.body(f"{leg}_calf").add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.022, 0, 0], pos=[0, 0, -0.213], contype=1,
            conaffinity=0, condim=3, mass=0,
        )  # fmt: skip
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=0, conaffinity=1, condim=3
    )
    spec.option.timestep, spec.option.cone = DT, mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    spec.option.iterations, spec.option.ls_iterations = MJX_ITERATIONS, MJX_LINE_SEARCH
    bit = mujoco.mjtDisableBit
    spec.option.disableflags = bit.mjDSBL_LIMIT | bit.mjDSBL_FRICTIONLOSS | bit.mjDSBL_EULERDAMP
    model = spec.compile()
    put, blank = mjx.put_model(model), mjx.make_data(model)
    d, v, tau, _ = states(sys, batch)
    joints = np.array([model.joint(j).qposadr[0] for j in sys.joint_names if j != "root"])
    order = np.array([list(sys.joint_names).index(model.joint(i).name) - 1 for i in range(1, model.njnt)])
    home = np.asarray(model.qpos0).copy()
    home[:3] = np.asarray(sys.q0[:3])
    home[joints] = np.asarray(sys.q0[7:])

    def step(d, v, tau):
        qpos = jnp.asarray(home, jnp.float32).at[7:].add(d[6:][order])
        qvel = jnp.concatenate([v[3:6], v[:3], v[6:][order]])
        force = jnp.concatenate([jnp.zeros(6), tau[6:][order]])
        data = mjx.step(put, blank.replace(qpos=qpos, qvel=qvel, qfrc_applied=force))
        return data.qpos, data.qvel

    seconds = best_of(rbd.spread(step), (d, v, tau), rounds)
    settings = f"elliptic, Newton, {MJX_ITERATIONS} iterations, {MJX_LINE_SEARCH} line search, {DT} s"
    return [{"case": "MJX step", "per second": batch / seconds, "settings": settings}]


def run(quick: bool = False) -> dict:
    """Each contender in its own process; {contender: rows}, printed."""
    found = {}
    for contender in ("ours, fused", "ours, plain", "mjx"):
        command = [
            sys.executable,
            "-m",
            "benchmarks.loops_suite.throughput",
            contender,
            *(["--quick"] * quick),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"left out: {contender}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
            continue
        found[contender] = json.loads(done.stdout.splitlines()[-1])
        print(f"\n{contender}")
        for row in found[contender]:
            more = ", ".join(f"{k} {v:.2g}" if isinstance(v, float) else f"{k} {v}"
                             for k, v in row.items() if k not in ("case", "per second"))  # fmt: skip
            print(f"{row['case']:30s} {row['per second'] / 1e3:9.1f} k/s   {more}")
    if "mjx" in found:
        peer = found["mjx"][0]["per second"]
        for contender in ("ours, fused", "ours, plain"):
            for row in found.get(contender, []):
                if row["case"].startswith("D, "):
                    print(f"{contender}: {row['case']}: {row['per second'] / peer:.1f} x MJX's step (aim 8)")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("contender")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    rbd.configure_cpu(fusion=chosen.contender == "ours, fused")
    batch, rounds = (512, 2) if chosen.quick else (BATCH, 8)
    rows = mjx(batch, rounds) if chosen.contender == "mjx" else ours(batch, rounds)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
