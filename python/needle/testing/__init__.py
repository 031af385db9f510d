"""What people use to test their own ops and backends: ``check_gradients``, ``conformance``.

The conformance suite is run as ``python -m needle.testing.conformance NAME``.
"""

from .gradients import check_gradients

__all__ = ["check_gradients"]
