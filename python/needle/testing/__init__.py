"""Tools for testing your own ops and backends: ``check_gradients`` and ``conformance``.

``python -m needle.testing.conformance NAME`` runs the conformance suite.
"""

from .gradients import check_gradients

__all__ = ["check_gradients"]
