"""The conformance suite: exactly the known failures fail."""

from needle.testing import conformance


def test_exactly_the_known_failures_fail() -> None:
    report = conformance.run("openmp")
    assert report.ok, report.table()
