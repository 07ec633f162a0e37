"""Small systems with textbook equations of motion: cart-pole and double pendulum."""

from __future__ import annotations

from jaxrbd.model.builder import Builder
from jaxrbd.model.description import Description


def cart_pole(cart_mass: float = 1.0, pole_mass: float = 0.1, length: float = 1.0) -> Description:
    """A cart on a rail along x with a uniform pole of the given length; upright is angle 0.

    Thin pole about its pivot: I = m l²/3. Only the cart is driven.
    """
    b = Builder("cart_pole")
    b.body("cart", cart_mass, inertia=cart_mass * 0.01, shapes=[b.box(0.3, 0.2, 0.12)])
    pole = b.capsule_between(0.02, (0, 0, 0), (0, 0, length))
    b.body("pole", pole_mass, (0, 0, length / 2), _rod(pole_mass, length), [pole])
    b.joint("slider", "prismatic", None, "cart", axis=(1, 0, 0), limits=(-2.4, 2.4), effort=30.0)
    b.joint("hinge", "continuous", "cart", "pole", axis=(0, 1, 0))
    b.frame("tip", "pole", (0, 0, length))
    b.actuator("slider", limits=30.0, control_range=30.0)
    b.keyframe("home", {"slider": 0.0})
    b.keyframe("hanging", {"hinge": 3.141592653589793})
    return b.description()


def double_pendulum(
    masses: tuple[float, float] = (1.0, 1.0),
    lengths: tuple[float, float] = (1.0, 1.0),
    point_masses: bool = False,
) -> Description:
    """Two rods hanging on hinges about y; `point_masses` puts each mass at its rod's end, without inertia.

    Conservative and chaotic: no damping, no limits, no actuators.
    """
    b = Builder("double_pendulum")
    for i, (mass, length) in enumerate(zip(masses, lengths)):
        end = (0, 0, -length)
        com = end if point_masses else (0, 0, -length / 2)
        inertia = 0.0 if point_masses else _rod(mass, length)
        b.body(f"rod{i + 1}", mass, com, inertia, [b.capsule_between(0.02, (0, 0, 0), end)])
    b.joint("shoulder", "continuous", None, "rod1", axis=(0, 1, 0))
    b.joint("elbow", "continuous", "rod1", "rod2", (0, 0, -lengths[0]), axis=(0, 1, 0))
    b.frame("tip", "rod2", (0, 0, -lengths[1]))
    b.keyframe("home", {"shoulder": 1.5707963267948966, "elbow": 0.0})
    return b.description()


def _rod(mass: float, length: float):
    """Thin rod along z about its centre: m l²/12 across, and a little along, so that it stays a solid."""
    across = mass * length**2 / 12
    return (across, across, 1e-3 * across)
