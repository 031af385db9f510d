"""Into how many slices worker processes share a batch out.

What is done once a slice, in the worker and by who puts the batch together, takes a millisecond.
Whole batches that are under way side by side keep workers busy as well; they are cut where there
are fewer than workers, or where the last slices of an epoch would be long to wait for.
"""

from __future__ import annotations

MOST_SLICES = 32  # slices of a batch
_MOST_EACH = 4  # of them for each worker
_SHORT = 2e-3  # seconds: slices shorter than this are not worth the asking
_FAIR = 20e-3  # seconds: shorter ones cost a tenth more, worth it only where a worker has none
_LONG = 50e-3  # seconds: longer ones are cut, lest one worker works while the others are done


def slices(rows: int, workers: int, under_way: int, seconds: float | None) -> int:
    """How many, at least 1.

    under_way: batches that are prepared at the same time. seconds: that the whole batch takes one
    worker; None: not known yet.
    """
    count = min(workers, MOST_SLICES, max(1, rows))
    if seconds is None:
        return count
    one_for_each = -(-(workers + 1) // under_way)  # and one that is waiting
    fair = max(one_for_each, int(seconds / _FAIR))
    more = min(int(seconds / _LONG), _MOST_EACH * workers, MOST_SLICES, rows)
    return max(1, min(count, int(seconds / _SHORT), fair), more)
