"""Programs that use needle: models, training, the benchmark. Nothing in needle imports them."""
