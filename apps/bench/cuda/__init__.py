"""The benchmark on a GPU, compared with PyTorch on the same one: ``make bench-cuda``."""
