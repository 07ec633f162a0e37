"""Two well-known ways to forward dynamics, in NumPy and any precision, as yardsticks of float32 accuracy.

`link_frame_aba`: the articulated-body algorithm as the book has it ([RBDA] Table 7.1): 6×6 matrices, every
quantity in its own link's coordinates. `crba_cholesky`: MuJoCo's way: world-aligned axes about the
robot's centre of mass, composite inertias, Newton-Euler bias, then M = LᵀDL and two triangular solves.
Both are vectorised over states (leading axis), take and give the neutral layout of `robots.py`, with spatial
vectors angular first. They are written to be read, not to be fast.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.robots import Robot

GRAVITY = 9.81


@dataclass(frozen=True)
class Tree:
    """A free-floating tree in one precision: body 0 is the base, the others hang on one scalar joint each."""

    parent: list[int]
    R: np.ndarray  # (nb, 3, 3) and (nb, 3): the joint's frame in the parent's
    p: np.ndarray
    S: np.ndarray  # (nb, 6): joint column, angular first; unused for the base
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray  # about the centre of mass, link axes
    column: np.ndarray  # index of each joint in the neutral layout's joints

    @classmethod
    def of(cls, robot: Robot, dtype, model_dtype=None) -> "Tree":
        """`model_dtype` rounds the model alone: the error that no algorithm can avoid."""
        model = robot.pin_model
        nb = model.njoints - 1
        S, column = np.zeros((nb, 6)), np.zeros(nb, int)
        for i in range(1, nb):
            joint = model.joints[i + 1]
            data = joint.createData()
            joint.calc(data, np.zeros(model.nq))
            S[i] = np.roll(np.asarray(data.S).ravel(), 3)
            column[i] = robot.joints.index(model.names[i + 1])
        placements, inertias = model.jointPlacements[1:], list(model.inertias)[1:]

        def cast(values):
            return np.asarray(values, model_dtype or dtype).astype(dtype)

        return cls(
            parent=[int(x) - 1 for x in list(model.parents)[1:]],
            R=cast([x.rotation for x in placements]),
            p=cast([x.translation for x in placements]),
            S=cast(S),
            mass=cast([x.mass for x in inertias]),
            com=cast([x.lever for x in inertias]),
            inertia=cast([x.inertia for x in inertias]),
            column=column,
        )


def skew(x):
    """The matrix of x ×, for the last axis."""
    zero = np.zeros_like(x[..., 0])
    rows = [[zero, -x[..., 2], x[..., 1]], [x[..., 2], zero, -x[..., 0]], [-x[..., 1], x[..., 0], zero]]
    return np.stack([np.stack(r, -1) for r in rows], -2)


def motion_cross(v, m):
    """v × m for motions."""
    linear = np.cross(v[..., :3], m[..., 3:]) + np.cross(v[..., 3:], m[..., :3])
    return np.concatenate([np.cross(v[..., :3], m[..., :3]), linear], -1)


def force_cross(v, f):
    """v ×* f for forces."""
    angular = np.cross(v[..., :3], f[..., :3]) + np.cross(v[..., 3:], f[..., 3:])
    return np.concatenate([angular, np.cross(v[..., :3], f[..., 3:])], -1)


def apply(A, x):
    return np.einsum("...ij,...j->...i", A, x)


def spatial_inertia(mass, com, inertia):
    """6×6 inertia about the origin from mass, centre of mass and rotational inertia about it."""
    C = skew(com)
    mass = np.asarray(mass)[..., None, None]
    angular = inertia + mass * (C @ np.swapaxes(C, -1, -2))
    eye = np.broadcast_to(np.eye(3, dtype=C.dtype), C.shape)
    upper = np.concatenate([angular, mass * C], -1)
    lower = np.concatenate([mass * np.swapaxes(C, -1, -2), mass * eye], -1)
    return np.concatenate([upper, lower], -2)


def quaternion_matrix(q):
    """World orientation from w x y z, normalised first."""
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True).astype(q.dtype), -1, 0)
    U = skew(np.stack([x, y, z], -1))
    return np.eye(3, dtype=q.dtype) + 2 * w[..., None, None] * U + 2 * (U @ U)


def joint_motion(tree: Tree, i: int, angle):
    """Rotation and shift of body i in its joint's parent-side frame, and then in the parent's."""
    K = skew(tree.S[i, :3])
    sine, one_minus_cosine = np.sin(angle)[:, None, None], 2 * np.sin(angle / 2)[:, None, None] ** 2
    R = tree.R[i] @ (np.eye(3, dtype=K.dtype) + sine * K + one_minus_cosine * (K @ K))
    p = tree.p[i] + apply(tree.R[i], angle[:, None] * tree.S[i, 3:])
    return R, p


def link_frame_aba(tree: Tree, q, v, tau):
    """Accelerations by the articulated-body algorithm in link coordinates, [RBDA] Table 7.1."""
    dtype, nb = tree.R.dtype, len(tree.parent)
    q, v, tau = (np.asarray(x, dtype) for x in (q, v, tau))
    R_base = quaternion_matrix(q[:, 3:7])
    X, V, c, IA, pA = [None] * nb, [None] * nb, [None] * nb, [None] * nb, [None] * nb
    V[0] = v[:, :6]
    for i in range(nb):
        if i > 0:
            R, p = joint_motion(tree, i, q[:, 7 + tree.column[i]])
            E = np.swapaxes(R, 1, 2)
            zero = np.zeros_like(E)
            X[i] = np.concatenate([np.concatenate([E, zero], 2), np.concatenate([-E @ skew(p), E], 2)], 1)
            vJ = tree.S[i] * v[:, 6 + tree.column[i], None]
            V[i] = apply(X[i], V[tree.parent[i]]) + vJ
            c[i] = motion_cross(V[i], vJ)
        inertia = spatial_inertia(tree.mass[i], tree.com[i], tree.inertia[i])
        IA[i] = np.broadcast_to(inertia, (len(q), 6, 6)).copy()
        pA[i] = force_cross(V[i], apply(inertia, V[i]))
    U, D, u = [None] * nb, [None] * nb, [None] * nb
    for i in range(nb - 1, 0, -1):
        U[i] = apply(IA[i], tree.S[i])
        D[i] = U[i] @ tree.S[i]
        u[i] = tau[:, 6 + tree.column[i]] - pA[i] @ tree.S[i]
        Ia = IA[i] - U[i][:, :, None] * (U[i] / D[i][:, None])[:, None, :]
        pa = pA[i] + apply(Ia, c[i]) + U[i] * (u[i] / D[i])[:, None]
        XT = np.swapaxes(X[i], 1, 2)
        IA[tree.parent[i]] += XT @ Ia @ X[i]
        pA[tree.parent[i]] += apply(XT, pa)
    gravity = np.zeros((len(q), 6), dtype)
    gravity[:, 3:] = R_base[:, 2, :] * dtype.type(GRAVITY)  # an upward acceleration of the frame
    A = [None] * nb
    out = np.zeros_like(v)
    A[0] = np.linalg.solve(IA[0], (tau[:, :6] - pA[0])[:, :, None])[:, :, 0]
    out[:, :6] = A[0] - gravity
    for i in range(1, nb):
        a = apply(X[i], A[tree.parent[i]]) + c[i]
        qdd = (u[i] - np.einsum("ni,ni->n", U[i], a)) / D[i]
        A[i] = a + tree.S[i] * qdd[:, None]
        out[:, 6 + tree.column[i]] = qdd
    return out


def crba_cholesky(tree: Tree, q, v, tau):
    """Accelerations by M a = tau − b with M = LᵀDL, world axes about the centre of mass, as in MuJoCo."""
    dtype, nb = tree.R.dtype, len(tree.parent)
    q, v, tau = (np.asarray(x, dtype) for x in (q, v, tau))
    count, nv = v.shape
    R, p = [quaternion_matrix(q[:, 3:7])], [q[:, :3]]
    for i in range(1, nb):
        R_joint, p_joint = joint_motion(tree, i, q[:, 7 + tree.column[i]])
        parent = tree.parent[i]
        R.append(R[parent] @ R_joint)
        p.append(p[parent] + apply(R[parent], p_joint))
    com = [p[i] + apply(R[i], tree.com[i]) for i in range(nb)]
    center = sum(m * c for m, c in zip(tree.mass, com, strict=True)) / tree.mass.sum()

    # Columns about the centre: six of the base (body-angular, world-linear), then one per joint.
    S = np.zeros((count, nv, 6), dtype)
    S[:, :3, :3] = np.swapaxes(R[0], 1, 2)
    S[:, :3, 3:] = np.cross((p[0] - center)[:, None], S[:, :3, :3])
    S[:, 3:6, 3:] = np.eye(3)
    dofs = [list(range(6))]
    ancestors = {0: list(range(6))}
    for i in range(1, nb):
        axis, k = apply(R[i], tree.S[i, :3]), 5 + i
        S[:, k, :3] = axis
        S[:, k, 3:] = np.cross(p[i] - center, axis) + apply(R[i], tree.S[i, 3:])
        dofs.append([k])
        ancestors[i] = [*ancestors[tree.parent[i]], k]
    v_lin = apply(R[0], v[:, 3:6])
    vel = np.concatenate([v[:, :3], v_lin, v[:, 6 + tree.column[1:]]], 1)
    force = np.concatenate([tau[:, :3], apply(R[0], tau[:, 3:6]), tau[:, 6 + tree.column[1:]]], 1)

    inertia = [
        spatial_inertia(tree.mass[i], com[i] - center, R[i] @ tree.inertia[i] @ np.swapaxes(R[i], 1, 2))
        for i in range(nb)
    ]
    V, A, F = [None] * nb, [None] * nb, [None] * nb
    up = np.zeros((count, 6), dtype)
    up[:, 5] = GRAVITY
    for i in range(nb):
        if i == 0:  # world-linear columns stand still; the body-angular ones move with the base
            linear = np.einsum("nki,nk->ni", S[:, 3:6], vel[:, 3:6])
            angular = np.einsum("nki,nk->ni", S[:, :3], vel[:, :3])
            V[0] = linear + angular
            A[0] = up + motion_cross(V[0], angular)
        else:
            vJ = S[:, 5 + i] * vel[:, 5 + i, None]
            V[i] = V[tree.parent[i]] + vJ
            A[i] = A[tree.parent[i]] + motion_cross(V[i], vJ)
        F[i] = apply(inertia[i], A[i]) + force_cross(V[i], apply(inertia[i], V[i]))
    bias, M = np.zeros_like(vel), np.zeros((count, nv, nv), dtype)
    for i in range(nb - 1, -1, -1):
        for k in dofs[i]:
            bias[:, k] = np.einsum("ni,ni->n", S[:, k], F[i])
            IS = apply(inertia[i], S[:, k])
            for j in ancestors[i]:
                M[:, k, j] = M[:, j, k] = np.einsum("ni,ni->n", S[:, j], IS)
        if i:
            F[tree.parent[i]] = F[tree.parent[i]] + F[i]
            inertia[tree.parent[i]] = inertia[tree.parent[i]] + inertia[i]
    acc = solve_ltdl(M, force - bias)
    out = np.zeros_like(v)
    out[:, :3] = acc[:, :3]
    out[:, 3:6] = apply(np.swapaxes(R[0], 1, 2), acc[:, 3:6]) - np.cross(v[:, :3], v[:, 3:6])
    out[:, 6 + tree.column[1:]] = acc[:, 6:]
    return out


def solve_ltdl(M, b):
    """x with M x = b by M = LᵀDL, eliminating from the leaves to the root as MuJoCo does."""
    M, x = M.copy(), b.copy()
    nv = M.shape[1]
    for k in range(nv - 1, -1, -1):
        row = M[:, k, :k] / M[:, k, k, None]
        M[:, :k, :k] -= row[:, :, None] * M[:, k, None, :k]
        M[:, k, :k] = row
    for k in range(nv - 1, -1, -1):
        x[:, :k] -= M[:, k, :k] * x[:, k, None]
    x /= np.einsum("nii->ni", M)
    for k in range(nv):
        x[:, k] -= np.einsum("ni,ni->n", M[:, k, :k], x[:, :k])
    return x
