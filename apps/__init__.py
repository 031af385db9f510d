"""Programs that use needle: models, training, benchmarks, the course. needle never imports them."""
