"""NDArray tests need needle's own arrays: none of them is collected in NumPy mode."""

from needle.backend_selection import BACKEND

collect_ignore_glob = [] if BACKEND == "nd" else ["test_array_*.py"]
