"""Exactly the known failures fail: no other function, and none that is written already."""

from needle.testing import conformance


def test_exactly_the_known_failures_fail() -> None:
    report = conformance.run("openmp")
    assert report.ok, report.table()
