"""Benchmarks that compare needle with PyTorch: python -m apps.bench.against."""
