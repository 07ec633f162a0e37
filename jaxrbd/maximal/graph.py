"""Any graph of joints as a tree with stand-ins, which says what coordinates there are.

Every body keeps the first joint that moves it, unless that would make it its own ancestor. Any other joint
moves a stand-in of its child, which hangs on the joint's parent, while the child goes its own way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxrbd.joints import TYPES
from jaxrbd.model.description import WORLD, Body, Description, Joint, Keyframe, Loop


def spread(d: Description) -> tuple[Description, dict[str, str]]:
    """The tree, and for whom each of its stand-ins stands.

    A second joint that leaves nothing free becomes a weld. Bodies that hang on nothing get a free joint.
    """
    above: dict[str, str] = {}  # child -> parent
    joints, bodies, loops = [], list(d.bodies), list(d.loops)
    stand_ins: dict[str, str] = {}
    taken = {b.name for b in d.bodies} | {f.name for f in d.frames}
    for joint in d.joints:
        if joint.child not in above and not _hangs_on(above, joint.parent, joint.child):
            above[joint.child] = joint.parent
            joints.append(joint)
        elif joint.type == "fixed":
            back = joint.offset.inverse()
            loops.append(Loop(joint.name, "weld", joint.child, joint.parent, back, joint.placement))
        else:
            name = f"{joint.child} of {joint.name}"
            while name in taken:
                name += "'"
            taken.add(name)
            stand_ins[name] = joint.child
            bodies.append(Body(name, 1.0, inertia=np.eye(3)))
            joints.append(replace(joint, child=name))
    names, keyframes = {j.name for j in joints}, list(d.keyframes)
    for body in d.bodies:
        if body.name not in above:
            name = f"root_{body.name}"
            while name in names:
                name += "'"
            names.add(name)
            joints.append(Joint(name, "free", WORLD, body.name))
            keyframes = [_with_root(k) for k in keyframes]
    whole = replace(
        d, bodies=tuple(bodies), joints=tuple(joints), loops=tuple(loops), keyframes=tuple(keyframes)
    )
    return whole, stand_ins


def _with_root(k: Keyframe) -> Keyframe:
    """With a free joint more, at rest in the origin."""
    q = np.concatenate([k.q, TYPES["free"].neutral()])
    return replace(k, q=q, v=None if k.v is None else np.concatenate([k.v, np.zeros(6)]))


def _hangs_on(above: dict[str, str], body: str, ancestor: str) -> bool:
    """Whether a body hangs on another, or is it."""
    while body != ancestor and body in above:
        body = above[body]
    return body == ancestor
