"""MJCF models for the tests: between them every joint type, and every way of placing joints and masses."""

import warnings

from jaxrbd.model.mjcf import read_mjcf

PENDULUM = """
<mujoco model="pendulum">
  <compiler angle="degree" eulerseq="zyx"/>
  <option gravity="1.5 -2.5 -9"/>
  <default>
    <joint damping="0.2" armature="0.03"/>
    <default class="stiff"><joint stiffness="4" frictionloss="0.7"/></default>
  </default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1" friction="0.6 0.005 0.0001"/>
    <site name="origin" pos="0 0 1"/>
    <body name="upper" pos="0 0.1 2" euler="20 -30 40">
      <joint name="shoulder" axis="0 1 0.5" pos="0.05 0 0.02" range="-90 120"/>
      <geom name="arm" type="capsule" fromto="0 0 0 0.4 0 0" size="0.04"/>
      <body name="lower" pos="0.4 0 0" axisangle="1 1 0 25">
        <joint name="elbow" class="stiff" axis="0 0 1" ref="30" springref="-15" range="-60 90"/>
        <inertial pos="0.1 0.02 -0.03" mass="0.8" fullinertia="0.02 0.03 0.025 0.002 -0.001 0.003"/>
        <geom type="box" size="0.1 0.02 0.03" pos="0.1 0 0" contype="0" conaffinity="0" rgba="1 0 0 1"/>
        <site name="tip" pos="0.3 0 0" euler="0 90 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""

SEVERAL_JOINTS = """
<mujoco model="several">
  <compiler angle="radian"/>
  <worldbody>
    <body name="a" pos="0.3 0 1" quat="0.9 0.1 -0.3 0.2">
      <joint name="slide" type="slide" axis="1 1 0" ref="0.25" armature="0.1"/>
      <joint name="yaw" axis="0 0 1" pos="0.1 0.2 0.3" ref="-0.4"/>
      <joint name="pitch" axis="0 1 0" pos="-0.1 0 0.2"/>
      <geom type="box" size="0.1 0.2 0.05" pos="0.1 0 0" euler="0.3 0.2 0.1"/>
      <body name="b" pos="0.2 0.1 0">
        <joint name="turn" axis="1 0 0" pos="0 0.1 0" ref="0.6"/>
        <joint name="ball" type="ball" pos="0.05 0 -0.1" armature="0.02" damping="0.1"/>
        <geom type="ellipsoid" size="0.05 0.1 0.15" mass="0.7"/>
        <geom type="cylinder" size="0.03 0.1" pos="0 0.2 0" mass="0.2"/>
        <body name="c" pos="0 0 -0.3">
          <joint name="lift" type="slide" axis="0 0 1" range="-0.1 0.3"/>
          <joint type="slide" axis="0 1 0.2"/>
          <geom size="0.07"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""

BALLS = """
<mujoco model="balls">
  <worldbody>
    <body name="top" pos="0 0 2">
      <joint name="socket" type="ball" armature="0.01"/>
      <geom type="capsule" size="0.03 0.2" pos="0 0 -0.2" euler="5 0 0"/>
      <body name="mid" pos="0 0 -0.4" euler="0 45 10">
        <joint name="knee" type="ball" pos="0.02 0.01 0.03"/>
        <geom type="box" size="0.05 0.03 0.2" pos="0.01 0 -0.2"/>
        <body name="end" pos="0 0 -0.4">
          <joint name="slider" type="slide" axis="0 0 1"/>
          <geom size="0.1"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""

QUADRUPED = """
<mujoco model="quadruped">
  <compiler angle="radian" autolimits="true"/>
  <default>
    <joint axis="0 1 0" damping="0.5" armature="0.02" frictionloss="0.1"/>
    <position kp="40" kv="1.5" forcerange="-20 20"/>
  </default>
  <worldbody>
    <body name="trunk" pos="0 0 0.5">
      <freejoint name="base"/>
      <inertial pos="0.01 0 0.02" mass="6" quat="0.9 0.1 0.2 0.1" diaginertia="0.05 0.07 0.09"/>
      <geom type="box" size="0.2 0.1 0.05"/>
      <body name="imu_mount" pos="0.1 0 0.05" quat="0 0 0 1">
        <geom type="box" size="0.02 0.02 0.01" mass="0.1"/>
        <site name="imu" pos="0 0 0.01"/>
      </body>
      <body name="left" pos="0.2 0.1 0">
        <joint name="left_hip" range="-1 1.5" actuatorfrcrange="-30 30"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02"/>
        <body name="left_shank" pos="0 0 -0.2">
          <joint name="left_knee" pos="0 0 0.01"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.015"/>
          <body name="left_foot" pos="0 0 -0.2"><geom size="0.03" mass="0.05"/></body>
        </body>
      </body>
      <body name="right" pos="0.2 -0.1 0">
        <joint name="right_hip"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="left_hip" joint="left_hip" ctrlrange="-1 1"/>
    <motor name="left_knee" joint="left_knee" gear="5" ctrllimited="true" ctrlrange="-2 2"/>
    <velocity name="right_hip" joint="right_hip" kv="3" gear="2"/>
    <general name="bent" joint="right_hip" biastype="affine" gainprm="2" biasprm="0.5 -1 -0.3"/>
    <motor name="yaw_thruster" joint="base" gear="0 0 0 0 0 3"/>
  </actuator>
  <keyframe>
    <key name="crouch" qpos="0 0 0.3 0.8 0 0.6 0 0.5 -0.9 0.4"
         qvel="1 2 3 0.1 0.2 0.3 4 5 6" ctrl="0.1 0.2 0.3 0.4 0.5"/>
  </keyframe>
</mujoco>
"""

FOREST = """
<mujoco model="forest">
  <option gravity="0 -3 -4"/>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body name="table" pos="0 0 0.4" euler="0 0 30">
      <geom type="box" size="0.5 0.5 0.02"/>
      <body name="arm" pos="0.1 0 0.1">
        <joint name="j1" axis="0 0 1"/>
        <geom type="cylinder" size="0.05 0.1"/>
        <body name="bracket" pos="0.1 0 0" euler="0 20 0">
          <geom type="box" size="0.02 0.03 0.04"/>
          <body name="hand" pos="0 0 0.2"><joint name="j2" axis="1 0 0"/><geom size="0.05"/></body>
        </body>
      </body>
    </body>
    <body name="ball" pos="1 0 1"><freejoint/><geom size="0.1"/></body>
    <body name="brick" pos="0 1 1" euler="30 40 50">
      <joint type="free" name="brick_motion" damping="0.3"/>
      <inertial pos="0.1 -0.05 0.02" mass="1.3" fullinertia="0.1 0.12 0.15 0.01 0.02 -0.01"/>
      <body pos="0 0 0.2"><joint type="ball"/><geom type="box" size="0.05 0.06 0.07"/></body>
    </body>
    <body name="pillar" pos="-1 0 0"><geom type="cylinder" size="0.1 1"/></body>
  </worldbody>
</mujoco>
"""

LINKAGE = """
<mujoco model="linkage">
  <compiler angle="radian"/>
  <worldbody>
    <body name="crank">
      <joint name="crank" axis="0 1 0" ref="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.02"/>
      <body name="rod" pos="0 0 0.2">
        <joint name="rod" axis="0 1 0" ref="0.3"/>
        <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.02"/>
        <site name="rod_end" pos="0.5 0 0"/>
      </body>
    </body>
    <body name="rocker" pos="0.5 0 0">
      <joint name="rocker" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.02"/>
      <site name="rocker_end" pos="0 0 0.2"/>
    </body>
    <body name="cart"><joint name="cart" type="slide" axis="1 0 0"/><geom size="0.1"/></body>
    <body name="wheel" pos="2 0 0"><joint name="wheel" axis="0 1 0"/><geom size="0.1"/></body>
  </worldbody>
  <equality>
    <connect name="pin" body1="rod" body2="rocker" anchor="0.5 0 0"/>
    <connect name="sites" site1="rod_end" site2="rocker_end" active="false"/>
    <weld name="glue" body1="cart" body2="wheel" anchor="0.1 0.2 0.3" active="false"/>
    <joint name="gear" joint1="crank" joint2="rod" polycoef="0.2 1.5 0.3 0 0"/>
    <joint name="lock" joint1="wheel" polycoef="0.7 0 0 0 0"/>
  </equality>
</mujoco>
"""

ROTORS = """
<mujoco model="rotors">
  <compiler angle="radian" balanceinertia="true"/>
  <option><flag gravity="disable"/></option>
  <worldbody>
    <frame pos="0 0 1" euler="0.1 0.2 0.3">
      <body name="gimbal" childclass="light">
        <joint name="x" axis="1 0 0" armature="0.2"/>
        <joint name="y" axis="0 1 0"/>
        <joint name="z" axis="0 0 1" springref="0.5" stiffness="3"/>
        <geom type="box" size="0.1 0.2 0.3"/>
        <frame pos="0.3 0 0">
          <body name="disc">
            <joint name="spin" axis="0 0 1" pos="0.01 0 0"/>
            <geom type="cylinder" size="0.2 0.02"/>
          </body>
        </frame>
      </body>
    </frame>
  </worldbody>
  <default><default class="light"><joint damping="0.4"/><geom density="500"/></default></default>
  <actuator>
    <motor name="geared" joint="spin" gear="6" armature="0.001" damping="0.01"/>
  </actuator>
</mujoco>
"""

MODELS = {
    "pendulum": PENDULUM,
    "several_joints": SEVERAL_JOINTS,
    "balls": BALLS,
    "quadruped": QUADRUPED,
    "forest": FOREST,
    "linkage": LINKAGE,
    "rotors": ROTORS,
}


def read(text, **options):
    """Read, with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_mjcf(text, **options)


def by_name(items):
    return {item.name: item for item in items}
