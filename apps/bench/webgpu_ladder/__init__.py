"""A matrix product in WGSL: one thread a result, tiles, and results in registers."""
