"""The benchmark of the data module: python -m apps.bench.data, or make bench-data."""
