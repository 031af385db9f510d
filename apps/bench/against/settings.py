"""What one run of the comparison shares; travels to contestants as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from apps.bench.data.settings import RunSettings


@dataclass(frozen=True)
class Settings(RunSettings):
    """threads: of every library. batches: of the training steps, None for each model's own.

    peer: the library beside ours. compiled: with torch.compile, which takes minutes to warm up.
    cpu_time: processor time is measured instead of the wall's.
    """

    STUDIES = "apps.bench.against.studies"

    threads: int = 1
    batches: tuple[int, ...] | None = None
    quick: bool = False
    rounds: int = 5
    peer: str = "torch"
    compiled: bool = True
    cpu_time: bool = False

    def environment(self) -> dict[str, str]:
        """Holds all libraries of a contestant to ``threads``."""
        names = ("NEEDLE", "OMP", "MKL", "OPENBLAS")
        return {f"{name}_NUM_THREADS": str(self.threads) for name in names}
