"""Speed on a GPU, beside PyTorch on the same one: ``make bench-cuda``."""
