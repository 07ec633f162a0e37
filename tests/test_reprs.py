"""What is printed is short and has the names in it; tracers and placeholders print too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrbd as rbd
from jaxrbd import constraints as con
from jaxrbd.ik import InverseKinematicsStats
from jaxrbd.solution import Result, Solution


def answer(*results, **numbers):
    codes = np.array(results, np.int32)
    codes = codes[0] if len(results) == 1 else codes
    stats = InverseKinematicsStats(*(numbers.get(k, 0.0) for k in ("p", "r", "g", "i")))
    return Solution(
        rbd.State(jnp.zeros(4), jnp.zeros(3)), jnp.asarray(codes), jax.tree.map(jnp.asarray, stats)
    )


@pytest.mark.parametrize("result", Result)
def test_a_result_prints_its_name(result):
    assert repr(result) == str(result) == f"{result}" == result.name
    assert repr(answer(result)).startswith(
        f"Solution({result.name}, value=State(q[4], v[3]), position_error=0,"
    )


def test_a_batch_of_solutions_counts_results():
    numbers = {key: np.array([1e-9, 2e-3, 0.0]) for key in "prgi"}
    text = repr(answer(Result.converged, Result.stationary, Result.converged, **numbers))
    assert text.startswith("Solution(") and "converged 2" in text and "stationary 1" in text
    assert "position_error<=0.002" in text
    assert len(text) < 250


def test_a_solution_of_anything_prints():
    solution = answer(Result.converged)
    seen = []
    jax.jit(lambda s: seen.append(repr(s)) or s)(solution)
    for leaf in (lambda _: None, lambda _: object(), lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)):
        seen.append(repr(jax.tree.map(leaf, solution)))
    assert all(text.startswith("Solution(result=") for text in seen)
    assert "q[4]" in seen[0]
    assert repr(Solution(jnp.zeros(2), jnp.int32(9), None)).startswith("Solution(9, value=float")
    assert repr(answer(Result.not_converged, p=np.nan)).startswith("Solution(not_converged")


def test_constraints_print_what_they_hold():
    arm = rbd.zoo.arm7()
    held = con.combine(
        con.weld(arm, "tool"), con.connect(arm, "elbow", name="tie"), con.hold(arm, "link5", ["turn_x", "x"])
    )
    assert repr(held) == "Constraints(11 rows: weld 'tool' 6, connect 'tie' 3, hold 'link5' 2)"
    assert "and 4 more" in repr(con.combine(*[con.connect(arm, "tool")] * 10))
    for leaf in (lambda _: None, lambda _: object(), lambda x: x[None]):
        assert repr(jax.tree.map(leaf, held)).startswith("Constraints(11 rows: weld 'tool' 6")
