"""The data module's benchmark: python -m apps.bench.data, or make bench-data."""
