"""The time statistics of a loader: seconds and samples of each stage, summed over all batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..samples.timing import STAGES

_WHAT = {
    "read": "reading samples",
    "decode": "decoding them",
    "augment": "transforms",
    "collate": "putting batches together",
    "wait_data": "the program waiting for a batch",
    "deliver": "batches to tensors on the device",
}


@dataclass
class Stats:
    """The result of ``DataLoader.stats()``.

    seconds: the seconds of each stage, summed over all workers, so that a stage may exceed the
    wall-clock time. samples, batches: the numbers delivered. skipped: the number of unreadable
    samples that were skipped (``on_error="skip"``).
    """

    samples: int = 0
    batches: int = 0
    skipped: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    workers: int = 0

    def samples_per_second(self, stage: str) -> float:
        """Return samples per second of ``stage``, or inf if the stage took no time."""
        taken = self.seconds.get(stage, 0.0)
        return self.samples / taken if taken > 0 else float("inf")

    def copy(self, reset: bool = False) -> Stats:
        """Return a copy that no longer changes. reset: restart the original from zero."""
        found = replace(self, seconds=dict(self.seconds))
        if reset:
            self.samples, self.batches, self.skipped, self.seconds = 0, 0, 0, {}
        return found

    def __str__(self) -> str:
        head = f"{self.samples:,} samples in {self.batches:,} batches".replace(",", " ")
        head += f", {self.skipped} left out as unreadable" if self.skipped else ""
        rows = [
            f"  {stage:<10} {value:>9.3f} s {self.samples_per_second(stage):>12,.0f} samples/s"
            f"  {_WHAT.get(stage, '')}".replace(",", " ")
            for stage, value in self._in_order()
        ]
        return "\n".join([head, *rows])

    def _in_order(self) -> list[tuple[str, float]]:
        known = [*STAGES, "deliver"]
        stages = sorted(self.seconds, key=lambda s: known.index(s) if s in known else len(known))
        return [(stage, self.seconds[stage]) for stage in stages if self.seconds[stage] > 0]
