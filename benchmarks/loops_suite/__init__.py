"""The benchmark suite of [LOOPS] VII: systems, samples, metrics, profiles. `python -m benchmarks.suite`."""
