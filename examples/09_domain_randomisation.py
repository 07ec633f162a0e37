"""A thousand arms that differ: payload, dry friction and servo gains, all drawn at random.

A System whose leaves have a batch axis stands for many; `many.in_axes` tells `spread` (or `jax.vmap`) which
leaves differ. All arms get the same command; what they make of it shows which parameter matters.
"""

import jaxrbd as rbd

rbd.configure_cpu()  # before JAX starts: one device per core, XLA's multi-output fusion

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

ARMS, STEPS, DT = 1024, 2500, 1e-3
sys = rbd.zoo.arm7(actuation="position", kp=1000.0, kd=30.0)
rng = np.random.default_rng(0)
payload = rng.uniform(0.0, 3.0, ARMS)  # kg, in the hand
friction = rng.uniform(0.0, 1.0, (ARMS, sys.nv))  # N m, every joint its own
gain = rng.uniform(0.7, 1.3, ARMS)  # times the nominal kp and kd

many = sys.with_link("link7", mass=sys.mass[sys.link_names.index("link7")] + payload)
many = many.replace(
    friction=friction,
    actuator_gain=gain[:, None] * sys.actuator_gain,
    actuator_bias=gain[:, None, None] * sys.actuator_bias,
)
print(many)


def settle(sys):
    """Hold the pose "home" until all is still: how far the tool sinks, and what friction must explain."""
    q_home, _, u = sys.keyframe("home")
    start = rbd.State.at_rest(sys, q_home)
    path = rbd.rollout(sys, start, jnp.tile(u, (STEPS, 1)), rbd.SemiImplicitEuler(DT), keep="last")
    q, v = path.value.q[-1], path.value.v[-1]
    sag = rbd.frame_pose(sys, q_home, "tool")[1][2] - rbd.frame_pose(sys, q, "tool")[1][2]
    unbalanced = rbd.actuator_force(sys, q, 0 * v, u) - rbd.gravity_force(sys, q)
    return sag, jnp.abs(v).max(), jnp.abs(unbalanced)


sag, speed, unbalanced = map(np.asarray, rbd.spread(settle, in_axes=(many.in_axes,))(many))
low, middle, high = 1e3 * np.percentile(sag, [5, 50, 95])
print(f"{ARMS} arms sink by {middle:.0f} mm (median), nine of ten by {low:.0f} to {high:.0f} mm")
influence = {
    name: np.corrcoef(x, sag)[0, 1]
    for name, x in {"payload": payload, "friction of joint 2": friction[:, 1], "gain": gain}.items()
}
print("correlation with the sag: " + ", ".join(f"{name} {r:+.2f}" for name, r in influence.items()))

# at rest the servos carry the weight; what they do not carry, each joint's own friction holds
excess = (unbalanced - friction).max()
print(
    f"fastest joint {speed.max():.1e} rad/s; torque that friction does not explain: {max(excess, 0):.1e} N m"
)
assert excess < 0.05
assert influence["payload"] > 0.3 and influence["gain"] < -0.5
