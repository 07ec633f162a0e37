"""Robots for the tests, and Pinocchio as an oracle in our conventions.

The URDFs come with the PyPI package `example-robot-data`. `Twin` pairs a System with a Pinocchio model of
the same mechanism and translates between the two by joint names, in NumPy alone, so that a mistake in the
library's own converters cannot hide one in its algorithms.

Pinocchio sorts children alphabetically, puts linear before angular, stores quaternions as (x, y, z, w) and
continuous angles as (cos, sin), and takes the velocity of a planar joint in the moving frame.
"""

from __future__ import annotations

import sysconfig
import warnings
from pathlib import Path

import jax
import numpy as np
import pinocchio as pin

import jaxrbd as rbd

SHARE = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "share"
ROBOTS = SHARE / "example-robot-data" / "robots"

UNPARSABLE = ["ur_description/urdf/ur3.urdf"]  # its <robot> has no name: neither Pinocchio nor we read it
URDFS = sorted(
    path for path in (str(p.relative_to(ROBOTS)) for p in ROBOTS.rglob("*.urdf")) if path not in UNPARSABLE
)
SINGULAR = ["romeo_description/urdf/romeo.urdf", "romeo_description/urdf/romeo_laas_small.urdf"]

SOLO12 = "solo_description/robots/solo12.urdf"
PANDA = "panda_description/urdf/panda.urdf"
GO2 = "go2_description/urdf/go2.urdf"
G1 = "g1_description/urdf/g1_29dof_rev_1_0.urdf"
TALOS = "talos_data/robots/talos_full_v2.urdf"

REPRESENTATIVE = [
    "allegro_hand_description/urdf/allegro_right_hand.urdf",  # four fingers on a palm
    "anymal_b_simple_description/robots/anymal-kinova.urdf",  # four legs and an arm, several wrappers
    "anymal_c_simple_description/urdf/anymal.urdf",  # 65 fixed joints
    "baxter_description/urdf/baxter.urdf",  # two arms, prismatic fingers with mimics
    "bolt_description/robots/bolt.urdf",  # two legs
    "double_pendulum_description/urdf/double_pendulum_continuous.urdf",  # continuous joints only
    G1,  # humanoid
    GO2,  # quadruped whose joints are not in alphabetical order
    "hector_description/robots/quadrotor_base.urdf",  # no joints at all
    "human_description/robots/human.urdf",  # three-joint hips and shoulders without mass between
    "icub_description/robots/icub.urdf",  # condition number 5e8
    "iris_description/robots/iris.urdf",  # four leaves on one body
    "kinova_description/robots/kinova.urdf",  # continuous and revolute mixed
    PANDA,  # prismatic fingers, one of them a mimic
    "pr2_description/urdf/pr2.urdf",  # continuous, prismatic, mimic
    "romeo_description/urdf/romeo.urdf",  # singular mass matrix
    SOLO12,  # regular limbs
    TALOS,  # deep and wide, 12 mimic joints
    "tiago_description/robots/tiago_no_hand.urdf",  # wheels
    "ur_description/urdf/ur5_robot.urdf",  # serial arm on a fixed `world` link
]
REPRESENTATIVE_CASES = [(urdf, ("free", "fixed")[k % 2]) for k, urdf in enumerate(REPRESENTATIVE)]


def short_name(urdf: str) -> str:
    return Path(urdf).stem if Path(urdf).stem != "anymal" else urdf.split("_simple")[0]


def load(urdf: str, base: str, **options):
    """The System of a robot, without the warnings that files from the wild deserve."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rbd.errors.ModelWarning)
        return rbd.load(str(ROBOTS / urdf), base=base, package_dirs=[str(SHARE)], **options)


def pinocchio_model(urdf: str, base: str):
    """Pinocchio's model of the same file; mimic joints are independent, the base joint is named `root`."""
    path = str(ROBOTS / urdf)
    if base == "free":
        return pin.buildModelFromUrdf(path, pin.JointModelFreeFlyer(), "root")
    return pin.buildModelFromUrdf(path)


def random_quaternion(rng):
    quat = rng.standard_normal(4)
    return quat / np.linalg.norm(quat)


def random_q(sys, rng):
    """Angles over the full circle, shifts and positions of about a metre, uniform rotations; NumPy only."""
    q = np.zeros(sys.nq)
    draw = {
        "prismatic": lambda: rng.uniform(-0.5, 0.5, 1),
        "cylindrical": lambda: np.array([rng.uniform(-np.pi, np.pi), rng.uniform(-0.5, 0.5)]),
        "universal": lambda: rng.uniform(-np.pi, np.pi, 2),
        "planar": lambda: np.array([*rng.uniform(-0.5, 0.5, 2), rng.uniform(-np.pi, np.pi)]),
        "spherical": lambda: random_quaternion(rng),
        "free": lambda: np.concatenate([rng.uniform(-1, 1, 3), random_quaternion(rng)]),
    }
    for name, kind in zip(sys.joint_names, sys.joint_types, strict=True):
        q[sys.q_index(name)] = draw.get(kind, lambda: rng.uniform(-np.pi, np.pi, 1))()
    return q


def random_states(sys, count, seed=0):
    """Arrays q, v, a, tau, f_ext with a leading axis of `count` states."""
    rng = np.random.default_rng(seed)
    q = np.stack([random_q(sys, rng) for _ in range(count)])
    v, a, tau = (rng.standard_normal((count, sys.nv)) for _ in range(3))
    return q, v, a, tau, rng.standard_normal((count, sys.nb, 6))


def cast(sys, dtype):
    """The System with every floating-point leaf in another precision."""

    def convert(leaf):
        return leaf.astype(dtype) if np.issubdtype(leaf.dtype, np.floating) else leaf

    return jax.tree.map(convert, sys)


def relative_error(ours, reference, floor=0.0):
    """max |ours - reference| / max(|reference|, floor), worst over the leading axis; NaN is infinite."""
    ours, reference = np.asarray(ours, float), np.asarray(reference, float)
    assert ours.shape == reference.shape, f"shape {ours.shape}, expected {reference.shape}"
    count = len(reference)
    if reference.size == 0:
        return 0.0
    error = np.abs(ours - reference).reshape(count, -1).max(1)
    scale = np.maximum(np.abs(reference).reshape(count, -1).max(1), floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / scale)
    return float(np.where(np.isnan(ratio), np.inf, ratio).max())


SWAP = [3, 4, 5, 0, 1, 2]  # angular first <-> linear first
REFERENCE_FRAMES = {
    "body": pin.ReferenceFrame.LOCAL,
    "world": pin.ReferenceFrame.WORLD,
    "world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}
# per body: ours m, h (3), Ixx, Ixy, Ixz, Iyy, Iyz, Izz; Pinocchio's m, h (3), Ixx, Ixy, Iyy, Ixz, Iyz, Izz
PARAMETER_ORDER = [0, 1, 2, 3, 4, 5, 7, 6, 8, 9]


def quaternion_to_pinocchio(quat):
    return np.concatenate([quat[1:], quat[:1]])


class Twin:
    """A System and the Pinocchio model of the same mechanism, with equal joint names.

    Velocities are related by v_pin = T(q) v, so a_pin = T a + Tdot v, tau = T^T tau_pin, J = J_pin T.
    T is a permutation, except that Pinocchio's native planar joint moves in its own axes.
    """

    def __init__(self, sys, model):
        self.sys, self.model = sys, model
        assert sorted(sys.joint_names) == sorted(list(model.names)[1:])
        assert sys.nv == model.nv
        self.ids = [model.getJointId(name) for name in sys.joint_names]
        self.kinds = list(sys.joint_types)

    def _slices(self, name, index):
        joint = self.model.joints[index]
        return self.sys.q_index(name), self.sys.v_index(name), joint

    def q(self, q):
        out = np.full(self.model.nq, np.nan)
        for name, kind, index in zip(self.sys.joint_names, self.kinds, self.ids, strict=True):
            iq, _, joint = self._slices(name, index)
            x = np.asarray(q[iq])
            if kind == "free":
                x = np.concatenate([x[:3], quaternion_to_pinocchio(x[3:])])
            elif kind == "spherical":
                x = quaternion_to_pinocchio(x)
            elif kind in ("continuous", "planar") and joint.nq == len(x) + 1:
                x = np.concatenate([x[:-1], [np.cos(x[-1]), np.sin(x[-1])]])
            out[joint.idx_q : joint.idx_q + joint.nq] = x
        return out

    def transform(self, q, v):
        """T(q) and its rate Tdot(q, v)."""
        T, Tdot = np.zeros((2, self.model.nv, self.sys.nv))
        for name, kind, index in zip(self.sys.joint_names, self.kinds, self.ids, strict=True):
            iq, iv, joint = self._slices(name, index)
            rows = slice(joint.idx_v, joint.idx_v + joint.nv)
            T[rows, iv] = np.eye(6)[SWAP] if kind == "free" else np.eye(joint.nv)
            if kind == "planar" and joint.nq == 4:
                angle, rate = q[iq][2], v[iv][2]
                c, s = np.cos(angle), np.sin(angle)
                T[rows, iv] = [[c, s, 0], [-s, c, 0], [0, 0, 1]]
                Tdot[rows, iv] = rate * np.array([[-s, c, 0], [-c, -s, 0], [0, 0, 0]])
        return T, Tdot

    def forces(self, data, f_ext):
        """World-aligned forces at the body origins, as Pinocchio's list of forces in joint frames."""
        forces = pin.StdVec_Force([pin.Force.Zero() for _ in range(self.model.njoints)])
        for index, f in zip(self.ids, f_ext, strict=True):
            R = data.oMi[index].rotation
            forces[index] = pin.Force(R.T @ f[3:], R.T @ f[:3])
        return forces

    def reference(self, q, v, a, tau, f_ext, frames=(), regressor=True):
        """Every quantity of `quantities` below for one state, by Pinocchio (NaN where M is singular)."""
        model, data = self.model, self.model.createData()
        qp, (T, Tdot) = self.q(q), self.transform(q, v)
        vp, ap, drift = T @ v, T @ a + Tdot @ v, Tdot @ v
        pin.forwardKinematics(model, data, qp)
        pin.updateFramePlacements(model, data)
        bodies = [model.getFrameId(name, pin.FrameType.BODY) for name in self.sys.body_names]
        forces = self.forces(data, f_ext)
        M = symmetric(pin.crba(model, data, qp))
        out = {
            "poses": np.array([data.oMf[i].homogeneous[:3] for i in bodies]).reshape(-1, 3, 4),
            "inverse_dynamics": T.T @ pin.rnea(model, data, qp, vp, ap, forces),
            "mass_matrix": T.T @ M @ T,
            "gravity_force": T.T @ pin.computeGeneralizedGravity(model, data, qp),
            "bias_force": T.T @ (pin.nonLinearEffects(model, data, qp, vp) + M @ drift),
            "kinetic_energy": np.array(pin.computeKineticEnergy(model, data, qp, vp)),
            "potential_energy": np.array(pin.computePotentialEnergy(model, data, qp)),
            "center_of_mass": pin.centerOfMass(model, data, qp).copy(),
            "centroidal_momentum": pin.computeCentroidalMomentum(model, data, qp, vp).vector[SWAP],
            "centroidal_momentum_matrix": pin.computeCentroidalMap(model, data, qp)[SWAP] @ T,
        }
        # not from computeCoriolisMatrix: pin 4.1.0 is wrong there for universal and composite joints
        out["coriolis"] = out["bias_force"] - out["gravity_force"]
        Tinv = np.linalg.inv(T)
        tau_pin = np.linalg.solve(T.T, tau)
        out["forward_dynamics"] = Tinv @ (pin.aba(model, data, qp, vp, tau_pin, forces) - drift)
        out["mass_matrix_inverse"] = Tinv @ symmetric(pin.computeMinverse(model, data, qp)) @ Tinv.T
        if regressor:
            Y = T.T @ pin.computeJointTorqueRegressor(model, data, qp, vp, ap)
            Y = Y.reshape(self.sys.nv, model.njoints - 1, 10)[:, :, PARAMETER_ORDER]
            Y = Y[:, np.array(self.ids, int) - 1]
            out["joint_torque_regressor"] = Y.reshape(self.sys.nv, 10 * len(self.ids))
        for name in frames:
            out |= self._frame(name, data, qp, vp, ap, drift, T)
        return out

    def _frame(self, name, data, q, v, a, drift, T):
        model, fid = self.model, self.model.getFrameId(name, pin.FrameType.BODY)
        pin.computeJointJacobians(model, data, q)
        pin.updateFramePlacements(model, data)
        pose = data.oMf[fid]
        out = {f"{name} pose": np.column_stack([pose.rotation, pose.translation])}
        for frame, reference in REFERENCE_FRAMES.items():
            # pin 4.1.0 crashes on a model without joints
            J = pin.getFrameJacobian(model, data, fid, reference) if model.nv else np.zeros((6, 0))
            out[f"{name} jacobian {frame}"] = J[SWAP] @ T
        pin.forwardKinematics(model, data, q, v, a)
        # d/dt of (omega, velocity of the frame's origin) is the classical acceleration
        accelerations = dict.fromkeys(REFERENCE_FRAMES, pin.getFrameAcceleration)
        accelerations["world_aligned"] = pin.getFrameClassicalAcceleration
        for frame, reference in REFERENCE_FRAMES.items():
            out[f"{name} velocity {frame}"] = pin.getFrameVelocity(model, data, fid, reference).vector[SWAP]
            acceleration = accelerations[frame](model, data, fid, reference)
            out[f"{name} acceleration {frame}"] = acceleration.vector[SWAP]
        pin.forwardKinematics(model, data, q, v, drift)  # so that our own acceleration is zero
        for frame, reference in REFERENCE_FRAMES.items():
            drifting = accelerations[frame](model, data, fid, reference)
            out[f"{name} jacobian_dot_v {frame}"] = drifting.vector[SWAP]
        return out


def symmetric(upper):
    """Pinocchio fills the upper triangle only."""
    return np.triu(upper) + np.triu(upper, 1).T


def tree_quantities(sys, forward, q, v, a, tau, f_ext):
    R, p = rbd.forward_kinematics(sys, q)
    out = {
        "poses": jax.numpy.concatenate([R, p[..., None]], -1),
        "inverse_dynamics": rbd.inverse_dynamics(sys, q, v, a, f_ext),
        "mass_matrix": rbd.mass_matrix(sys, q),
    }
    return out | ({"forward_dynamics": rbd.forward_dynamics(sys, q, v, tau, f_ext)} if forward else {})


def frame_quantities(sys, key, name, frame, q, v):
    R, p = rbd.frame_pose(sys, q, name)
    return {
        f"{key} pose": jax.numpy.column_stack([R, p]),
        f"{key} jacobian {frame}": rbd.frame_jacobian(sys, q, name, frame=frame),
        f"{key} jacobian_dot_v {frame}": rbd.frame_jacobian_dot_v(sys, q, v, name, frame=frame),
    }


def forest_quantities(sys, frames, references, forward):
    """Of several robots in one System: a function (q, v, a, tau, f_ext) -> dict.

    `frames`: key of a robot -> name of a frame; `references`: key -> reference frame.
    """

    def all_of(q, v, a, tau, f_ext):
        out = tree_quantities(sys, forward, q, v, a, tau, f_ext)
        for key, name in frames.items():
            out |= frame_quantities(sys, key, name, references[key], q, v)
        return out

    return jax.jit(jax.vmap(all_of))


def quantities(sys, frames=(), regressor=True, forward=True, everything=True):
    """A function (q, v, a, tau, f_ext) -> dict with our values of what `Twin.reference` has.

    Compiling takes seconds per quantity, hence `everything=False`: poses, Jacobians, their drift, RNEA,
    CRBA and ABA only.
    """

    def core(q, v, a, tau, f_ext):
        out = tree_quantities(sys, forward, q, v, a, tau, f_ext)
        for name in frames:
            for frame in REFERENCE_FRAMES:
                out |= frame_quantities(sys, name, name, frame, q, v)
        return out

    def the_rest(q, v, a, tau, f_ext):
        out = {
            "gravity_force": rbd.gravity_force(sys, q),
            "bias_force": rbd.bias_force(sys, q, v),
            "coriolis": rbd.coriolis_matrix(sys, q, v) @ v,
            "kinetic_energy": rbd.kinetic_energy(sys, q, v),
            "potential_energy": rbd.potential_energy(sys, q),
            "center_of_mass": rbd.center_of_mass(sys, q),
            "centroidal_momentum": rbd.centroidal_momentum(sys, q, v),
            "centroidal_momentum_matrix": rbd.centroidal_momentum_matrix(sys, q),
        }
        if forward:
            out["mass_matrix_inverse"] = rbd.mass_matrix_inverse(sys, q)
        if regressor:
            out["joint_torque_regressor"] = rbd.joint_torque_regressor(sys, q, v, a)
        for name in frames:
            for frame in REFERENCE_FRAMES:
                out[f"{name} velocity {frame}"] = rbd.frame_velocity(sys, q, v, name, frame=frame)
                out[f"{name} acceleration {frame}"] = rbd.frame_acceleration(sys, q, v, a, name, frame=frame)
        return out

    return jax.jit(jax.vmap(lambda *state: core(*state) | (the_rest(*state) if everything else {})))
