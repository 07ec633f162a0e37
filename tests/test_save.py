"""save and load_system: bit-exact round trips, and no file, however broken, gives anything but our error."""

from __future__ import annotations

import hashlib
import json
import struct

import jax
import numpy as np
import pytest
from mjcf_models import MODELS

import jaxrbd as rbd


def assert_equal(a, b):
    assert a.topology == b.topology and hash(a.topology) == hash(b.topology)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "robot.rbd"


@pytest.fixture
def content(path):
    """The bytes of a saved arm, also at `path`."""
    rbd.save(rbd.zoo.arm7("position"), path)
    return path.read_bytes()


def split(content):
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def forged(header, data):
    """A file with right checksums whatever stands in it, as someone hostile would make it."""
    header["__metadata__"]["sha256"] = "0" * 64
    digest = hashlib.sha256(json.dumps(header).encode()).hexdigest()
    header["__metadata__"]["sha256"] = digest
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.filterwarnings("ignore::jaxrbd.ModelWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_round_trip(path, dtype):
    systems = [rbd.zoo.humanoid(dtype=dtype), rbd.zoo.random_tree(20, seed=1, dtype=dtype)]
    systems += [rbd.load(text, dtype=dtype) for text in MODELS.values()]
    systems += [rbd.zoo.chain(3, dtype=dtype).with_row_width(2)]
    for sys in systems:
        rbd.save(sys, path)
        assert_equal(rbd.load_system(path), sys)
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_values_that_compare_badly_survive(path):
    sys = rbd.zoo.chain(2).replace(lower=[-np.inf, np.nan], damping=[-0.0, 5e-324])
    rbd.save(sys, path)
    assert_equal(rbd.load_system(path), sys)


def test_dtype(path, content):
    assert rbd.load_system(path, dtype="float32").dtype == np.float32
    with pytest.raises(rbd.ArgumentError, match="float16"):
        rbd.load_system(path, dtype="float16")
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(rbd.ModelError, match="float64.*jax_enable_x64"):
            rbd.load_system(path)
        assert rbd.load_system(path, dtype="float32").dtype == np.float32
    finally:
        jax.config.update("jax_enable_x64", True)


def test_damage_at_many_places(path, content):
    """Cut, flipped, doubled or inserted bytes: our error, or the same System."""
    sys = rbd.zoo.arm7("position")
    rng = np.random.default_rng(0)
    header = struct.unpack("<Q", content[:8])[0] + 8
    places = [*range(40), *rng.integers(0, header, 150), *rng.integers(header, len(content), 60)]
    places += [header - 1, header, len(content) - 1]
    broken = []
    for at in map(int, places):
        flipped = content[at] ^ int(rng.integers(1, 256))
        broken.append(content[:at])
        broken.append(content[:at] + bytes([flipped]) + content[at + 1 :])
        broken.append(content[:at] + content[at : at + 1] + content[at:])
    broken += [content + b"\0", content * 2, content[header:], b"\xff" * 8 + content[8:]]
    for case in broken:
        path.write_bytes(case)
        try:
            loaded = rbd.load_system(path)
        except rbd.ModelError:
            continue
        assert_equal(loaded, sys)


def test_every_altered_number_is_noticed(path, content):
    header = struct.unpack("<Q", content[:8])[0] + 8
    for at in range(header, len(content), 97):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(rbd.ModelError, match="leaf '.*altered"):
            rbd.load_system(path)


def test_other_files_are_refused(path, tmp_path):
    for text in (
        b"",
        b"<robot/>",
        b"{}",
        b"PK\3\4" + b"\0" * 40,
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 10**6) + b"[" * 10**6,
        struct.pack("<Q", 10**5) + b'{"a":' * 20000,
        struct.pack("<Q", 3) + b"[1]",
        struct.pack("<Q", 5010) + b'{"a":' + b"9" * 5004 + b"}",
    ):
        path.write_bytes(text)
        with pytest.raises(rbd.ModelError):
            rbd.load_system(path)
    with pytest.raises(rbd.ModelError, match="cannot be read"):
        rbd.load_system(tmp_path / "none.rbd")
    with pytest.raises(rbd.ModelError):
        rbd.load_system(tmp_path)
    with pytest.raises(rbd.ModelError, match="cannot be written"):
        rbd.save(rbd.zoo.chain(1), tmp_path / "no" / "folder.rbd")


def test_absurd_sizes_are_refused_unread(path):
    with open(path, "wb") as file:
        file.truncate(2**31)  # sparse: takes no room
    with pytest.raises(rbd.ModelError, match="larger than"):
        rbd.load_system(path)


def test_another_version_is_refused(path, content):
    header, data = split(content)
    header["__metadata__"]["version"] = "99"
    path.write_bytes(forged(header, data))
    with pytest.raises(rbd.ModelError, match="version '99'"):
        rbd.load_system(path)


def test_a_file_from_before_the_slip_speed_loads(path, content):
    """The leaf came later: such a file means the speed that was built in."""
    header, data = split(content)
    gone = header.pop("slip_speed")
    start, end = gone["data_offsets"]
    del header["__metadata__"]["sha256 slip_speed"]
    for key, value in header.items():
        if key != "__metadata__" and value["data_offsets"][0] >= end:
            value["data_offsets"] = [x - (end - start) for x in value["data_offsets"]]
    path.write_bytes(forged(header, data[:start] + data[end:]))
    assert_equal(rbd.load_system(path), rbd.zoo.arm7("position"))


def change(key, value):
    """A forgery of one topology field; `value` is the new one or a function of the old."""

    def forge(header):
        topology = json.loads(header["__metadata__"]["topology"])
        topology[key] = value(topology[key]) if callable(value) else value
        header["__metadata__"]["topology"] = json.dumps(topology)

    return forge


def entry(key, **values):
    return lambda header: header[key].update(values)


FORGERIES = [
    change("parents", lambda p: [5, *p[1:]]),
    change("parents", lambda p: [-2, *p[1:]]),
    change("parents", lambda p: p[:-1]),
    change("parents", "x"),
    change("joint_types", lambda t: ["fixed", *t[1:]]),
    change("joint_types", lambda t: ["free", *t[1:]]),
    change("joint_names", lambda n: [n[1], *n[1:]]),
    change("joint_names", lambda n: [None, *n[1:]]),
    change("frame_bodies", lambda b: [99, *b[1:]]),
    change("body_frames", lambda b: b[::-1]),
    change("link_count", 10**9),
    change("link_count", -1),
    change("link_count", True),
    change("shape_frames", lambda s: [*s[:-1], 99]),
    change("shape_kinds", lambda s: ["blob", *s[1:]]),
    change("actuator_dofs", lambda d: [1000, *d[1:]]),
    change("mimics", [[0, 0]]),
    change("mimics", [[0, 1, 2]]),
    change("loop_names", ["a"]),
    change("row_width", 0),
    change("surprise", 1),
    entry("mass", dtype="F16"),
    entry("mass", shape=[10**12]),
    entry("mass", shape="all"),
    entry("mass", data_offsets=[0, 10**15]),
    lambda header: header.pop("mass"),
    lambda header: header.update(mass=[1]),
    lambda header: header.update(extra=header["mass"]),
    lambda header: header["__metadata__"].update(topology=7),
    lambda header: header["__metadata__"].update(topology="[" * 100_000),
    lambda header: header["__metadata__"].pop("sha256 mass"),
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_forgeries_with_right_checksums_are_refused(path, content, forge):
    header, data = split(content)
    forge(header)
    path.write_bytes(forged(header, data))
    with pytest.raises(rbd.ModelError):
        rbd.load_system(path)


def test_the_forger_can_also_forge_nothing(path, content):
    path.write_bytes(forged(*split(content)))
    assert_equal(rbd.load_system(path), rbd.zoo.arm7("position"))


def test_traced_and_batched_systems_are_refused(path):
    sys = rbd.zoo.chain(2)
    with pytest.raises(rbd.ArgumentError, match="traced"):
        jax.jit(lambda s: rbd.save(s, path))(sys)
    with pytest.raises(rbd.ArgumentError, match="batch"):
        rbd.save(jax.tree.map(lambda x: x[None], sys), path)
    with pytest.raises(rbd.ArgumentError, match="expected a System"):
        rbd.save("sys", path)
    assert not path.exists()
