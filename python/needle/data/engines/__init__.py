"""Where batches are prepared: in the caller's thread, in threads, or in worker processes."""
