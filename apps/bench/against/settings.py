"""Settings of a run of the comparison; sent to contestants as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from apps.bench.data.settings import RunSettings


@dataclass(frozen=True)
class Settings(RunSettings):
    """The settings of a run.

    threads: number of threads of every library. batches: batch sizes of training steps; None: those
    of each model. peer: the library to compare with. compiled: include torch.compile, which takes
    minutes to warm up. cpu_time: measure processor time instead of wall-clock time.
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
        """Return the environment that limits all libraries of a contestant to ``threads``."""
        names = ("NEEDLE", "OMP", "MKL", "OPENBLAS")
        return {f"{name}_NUM_THREADS": str(self.threads) for name in names}
