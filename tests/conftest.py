"""Test configuration: float64, one compilation cache for every run, and the choice of robots.

`pytest` takes a representative set of robots, `pytest --all-robots` every URDF of example-robot-data.
"""

from __future__ import annotations

import gc
import os

# compile time is most of a run: the tests do without optimisations (set before JAX reads its flags)
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0"
    + " --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_use_fusion_emitters=false"
    + " --xla_cpu_parallel_codegen_split_count=1"
)

import jax
import pytest
import robots

jax.config.update("jax_enable_x64", True)

# tracing makes millions of objects that live on: looking for garbage among them is a quarter of the time
gc.freeze()
gc.set_threshold(200_000, 20, 50)


def pytest_addoption(parser):
    parser.addoption("--all-robots", action="store_true", help="test every robot of example-robot-data")


def pytest_configure(config):
    config.addinivalue_line("markers", "all_robots: takes long; runs only with --all-robots")
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
    if config.getoption("--all-robots"):
        return
    skip = pytest.mark.skip(reason="needs --all-robots")
    for item in items:
        if "all_robots" in item.keywords:
            item.add_marker(skip)
