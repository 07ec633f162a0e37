"""What every part of the MJCF reader shares: the compiled model, unique names, and what was lost."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from jaxrbd.joints.matrices import matrix_from_quaternion
from jaxrbd.model.description import WORLD, Pose
from jaxrbd.model.mjcf_compile import CompiledMjcf, written

HINGE, SLIDE, BALL, FREE = "hinge", "slide", "ball", "free"


class Context:
    """One compiled MjModel; `lost` collects what a Description cannot express."""

    def __init__(self, mujoco: ModuleType, compiled: CompiledMjcf, source: str):
        self.mujoco, self.compiled, self.m, self.source = mujoco, compiled, compiled.model, source
        m = self.m
        self.lost: list[str] = list(compiled.dropped)
        self.tendons: set[int] = set()  # those that a Description expresses
        self.disabled = {
            name.removeprefix("mjDSBL_").lower()
            for name, bit in mujoco.mjtDisableBit.__members__.items()
            if name.startswith("mjDSBL_") and m.opt.disableflags & bit.value
        }
        self.taken_bodies: set[str] = set()
        self.taken_joints: set[str] = set()
        self.bodies = [WORLD] + [self.name("body", i) for i in range(1, m.nbody)]
        self.joint_kind = [mujoco.mjtJoint(t).name.removeprefix("mjJNT_").lower() for t in m.jnt_type]
        self.joints = [self.name("joint", j) for j in range(m.njnt)]
        # written names first, so that a generated one never takes theirs
        self.taken_bodies |= set(self.bodies)
        self.taken_joints |= set(self.joints)
        for i in range(1, m.nbody):
            self.bodies[i] = self.bodies[i] or unique(f"body{i}", self.taken_bodies)
        for j in range(m.njnt):
            if not self.joints[j]:
                body = self.bodies[m.jnt_bodyid[j]]
                self.joints[j] = unique(f"{body}_{self.joint_kind[j]}", self.taken_joints)

    def name(self, kind: str, i: int) -> str:
        """The name as written in the file, or ""."""
        number = getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        return written(self.mujoco.mj_id2name(self.m, number, i) or "")

    def site_pose(self, i: int) -> Pose:
        return Pose(matrix_from_quaternion(self.m.site_quat[i]), np.array(self.m.site_pos[i]))


def unique(name: str, taken: set[str], suffix: str = "_2") -> str:
    """`name`, with a suffix where it is taken; remembers the result."""
    result, n = name, 2
    while result in taken:
        result = name + suffix if n == 2 else f"{name}_{n}"
        n += 1
    taken.add(result)
    return result
