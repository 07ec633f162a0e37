"""The robots on these pages, drawn by the library itself:  python docs/figures.py

Nine quadrupeds fall onto springy ground with their legs held by servos, each pushed differently.
"""

from pathlib import Path

import jax
import jax.numpy as jnp

import jaxrbd as rbd

FIGURES = Path(__file__).parent / "pages" / "figures"
DT, STEPS = 1e-3, 1500


def drop(count: int = 9):
    """A System and a path with leaves (count, steps, …)."""
    sys = rbd.zoo.quadruped(dtype="float32")
    feet = [name for name in sys.frame_names if name.endswith("foot")]
    ground = rbd.ground_springs(sys, feet, stiffness=8e3, damping=80.0)
    start = sys.q0.at[2].add(0.15)
    hold = lambda q, v, t: 120.0 * (sys.q0[7:] - q[7:]) - 3.0 * v[6:]  # noqa: E731
    push = jax.random.normal(jax.random.key(1), (count, sys.nv)) * jnp.zeros(sys.nv).at[3:5].set(0.25)

    def fall(v):
        integrator = rbd.SemiImplicitEuler(dt=DT)
        return rbd.rollout(sys, rbd.State(start, v), hold, integrator, f_ext=ground, steps=STEPS).value

    return sys, jax.jit(jax.vmap(fall))(push)


def main() -> None:
    sys, path = drop()
    every = jax.tree.map(lambda x: x[:, ::10], path)
    print(rbd.viewer.save_html(sys, every, FIGURES / "drop.html", dt=10 * DT, fps=20))
    print(rbd.viewer.save_gif(sys, every, FIGURES / "drop.gif", dt=10 * DT, fps=12, size=(600, 340)))


if __name__ == "__main__":
    main()
