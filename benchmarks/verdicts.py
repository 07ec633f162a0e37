"""What solvers of constrained dynamics say of their answers:  python -m benchmarks.verdicts [--json FILE].

Random mechanisms of tests/verdict_cases.py, whose masses, weights and targets vary as leaves, against least
squares in NumPy. Prints and stores solver × precision × what was answered and what was said of it. Exits
with 1 if a verdict is wrong or a NaN is not reported.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from benchmarks import report

# compile time is most of a run, as in the tests (set before JAX reads its flags)
FLAGS = (
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--mechanisms", type=int, default=60, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="seed of the first mechanism")
    parser.add_argument("--links", type=int, help="links of every mechanism, instead of 5 to 40")
    parser.add_argument("--samples", type=int, default=40, help="problems per mechanism")
    parser.add_argument("--solvers", nargs="+")
    parser.add_argument("--precisions", nargs="+", default=["float64", "float32"])
    parser.add_argument(
        "--show", type=int, default=5, help="how many wrong and unconverged ones to print each"
    )
    parser.add_argument("--json", metavar="FILE", help="store the table")
    chosen = parser.parse_args(arguments)
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + FLAGS
    import jax

    jax.config.update("jax_enable_x64", True)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import verdict_cases as cases
    import verdict_tally as tally

    print(report.machine())
    start = time.perf_counter()
    solvers = chosen.solvers or tally.SOLVERS
    total = {(s, p): tally.Tally() for s in solvers for p in chosen.precisions}
    for seed in range(chosen.first, chosen.first + chosen.mechanisms):
        m = cases.mechanism(seed, chosen.links)
        samples = cases.samples(m, chosen.samples, seed)
        for p in chosen.precisions:
            known = tally.references(m, samples, p)
            for s in solvers:
                total[s, p].merge(tally.judge(m, samples, s, p, known))
        jax.clear_caches()
        print(f"{m.name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    for x in total.values():
        for line in x.wrong[: chosen.show]:
            print("wrong:", line)
        for line in x.missed[: chosen.show]:
            print("not converged:", line)
    print(tally.table(total))
    if chosen.json:
        rows = [{"solver": s, "precision": p, **x.row()} for (s, p), x in total.items()]
        Path(chosen.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    wrong = sum(x.counts["wrong"] + x.counts["NaN claimed"] for x in total.values())
    print(f"{wrong} wrong verdicts in {time.perf_counter() - start:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
