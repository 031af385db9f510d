"""The benchmark: python -m apps.bench, or make bench."""
