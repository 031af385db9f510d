"""What apps/train.py is made of: data sources, the run with its checkpoints, the final report."""
