"""Robots and random states that every contender of a benchmark shares.

A robot is a URDF of the PyPI package `example-robot-data`, reduced to what rigid-body dynamics needs: links
with their inertias, and joints. Geometry, mimic relations, joint limits, damping and dry friction are
dropped, so that all contenders simulate the same free tree and nobody pays for something that the others
leave out.

States have one neutral layout, with joints in the order of the file, and a free base:
  q    position (3), quaternion w x y z (4), joints
  v    twist of the base in its own axes, angular then linear (6), joints
  tau  dual to v;  a = dv/dt component by component
"""

import sysconfig
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

_SHARE = Path("cmeel.prefix/share/example-robot-data/robots")
_KEPT_IN_JOINT = {"origin", "axis", "parent", "child"}
_MOVING = {"revolute", "continuous", "prismatic"}


def robot_folder() -> Path:
    """Where pip put the URDFs of `example-robot-data`."""
    for key in ("platlib", "purelib"):
        folder = Path(sysconfig.get_path(key)) / _SHARE
        if folder.is_dir():
            return folder
    raise FileNotFoundError("example-robot-data is not installed here: pip install example-robot-data")


def all_urdfs() -> list[Path]:
    """Every URDF that can be parsed (`ur3.urdf` lacks the robot's name)."""
    return sorted(f for f in robot_folder().rglob("*.urdf") if f.name != "ur3.urdf")


def find_urdf(name: str) -> Path:
    """The URDF called `name`, which may carry folders to tell namesakes apart: 'robots/anymal'."""
    found = [f for f in all_urdfs() if str(f.with_suffix("")).endswith("/" + name)]
    if len(found) != 1:
        raise FileNotFoundError(
            f"{len(found)} robots of example-robot-data are called {name!r}; give one exact name"
        )
    return found[0]


@dataclass(frozen=True)
class Robot:
    """A URDF reduced to its rigid-body tree: `urdf` is text, `joints` names the moving ones in file order."""

    name: str
    urdf: str
    joints: tuple[str, ...]
    prismatic: np.ndarray

    @classmethod
    def read(cls, path: Path) -> "Robot":
        root = ET.parse(path).getroot()
        for child in list(root):
            if child.tag not in ("link", "joint"):
                root.remove(child)
        for link in root.iter("link"):
            for child in list(link):
                if child.tag != "inertial":
                    link.remove(child)
        joints = root.findall("joint")
        for joint in joints:
            for child in list(joint):
                if child.tag not in _KEPT_IN_JOINT:
                    joint.remove(child)
            if joint.get("type") == "continuous":  # one unwrapped angle for everyone
                joint.set("type", "revolute")
            if joint.get("type") in _MOVING:  # present, because readers insist, and never active
                ET.SubElement(joint, "limit", lower="-1000", upper="1000", effort="1e9", velocity="1e9")
        moving = [j for j in joints if j.get("type") in _MOVING]
        return cls(
            name=path.stem,
            urdf=ET.tostring(root, encoding="unicode"),
            joints=tuple(j.get("name") for j in moving),
            prismatic=np.array([j.get("type") == "prismatic" for j in moving], bool),
        )

    @property
    def nv(self) -> int:
        return 6 + len(self.joints)

    @cached_property
    def pin_model(self):
        """Pinocchio's model with a free base: the reference of every check, the source of sane torques."""
        import pinocchio as pin

        return pin.buildModelFromXML(self.urdf, pin.JointModelFreeFlyer())


@dataclass(frozen=True)
class States:
    """A batch of states in the neutral layout: q (n, 7 + joints), v, a and tau (n, 6 + joints), float64.

    The values are float32 numbers, so that contenders of both precisions start from the same states.
    """

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    tau: np.ndarray

    @property
    def rotation(self) -> np.ndarray:
        """World orientation of the base, (n, 3, 3)."""
        w, x, y, z = np.moveaxis(self.q[:, 3:7] / np.linalg.norm(self.q[:, 3:7], axis=1, keepdims=True), 1, 0)
        return np.stack(
            [
                np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
                np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
                np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
            ],
            -2,
        )


def rounded(x) -> np.ndarray:
    """float64 array of float32 values."""
    return np.asarray(x, np.float32).astype(np.float64)


def random_states(robot: Robot, count: int, seed: int = 0, offset: float = 0.0, free_torques=False) -> States:
    """Random poses, velocities and accelerations of order one, and torques that produce these accelerations.

    Torques drawn blindly (`free_torques`: standard normal) fling light links, a finger, to 1e6 rad/s² and
    blow up a rollout; these do not. `offset` moves the base along x and y by so many metres.
    """
    from benchmarks.peers import Pinocchio

    rng = np.random.default_rng(seed)
    n = len(robot.joints)
    quaternion = rng.normal(size=(count, 4))
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    position = rng.uniform(-1, 1, (count, 3)) + np.array([offset, offset, 0.0]) / np.sqrt(2)
    joints = np.where(robot.prismatic, 0.1, np.pi) * rng.uniform(-1, 1, (count, n))
    q = rounded(np.concatenate([position, quaternion, joints], 1))
    v, a = rounded(rng.normal(size=(count, 6 + n))), rounded(rng.normal(size=(count, 6 + n)))
    if free_torques:
        return States(q, v, a, rounded(rng.normal(size=v.shape)))
    states = States(q, v, a, np.zeros_like(v))
    tau = rounded(Pinocchio(robot).evaluate("inverse_dynamics", states))
    return States(q, v, a, tau)
