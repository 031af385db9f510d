"""needle beside PyTorch: python -m apps.bench.against."""
