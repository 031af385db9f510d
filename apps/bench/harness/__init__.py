"""The harness of all benchmarks: contestants in processes of their own, and the report."""
