"""The benchmark suite of [LOOPS] VII: systems, samples, metrics and profiles. Run `python -m benchmarks.suite`."""
