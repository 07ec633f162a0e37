"""Batches spread over devices and processes give the numbers of one device, and failures are errors of ours.

The number of devices is fixed when JAX starts, so the checks run in fresh Pythons: this file, as a script.
"""

import os
import re
import socket
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxrbd as rbd
from jaxrbd.hosts import connect_hosts

BATCH = 8
SHARED_MASS = (None, 0, 0, 0)


def dynamics(mass, q, v, tau):
    return rbd.forward_dynamics(rbd.zoo.double_pendulum().replace(mass=mass), q, v, tau)


def same(got, expected):
    """Equal to rounding, relative to the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """States, a cotangent, and what one device makes of them: all of the batch, and all but the last."""
    mass = rbd.zoo.double_pendulum().mass
    q, v, tau, weight = np.random.default_rng(0).normal(size=(4, BATCH, 2))
    batched = jax.vmap(dynamics, SHARED_MASS)

    @jax.jit
    def one_device(weight):
        out, pull = jax.vjp(batched, mass, q, v, tau)
        return out, pull(weight)

    data = {"mass": mass, "q": q, "v": v, "tau": tau, "weight": weight}
    data["out"], gradients = one_device(weight)
    data |= {f"gradient{i}": g for i, g in enumerate(gradients)}
    weight = weight.copy()
    weight[-1] = 0
    data |= {f"uneven{i}": g for i, g in enumerate(one_device(weight)[1])}
    path = tmp_path_factory.mktemp("devices") / "reference.npz"
    np.savez(path, **data)
    return str(path)


def python(*args):
    """This file as a script in a new process, with the flags and the compilation cache of this one."""
    env = os.environ | {"JAX_ENABLE_X64": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
    if jax.config.jax_compilation_cache_dir:
        env["JAX_COMPILATION_CACHE_DIR"] = jax.config.jax_compilation_cache_dir
    command = [sys.executable, __file__, *map(str, args)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*running):
    try:
        for process in running:
            output = process.communicate(timeout=120)[0]
            assert process.returncode == 0, output
    finally:
        for process in running:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("count", [2, 4])
def test_devices_give_the_numbers_of_one(count, reference):
    finish(python("devices", count, reference))


def test_processes_give_the_numbers_of_one(reference):
    address = f"127.0.0.1:{free_port()}"
    finish(*(python("processes", address, i, reference) for i in range(2)))


def test_failures_to_connect_are_our_errors():
    finish(python("failures"))


def test_spread_on_one_device():
    double = rbd.spread(lambda x: 2 * x, jax.devices()[:1])
    x = np.arange(3.0)
    same(double(x), 2 * x)
    same(double.lower(x).compile()(x), 2 * x)


@pytest.mark.parametrize(
    "args, found",
    [
        ((), "found 0 arguments"),
        ((1.0,), "a scalar (argument 0)"),
        ((np.zeros(3), {"q": np.zeros((4, 2))}), "3 (argument 0), 4 (argument 1)"),
        ((np.zeros((0, 2)),), "0 (argument 0)"),
        (({},), "nothing"),
    ],
)
def test_arguments_without_a_common_batch(args, found):
    with pytest.raises(rbd.ArgumentError, match=re.escape(found) + ".*expected"):
        rbd.spread(lambda *each: each)(*args)


@pytest.mark.parametrize("in_axes", [1, None, (), (None, None), (0, 1)])
def test_axes_that_spread_does_not_know(in_axes):
    with pytest.raises(rbd.ArgumentError, match="moveaxis"):
        rbd.spread(jnp.add, in_axes=in_axes)


def test_as_many_arguments_as_axes():
    with pytest.raises(rbd.ArgumentError, match="found 1 arguments, expected 2 as in in_axes"):
        rbd.spread(jnp.add, in_axes=(None, 0))(np.ones(3))


# what the new processes do


def check_dynamics(reference, rows, uneven_rows):
    """Forward dynamics and its VJP over `rows` of the reference, then of those without the last state."""
    data = np.load(reference)
    spread = rbd.spread(dynamics, in_axes=SHARED_MASS)
    for chosen, name in ((rows, "gradient"), (uneven_rows, "uneven")):
        args = [data["mass"], *(data[key][chosen] for key in ("q", "v", "tau"))]
        same(spread(*args), data["out"][chosen])
        out, pull = jax.vjp(spread, *args)
        same(out, data["out"][chosen])
        mass, *others = pull(jnp.asarray(data["weight"][chosen]))
        same(mass, data[f"{name}0"])
        for i, gradient in enumerate(others, 1):
            same(gradient, data[f"{name}{i}"][chosen])


def check_sharded(reference):
    """A plain jit(vmap) on inputs that somebody else divided: the same numbers, each device its own share."""
    data = np.load(reference)
    divided = NamedSharding(Mesh(jax.devices(), ("shares",)), PartitionSpec("shares"))
    args = [data["mass"], *(jax.device_put(data[key], divided) for key in ("q", "v", "tau"))]
    weight = jax.device_put(data["weight"], divided)
    batched = jax.vmap(dynamics, SHARED_MASS)
    program = jax.jit(batched).lower(*args).compile()
    out = program(*args)
    same(out, data["out"])
    assert out.sharding.is_equivalent_to(divided, out.ndim)
    assert not re.search("all-(gather|to-all|reduce)|collective", program.as_text())
    gradients = jax.jit(lambda *args: jax.vjp(batched, *args)[1](weight))(*args)
    for i, gradient in enumerate(gradients):
        same(gradient, data[f"gradient{i}"])
    _, tangent = jax.jit(lambda *args: jax.jvp(batched, args, args))(*args)
    assert tangent.sharding.is_equivalent_to(divided, tangent.ndim)


def check_devices(count, reference):
    count = int(count)
    assert rbd.configure_cpu(count) == count
    assert jax.device_count() == count
    with pytest.warns(UserWarning, match=f"has started with {count}"):
        assert rbd.configure_cpu(count + 1) == count
    check_dynamics(reference, slice(BATCH), slice(BATCH - 1))
    if BATCH % count == 0:
        check_sharded(reference)

    system = rbd.zoo.double_pendulum()  # two links of 1 kg
    momentum = rbd.spread(lambda system, v: rbd.total_mass(system) * v, in_axes=(None, 0))
    loss = lambda system, v: momentum(system, v).sum()  # noqa: E731
    for size, gradient in ((1, jax.grad(loss)), (2 * count + 1, jax.jit(jax.grad(loss)))):
        v = np.arange(1.0, size + 1)
        same(momentum(system, v), 2 * v)
        same(gradient(system, v).mass, np.full(2, v.sum()))

    strict = rbd.spread(jnp.sin, pad=False)
    whole = np.arange(2.0 * count)
    out = strict(whole)
    assert len(out.sharding.device_set) == count
    same(out, np.sin(whole))
    same(strict.lower(whole).compile()(jax.device_put(whole, out.sharding)), np.sin(whole))
    with pytest.raises(rbd.ArgumentError, match=f"batch of {count + 1}, expected a multiple of the {count} "):
        strict(whole[: count + 1])
    assert rbd.spread(jnp.sin, jax.devices()[1:2])(whole).devices() == {jax.devices()[1]}


def check_processes(address, process, reference):
    process = int(process)
    rbd.configure_cpu(2)
    connect_hosts(address, 2, process, timeout=60)
    assert jax.process_count() == 2 and jax.device_count() == 4
    first = process * BATCH // 2
    rows = slice(first, first + BATCH // 2)
    check_dynamics(reference, rows, slice(first, min(rows.stop, BATCH - 1)))

    states = np.arange(4.0) + process
    counted = rbd.spread(
        lambda scale, x, i: (scale * x, i + 1), in_axes=(None, 0, 0)
    )  # an integer goes along
    gradient = jax.grad(lambda scale: counted(scale, states, np.arange(4))[0].sum())(2.0)
    same(gradient, np.arange(4.0).sum() + np.arange(1.0, 5.0).sum())
    alone = rbd.spread(jnp.sin, jax.local_devices())
    same(jax.jit(alone)(states[: 3 - process]), np.sin(states[: 3 - process]))
    with pytest.raises(rbd.ArgumentError, match="found a tracer"):
        jax.jit(rbd.spread(jnp.sin))(states)
    with pytest.raises(rbd.ArgumentError, match=re.escape("found [1, 2] states per device")):
        rbd.spread(jnp.sin)(states[: 2 + 2 * process])
    others = [d for d in jax.devices() if d.process_index != process]
    with pytest.raises(rbd.ArgumentError, match=re.escape("Pass jax.local_devices()")):
        rbd.spread(jnp.sin, others)
    with pytest.raises(rbd.ArgumentError, match="Call connect_hosts once"):
        connect_hosts(address, 2, process)


def check_failures():
    port = free_port()
    address = f"127.0.0.1:{port}"
    wrong = [("127.0.0.1", 2, 0), (address, 2, 2), (address, 2, -1), (address, 2, None), (address, "2", "0")]
    for args in [*wrong, (None, 2, 0), ("host:", 2, 0)]:
        with pytest.raises(rbd.ArgumentError, match="expected 'host:port'"):
            connect_hosts(*args)
    with pytest.raises(rbd.RbdError, match="process 1 found no process 0 at 127.0.0.1.*refused.*Check"):
        connect_hosts(address, 2, 1, timeout=0.5)
    with pytest.raises(rbd.RbdError, match="process 1 found no process 0 at nowhere.invalid"):
        connect_hosts("nowhere.invalid:1", 2, 1, timeout=0.5)

    stranger = threading.Timer(0.2, lambda: socket.create_connection(("127.0.0.1", port)).close())
    stranger.start()
    with pytest.raises(rbd.RbdError, match="expected all of 1 to 2 of 3 .*found none"):
        connect_hosts(address, 3, 0, timeout=0.5)
    stranger.join()

    with socket.create_server(("", port)), pytest.raises(rbd.RbdError, match="Choose a free port"):
        connect_hosts(address, 2, 0, timeout=0.5)

    errors = []

    def disagree(processes, process):
        try:
            connect_hosts(address, processes, process, timeout=5)
        except rbd.RbdError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=disagree, args=args) for args in ((2, 0), (3, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 2 and all("found 1 of 3" in error for error in errors), errors

    jax.devices()
    with pytest.raises(rbd.ArgumentError, match="JAX has started"):
        connect_hosts(address, 2, 0)


if __name__ == "__main__":
    checks = {"devices": check_devices, "processes": check_processes, "failures": check_failures}
    checks[sys.argv[1]](*sys.argv[2:])
