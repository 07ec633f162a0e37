"""Speed and accuracy beside peers: `python -m benchmarks.speed` and `python -m benchmarks.float32`."""
