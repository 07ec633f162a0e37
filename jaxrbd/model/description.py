"""Descriptions: a robot as plain Python data, before it is compiled to a System.

Readers (URDF, MJCF) and the `Builder` produce a `Description`; `compile_system` turns one into a
System. Nothing here knows JAX. Lengths in metres, angles in radians, masses in kilograms.

Conventions: a joint's frame sits in its parent body at `placement`; the frame of the child body is
the joint frame after the joint's motion, shifted by the constant `offset` (identity in URDF; MJCF
joints may be anchored away from the body frame). The ground is named `WORLD`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

WORLD = "<world>"  # the ground; no URDF or MJCF name can collide with it

# number of position and velocity coordinates of each joint type
JOINT_SIZES = {
    "fixed": (0, 0),
    "revolute": (1, 1),
    "continuous": (1, 1),
    "prismatic": (1, 1),
    "screw": (1, 1),
    "cylindrical": (2, 2),  # q = (angle about the axis, shift along it)
    "universal": (2, 2),  # q = (angle about axis, angle about axis2)
    "planar": (3, 3),  # q = (x, y, angle); x along axis2, the normal is axis
    "spherical": (4, 3),  # q = quaternion (w, x, y, z); v = body-frame angular velocity
    "free": (7, 6),  # q = (position, quaternion); v = body-frame twist, angular first
}


@dataclass(frozen=True)
class Pose:
    """A rigid placement X_AB: x_A = R @ x_B + p."""

    R: np.ndarray = field(default_factory=lambda: np.eye(3))
    p: np.ndarray = field(default_factory=lambda: np.zeros(3))

    def __matmul__(self, other: Pose) -> Pose:
        return Pose(self.R @ other.R, self.R @ other.p + self.p)

    def inverse(self) -> Pose:
        return Pose(self.R.T, -self.R.T @ self.p)


@dataclass(frozen=True)
class Shape:
    """Visual or collision geometry fixed to a body.

    `size` by kind: box (full side lengths x, y, z); sphere (radius); cylinder and capsule (radius,
    length of the straight part, along z); ellipsoid (three semi-axes); plane (); mesh (scale x, y, z);
    heightfield (semi-axis x, semi-axis y, top, depth).
    """

    kind: str
    size: tuple[float, ...] = ()
    pose: Pose = field(default_factory=Pose)
    role: str = "collision"  # or "visual"
    name: str = ""
    mesh: str = ""  # the file name as written in the model
    path: str = ""  # where that file was found; "" if it was not
    rgba: tuple[float, ...] | None = None
    friction: float | None = None


@dataclass(frozen=True)
class Body:
    """A rigid link: mass, centre of mass in the body frame, inertia about that centre in body axes."""

    name: str
    mass: float = 0.0
    com: np.ndarray = field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Mimic:
    """q_this = ratio * q_joint + offset; kept as data, the joint stays an independent degree of freedom."""

    joint: str
    ratio: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Joint:
    """Connects `parent` to `child`. Scalars given per degree of freedom may be floats or sequences of nv."""

    name: str
    type: str
    parent: str
    child: str
    placement: Pose = field(default_factory=Pose)
    offset: Pose = field(default_factory=Pose)
    axis: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))
    axis2: np.ndarray | None = None  # universal: second axis; planar: the x direction
    pitch: float = 0.0  # screw: metres per radian
    lower: object = -np.inf
    upper: object = np.inf
    velocity_limit: object = np.inf
    effort_limit: object = np.inf
    damping: object = 0.0
    friction: object = 0.0  # dry (Coulomb) friction force, N or N m
    armature: object = 0.0
    stiffness: object = 0.0  # joint spring, N/m or N m/rad
    spring_reference: object = 0.0  # rest position of that spring
    mimic: Mimic | None = None


@dataclass(frozen=True)
class Loop:
    """A loop-closing or coupling constraint, as data: enforced by the constraint solvers.

    `kind`: "connect" (3-D point), "weld" (6-D), "hinge" (5-D, free about z of the frames), "distance",
    or "coupling" (q_a = polynomial(q_b), with `coefficients`; then body_a and body_b name joints).
    """

    name: str
    kind: str
    body_a: str
    body_b: str
    pose_a: Pose = field(default_factory=Pose)
    pose_b: Pose = field(default_factory=Pose)
    coefficients: tuple[float, ...] = ()
    active: bool = True


@dataclass(frozen=True)
class Actuator:
    """Joint force = gear * clip(gain*u + bias[0] + bias[1]*gear*q + bias[2]*gear*v, force limits).

    With `kind` "torque" the gain is 1 and the bias 0; "position" has gain kp, bias (0, -kp, -kd);
    "velocity" has gain kd, bias (0, 0, -kd); "affine" is anything else. `dof` counts within the joint.
    """

    name: str
    joint: str
    dof: int = 0
    kind: str = "torque"
    gear: float = 1.0
    gain: float = 1.0
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    control_range: tuple[float, float] = (-np.inf, np.inf)
    force_range: tuple[float, float] = (-np.inf, np.inf)


@dataclass(frozen=True)
class Frame:
    """A named frame fixed to a body (an MJCF site, a tool point)."""

    name: str
    body: str
    pose: Pose = field(default_factory=Pose)


@dataclass(frozen=True)
class Keyframe:
    """A named configuration; `q` in the order of the description's joints, `v` and `u` likewise."""

    name: str
    q: np.ndarray
    v: np.ndarray | None = None
    u: np.ndarray | None = None


@dataclass(frozen=True)
class Description:
    """A whole model: a forest of bodies rooted in the world. `source` names the file, for messages."""

    name: str = "model"
    bodies: tuple[Body, ...] = ()
    joints: tuple[Joint, ...] = ()
    loops: tuple[Loop, ...] = ()
    actuators: tuple[Actuator, ...] = ()
    frames: tuple[Frame, ...] = ()
    keyframes: tuple[Keyframe, ...] = ()
    world_shapes: tuple[Shape, ...] = ()  # geometry fixed to the ground
    gravity: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))
    source: str = "<python>"

    def replace(self, **changes) -> Description:
        return replace(self, **changes)
