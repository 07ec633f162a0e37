"""Figures of the command line; only these need matplotlib."""

from __future__ import annotations

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np

import jaxrbd as rbd

INK, GRID = "#222222", "#dddddd"
COLOURS = ("#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72", "#dfab01", "#6940a5", "#e03e3e", "#64473a")


@contextmanager
def figure(size, path):
    """A figure in the look of jaxrbd that needs no display; written to `path` at the end."""
    import matplotlib
    from cycler import cycler
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    look = {
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.edgecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": GRID,
        "axes.prop_cycle": cycler(color=COLOURS),
        "legend.frameon": False,
        "legend.fontsize": 8,
    }
    with matplotlib.rc_context(look):
        fig = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(fig)
        yield fig
        fig.savefig(path, dpi=130)


def plot_trajectory(sys, result: dict, path, lines: int = 12) -> None:
    """Joint coordinates of the first state, and the energy of the first few, over time."""
    t, q, v = result["t"], result["q"], result["v"]
    energy = jax.jit(
        jax.vmap(jax.vmap(lambda q, v: (rbd.kinetic_energy(sys, q, v), rbd.potential_energy(sys, q))))
    )
    kinetic, potential = (np.asarray(e) for e in energy(jnp.asarray(q[:8]), jnp.asarray(v[:8])))
    potential = potential - potential[:, :1]
    with figure((10, 7), path) as fig:
        above, below = fig.subplots(2, 1, sharex=True)
        scalar = [n for n in sys.placed_joints if sys.q_index(n).stop - sys.q_index(n).start == 1]
        for name in scalar[:lines]:
            above.plot(t, q[0, :, sys.q_index(name).start], lw=1.4, label=name)
        if scalar:
            above.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        else:
            above.plot(t, q[0], lw=1.4)
        above.set_title(f"{sys.name}: coordinates of the first state")
        above.set_ylabel("rad or m")

        curves = (
            ("kinetic", kinetic),
            ("potential, change", potential),
            ("total, change", kinetic + potential),
        )
        for (label, values), colour in zip(curves, (COLOURS[1], COLOURS[0], INK)):
            values = values - values[:, :1] if label.startswith("total") else values
            below.plot(
                t, values.T, color=colour, lw=1.2, alpha=0.6, label=[label] + [None] * (len(values) - 1)
            )
        below.set_title(f"energy of {len(kinetic)} states")
        below.set(xlabel="time [s]", ylabel="J")
        below.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
