"""Benchmarks of needle: python -m apps.bench, or make bench."""
