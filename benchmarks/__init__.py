"""Speed and accuracy beside peers: `python -m benchmarks.speed`, `.gradients` and `.float32`."""
