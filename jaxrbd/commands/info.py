"""`jaxrbd info`: what a model consists of, as a table or as JSON."""

from __future__ import annotations

import json
import os

import numpy as np

from jaxrbd.commands.models import open_model


def run(args) -> int:
    sys, warnings = open_model(args.file, base=args.base, package_dirs=args.package_dir, loops=args.loops)
    facts = collect(sys, warnings)
    print(json.dumps(facts, indent=2) if args.json else render(facts))
    return 0


def _span(index: slice) -> list[int]:
    return [index.start, index.stop]


def collect(sys, warnings=()) -> dict:
    """Everything that `info` shows, as plain data; infinite limits are None."""
    t = sys.topology
    mass, owner = np.asarray(sys.mass, float), np.array(t.frame_bodies[: t.link_count], int)
    merged: dict[int, list[str]] = {i: [] for i in range(-1, sys.nb)}
    for link, body in zip(sys.link_names, owner):
        if body < 0 or link != sys.body_names[body]:
            merged[int(body)].append(link)
    followers = {j: sys.joint_names[k] for j, k in t.mimics}
    joints = []
    for i, name in enumerate(sys.joint_names):
        dofs = slice(t.v_starts[i], t.v_starts[i + 1])
        joints.append(
            {
                "index": i,
                "name": name,
                "type": sys.joint_types[i],
                "parent": "world" if sys.parents[i] < 0 else sys.body_names[sys.parents[i]],
                "body": sys.body_names[i],
                "q": _span(sys.q_index(name)) if name in sys.placed_joints else None,
                "v": _span(sys.v_index(name)) if name in sys.leading_joints else None,
                "mass": float(mass[owner == i].sum()),
                "lower": _numbers(sys.lower[dofs]),
                "upper": _numbers(sys.upper[dofs]),
                "effort": _numbers(sys.effort_limit[dofs]),
                "velocity": _numbers(sys.velocity_limit[dofs]),
                "damping": _numbers(sys.damping[dofs]),
                "friction": _numbers(sys.friction[dofs]),
                "armature": _numbers(sys.armature[dofs]),
                "mimic": followers.get(i),
                "merged_links": merged[i],
            }
        )
    return {
        "name": sys.name,
        "source": t.source,
        "nb": sys.nb,
        "nq": sys.nq,
        "nv": sys.nv,
        "nu": sys.nu,
        "mass": float(mass[owner >= 0].sum()),
        "gravity": _numbers(sys.gravity),
        "joints": joints,
        "links_on_the_world": merged[-1],
        "frames": list(sys.frame_names[t.link_count :]),
        "actuators": [{"name": n, "kind": k} for n, k in zip(sys.actuator_names, t.actuator_kinds)],
        "loops": [{"name": n, "kind": k} for n, k in zip(t.loop_names, t.loop_kinds)],
        "keyframes": list(sys.keyframe_names),
        "shapes": {kind: t.shape_kinds.count(kind) for kind in sorted(set(t.shape_kinds))},
        "mesh_folders": sorted({os.path.dirname(path) for _, path in t.shape_files if path}),
        "missing_meshes": sorted({mesh for mesh, path in t.shape_files if mesh and not path}),
        "massless_bodies": list(t.massless),
        "warnings": list(warnings),
    }


def render(facts: dict) -> str:
    """The table that people read."""
    lines = [
        f"{facts['name']}: {facts['nb']} moving bodies, nq = {facts['nq']}, nv = {facts['nv']}, "
        f"{facts['nu']} actuators, {facts['mass']:.4g} kg moving",
        "",
    ]
    rows = [("#", "joint", "type", "parent", "body", "mass kg", "range", "effort", "speed", "damping")]
    for j in facts["joints"]:
        name = j["name"] + (f" (follows {j['mimic']})" if j["mimic"] else "")
        span = f"{_cell(j['lower'], '-inf')} … {_cell(j['upper'], 'inf')}"
        span = "" if span == "-inf … inf" else span
        cells = (_cell(j["effort"]), _cell(j["velocity"]), _cell(j["damping"], zero=""))
        rows.append(
            (str(j["index"]), name, j["type"], j["parent"], j["body"], f"{j['mass']:.4g}", span, *cells)
        )
    right = (0, 5, 7, 8, 9)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        padded = (c.rjust(w) if k in right else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths)))
        lines.append("  ".join(padded).rstrip())
    lines.append("")
    for j in facts["joints"]:
        if j["merged_links"]:
            lines.append(f"fixed to {j['body']}: {', '.join(j['merged_links'])}")
    for key, title in (
        ("links_on_the_world", "fixed to the world"),
        ("frames", "further frames"),
        ("keyframes", "keyframes"),
        ("mesh_folders", "mesh files found in"),
    ):
        if facts[key]:
            lines.append(f"{title}: {', '.join(facts[key])}")
    for key in ("actuators", "loops"):
        if facts[key]:
            lines.append(f"{key}: " + ", ".join(f"{x['name']} ({x['kind']})" for x in facts[key]))
    if facts["shapes"]:
        lines.append("shapes: " + ", ".join(f"{n} {kind}" for kind, n in facts["shapes"].items()))
    if facts["massless_bodies"]:
        names = ", ".join(facts["massless_bodies"])
        lines.append(f"no forward dynamics: the mass matrix is singular, no inertia holds {names}")
    lines += [f"warning: {w}" for w in facts["warnings"]]
    return "\n".join(lines).rstrip()


def _numbers(values) -> list[float | None]:
    return [float(x) if np.isfinite(x) else None for x in np.asarray(values, float)]


def _cell(values: list, missing: str = "", zero: str = "0") -> str:
    if len(set(values)) == 1:
        values = values[:1]
    return ",".join(missing if x is None else zero if x == 0 else f"{x:.4g}" for x in values)
