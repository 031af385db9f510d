"""The parts of apps/train.py: data sources, the run with its checkpoints, the final report."""
