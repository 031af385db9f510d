"""These properties concern needle's own arrays, so none of them is collected in NumPy mode."""

from needle.backend_selection import BACKEND

collect_ignore_glob = [] if BACKEND == "nd" else ["test_*.py"]
