"""A matrix product in WGSL: one thread per result, tiles, and results in registers."""
