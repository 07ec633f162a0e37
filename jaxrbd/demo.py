"""`jaxrbd demo`: one robot arm, three things that the library is for, one figure.

1. A batch: thousands of arms fall from the same pose with different velocities, on all cores.
2. A gradient: torques are improved by descent through the whole simulation until the tool hits a target.
3. A law: without forces other than gravity, the energy stays what it was.
"""

from __future__ import annotations

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrbd as rbd
from jaxrbd.commands.plots import COLOURS, INK, figure
from jaxrbd.commands.simulate import si, simulate
from jaxrbd.devices import configure_cpu
from jaxrbd.errors import ArgumentError

TARGET = np.array([0.35, -0.45, 0.75])  # where the tool shall be [m]
HORIZON, STEP, KNOTS = 0.8, 0.01, 9  # seconds, seconds, points between which the torques are interpolated


def run(out: Path, quick: bool = False) -> int:
    """The whole demo; returns the exit code: 0 if cost and energy behaved."""
    if out.suffix != ".png":
        raise ArgumentError(f"{out}: the file name does not end in .png. Rename it.")
    if not out.resolve().parent.is_dir():
        raise ArgumentError(f"{out}: the folder {out.parent} does not exist. Create it first.")
    import matplotlib  # noqa: F401  fail before the work, not after it

    started = time.perf_counter()
    configure_cpu(fusion=False)  # gradients are taken here, and XLA's fusion pass may abort on their scatters
    jax.config.update("jax_enable_x64", True)  # for the energy check; the rest asks for float32
    fall = batch_of_arms(*((512, 200) if quick else (4096, 500)))
    reach = reach_target(30 if quick else 150)
    energy = energy_check(1.0 if quick else 3.0)
    draw(out, fall, reach, energy)
    print(f"figure   {out} ({time.perf_counter() - started:.0f} s in all)")
    better = reach["cost"][-1] < 0.5 * reach["cost"][0]
    return 0 if better and energy["worst"] < 1e-6 else 1


def batch_of_arms(batch: int, steps: int, dt: float = 2e-3) -> dict:
    """Arms released from the home pose; counts steps per second in float32."""
    sys = rbd.zoo.arm7(dtype=jnp.float32)
    v = jax.random.normal(jax.random.key(0), (batch, sys.nv), sys.dtype)
    state = rbd.State(jnp.broadcast_to(sys.q0, (batch, sys.nq)), v)
    integrator = rbd.SemiImplicitEuler(dt=dt)
    result = simulate(sys, state, integrator, steps, keep=5, first=256, label="batch   ")
    rate = batch * steps / result["seconds"]
    tool = jax.jit(jax.vmap(jax.vmap(lambda q: rbd.frame_pose(sys, q, "tool")[1])))(jnp.asarray(result["q"]))
    print(
        f"batch    {batch} arms x {steps} steps of {dt * 1e3:g} ms in {result['seconds']:.2f} s: "
        f"{si(rate)} steps/s "
        f"({result['devices']} devices, float32, compiled in {result['compile_seconds']:.1f} s)"
    )
    return {"tool": np.asarray(tool), "rate": rate, "batch": batch, "seconds": steps * dt}


def reach_target(iterations: int) -> dict:
    """Descend on the torque knots: tool at the target and at rest in the end, and a calm way there."""
    sys = rbd.zoo.arm7(dtype=jnp.float32)
    sys = sys.replace(friction=jnp.zeros(sys.nv))
    steps, target = round(HORIZON / STEP), jnp.asarray(TARGET, sys.dtype)
    start = rbd.State(sys.q0, jnp.zeros(sys.nv, sys.dtype))
    hold = rbd.gravity_force(sys, sys.q0)  # and knots in units of 10 rad/s², so that no joint is favoured
    scale = 10 * jnp.diag(rbd.mass_matrix(sys, sys.q0))
    weights = jnp.asarray(interpolation(steps, KNOTS), sys.dtype)

    def trajectory(knots):
        controls = hold + scale * (weights @ knots)
        return rbd.rollout(sys, start, controls, rbd.SemiImplicitEuler(dt=STEP)).value

    def cost(knots):
        path = trajectory(knots)
        end = jax.tree.map(lambda x: x[-1], path)
        miss = rbd.frame_pose(sys, end.q, "tool")[1] - target
        return miss @ miss + 0.01 * end.v @ end.v + 1e-4 * jnp.mean(path.v**2), jnp.linalg.norm(miss)

    optimiser = optax.adam(optax.cosine_decay_schedule(0.05, iterations))

    @jax.jit
    def improve(knots, memory):
        (value, miss), slope = jax.value_and_grad(cost, has_aux=True)(knots)
        update, memory = optimiser.update(slope, memory)
        return optax.apply_updates(knots, update), memory, value, miss

    first = knots = jnp.zeros((KNOTS, sys.nv), sys.dtype)
    memory, costs, began = optimiser.init(knots), [], time.perf_counter()
    for _ in range(iterations):
        knots, memory, value, miss = improve(knots, memory)
        costs.append(float(value))
        if len(costs) == 1:
            first_miss, compiled = float(miss), time.perf_counter()
    now = time.perf_counter()
    print(
        f"gradient {iterations} descents through {steps} steps in {now - compiled:.1f} s "
        f"(compiled in {compiled - began:.1f} s): cost {costs[0]:.3f} -> {costs[-1]:.5f}, "
        f"tool misses by {1e3 * first_miss:.0f} -> {1e3 * float(miss):.1f} mm"
    )

    def skeleton(q):
        points = rbd.forward_kinematics(sys, q)[1]
        return jnp.concatenate(
            [jnp.zeros((1, 3), sys.dtype), points, rbd.frame_pose(sys, q, "tool")[1][None]]
        )

    draw_arm = jax.jit(lambda knots: jax.vmap(skeleton)(trajectory(knots).q))
    return {
        "cost": np.array(costs),
        "before": np.asarray(draw_arm(first)),
        "after": np.asarray(draw_arm(knots)),
    }


def energy_check(seconds: float) -> dict:
    """A free arm (no damping, friction, limits) in float64: RK4 keeps T + V, better with smaller dt."""
    sys = rbd.zoo.arm7(actuation="none", dtype=jnp.float64)
    zero, never = jnp.zeros(sys.nv), jnp.full(sys.nv, jnp.inf)
    sys = sys.replace(damping=zero, friction=zero, lower=-never, upper=never)
    start = rbd.State(sys.q0, jnp.linspace(0.5, -0.5, sys.nv))
    curves, worst = {}, []
    for dt in (4e-3, 2e-3, 1e-3):
        steps = round(seconds / dt)

        @jax.jit
        def energies(dt=dt, steps=steps):
            path = rbd.rollout(sys, start, jnp.zeros((steps, sys.nu)), rbd.RK4(dt=dt)).value
            kinetic = jax.vmap(lambda q, v: rbd.kinetic_energy(sys, q, v))(path.q, path.v)
            return kinetic, jax.vmap(lambda q: rbd.potential_energy(sys, q))(path.q)

        kinetic, potential = (np.asarray(x) for x in energies())
        total = kinetic + potential
        drift = np.abs(total - total[0]) / kinetic.max()
        curves[dt] = (dt * np.arange(len(total)), drift)
        worst.append(drift.max())
    print(
        f"energy   RK4, {seconds:g} s unforced, float64: drift {worst[-1]:.1e} of the kinetic energy "
        f"at dt = 1 ms; halving dt divides it by {worst[-2] / worst[-1]:.0f}"
    )
    return {"curves": curves, "worst": worst[-1]}


def interpolation(steps: int, knots: int) -> np.ndarray:
    """(steps, knots) weights of linear interpolation between evenly spaced knots."""
    at = np.linspace(0, knots - 1, steps)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(knots)))


def draw(out: Path, fall: dict, reach: dict, energy: dict) -> None:
    """Four panels: the batch, the arm before and after, the cost, the energy."""
    with figure((11, 8.5), out) as fig:
        grid = fig.add_gridspec(2, 2, height_ratios=(1.35, 1))
        draw_batch(fig.add_subplot(grid[0, 0]), fall)
        draw_reach(fig.add_subplot(grid[0, 1], projection="3d"), reach)
        cost = fig.add_subplot(grid[1, 0])
        cost.semilogy(reach["cost"], color=COLOURS[0], lw=2)
        cost.set(xlabel="descent", ylabel="cost")
        cost.set_title("the cost, differentiated through the simulation")
        drift = fig.add_subplot(grid[1, 1])
        for (dt, (t, values)), colour in zip(energy["curves"].items(), COLOURS):
            drift.semilogy(t[1:], values[1:], color=colour, lw=1.2, label=f"dt = {1e3 * dt:g} ms")
        drift.set(xlabel="time [s]", ylabel="|E - E(0)| / max kinetic")
        drift.set_title("energy drift of the free arm, RK4")
        drift.legend(loc="lower right", ncols=4, columnspacing=1.0, handlelength=1.2)


def draw_batch(ax, fall: dict) -> None:
    tool = fall["tool"]
    ax.plot(tool[:, :, 1].T, tool[:, :, 2].T, color=COLOURS[0], lw=0.5, alpha=0.2)
    ax.scatter(
        tool[:, -1, 1], tool[:, -1, 2], s=7, color=COLOURS[1], zorder=3, label=f"after {fall['seconds']:g} s"
    )
    ax.plot(*tool[0, 0, 1:], "o", color=INK, ms=7, zorder=4, label="release")
    ax.set(xlabel="y [m]", ylabel="z [m]", aspect="equal", adjustable="datalim")
    ax.set_title(f"{fall['batch']} arms let go: {si(fall['rate'])} steps per second")
    ax.legend(loc="upper left")


def draw_reach(ax, reach: dict) -> None:
    for name, colour in (("before", "#9a9a9a"), ("after", COLOURS[0])):
        path = reach[name]
        for k in np.linspace(0, len(path) - 1, 6).astype(int):
            shade = 0.08 + 0.9 * (k / (len(path) - 1)) ** 2
            ax.plot(*path[k].T, "-", color=colour, lw=5, alpha=shade, solid_capstyle="round")
        ax.plot(*path[:, -1].T, ":", color=colour, lw=1.8)
        ax.plot([], [], "-", color=colour, lw=5, label=f"{name} the descent")
    ax.plot(*TARGET[:, None], "*", color=COLOURS[6], ms=17, label="target", zorder=10)
    ax.set(xlim=(-0.2, 0.7), ylim=(-0.6, 0.3), zlim=(0, 0.9))
    # few ticks, away from the corners where two axes meet, and room for the labels beside the box
    ax.set(xticks=(0, 0.2, 0.4, 0.6), yticks=(-0.4, -0.2, 0, 0.2), zticks=(0, 0.2, 0.4, 0.6, 0.8))
    ax.tick_params(labelsize=8)
    ax.set_box_aspect((1, 1, 1), zoom=0.88)
    ax.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]")
    ax.view_init(elev=22, azim=-50)
    ax.set_title("torques found by gradient descent")
    ax.legend(loc="upper left", bbox_to_anchor=(0.0, 0.95))
