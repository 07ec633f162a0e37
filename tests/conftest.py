"""Test configuration: float64, one compilation cache for every run, compilations counted, choice of robots.

`pytest` takes a representative set of robots, `pytest --all-robots` every URDF of example-robot-data.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

# compile time is most of a run: the tests do without optimisations (set before JAX reads its flags)
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0"
    + " --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_use_fusion_emitters=false"
    + " --xla_cpu_parallel_codegen_split_count=1"
)
# glibc gives memory back to the system after every pass of the compiler and asks for it again: a tenth of
# its time. Read by processes that start from here: pytest's workers, examples, commands.
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(8 << 30))
os.environ.setdefault("MALLOC_TOP_PAD_", str(256 << 20))
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 30))

import jax
import pytest
import robots
from compilations import ALLOWED

jax.config.update("jax_enable_x64", True)

# tracing makes millions of objects that live on: looking for garbage among them is a quarter of the time
gc.freeze()
gc.set_threshold(200_000, 20, 50)


def pytest_addoption(parser):
    parser.addoption("--all-robots", action="store_true", help="test every robot of example-robot-data")
    parser.addoption("--browser", action="store_true", help="open the viewer's pages in Chromium")
    parser.addoption("--compilations", action="store_true", help="print how many programs each file compiles")


def pytest_configure(config):
    config.addinivalue_line("markers", "all_robots: takes long; runs only with --all-robots")
    config.addinivalue_line("markers", "browser: needs Chromium; runs only with --browser")
    cache = getattr(config, "cache", None)
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("jaxrbd-xla")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_generate_tests(metafunc):
    """A test that asks for `urdf, base` runs over the chosen robots, each fixed or free, or both."""
    if {"urdf", "base"} <= set(metafunc.fixturenames):
        if metafunc.config.getoption("--all-robots"):
            cases = [(urdf, base) for urdf in robots.URDFS for base in ("fixed", "free")]
        else:
            cases = robots.REPRESENTATIVE_CASES
        ids = [f"{robots.short_name(urdf)}-{base}" for urdf, base in cases]
        metafunc.parametrize(("urdf", "base"), cases, ids=ids)


def pytest_collection_modifyitems(config, items):
    """Long files come first, so that workers end together (each takes whole files)."""
    if not config.getoption("--all-robots"):
        skip = pytest.mark.skip(reason="needs --all-robots")
        for item in items:
            if "all_robots" in item.keywords:
                item.add_marker(skip)
    if not config.getoption("--browser"):
        skip = pytest.mark.skip(reason="needs --browser")
        for item in items:
            if "browser" in item.keywords:
                item.add_marker(skip)
    place = {name: k for k, name in enumerate(ALLOWED)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


def pytest_runtest_teardown(item, nextitem):
    """Programs of one file are of no use to the next, and a process keeps gigabytes of them."""
    if nextitem is not None and nextitem.path != item.path:
        jax.clear_caches()


# --- compilations -------------------------------------------------------------------------------------------

compiled = 0  # by this process
by_file: Counter[str] = Counter()  # of all workers, known to the one that reports


def _count(event: str, _seconds: float, **_):
    global compiled
    compiled += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.compiled_before = compiled
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        report.user_properties.append(("compilations", compiled - item.compiled_before))
    return report


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        by_file[Path(report.location[0]).name] += dict(report.user_properties).get("compilations", 0)


def _beyond(config) -> list[str]:
    if config.getoption("--all-robots"):
        return []
    return [f"{f}: {n}, allowed {ALLOWED.get(f, 0)}" for f, n in by_file.items() if n > ALLOWED.get(f, 0)]


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput") and _beyond(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--compilations"):
        terminalreporter.section("compilations")
        for name, count in sorted(by_file.items(), key=lambda x: -x[1]):
            terminalreporter.line(f"{count:6d}  {name}")
    if _beyond(config):
        terminalreporter.section("more programs compiled than tests/compilations.py allows")
        for line in _beyond(config):
            terminalreporter.line(line)
