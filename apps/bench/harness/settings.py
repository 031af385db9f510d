"""The settings of a run, sent as JSON to the contestants' processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    studies: module that defines STUDIES, a dict of studies by name. threads: threads of every
    library; 0 if each case sets its own. device: needle's name of the device. precision: that of
    products on a GPU. compiled: include torch.compile, which takes minutes to warm up. folder:
    where studies put the files that they prepare. photos: folder of JPEG photographs; None means
    generated ones. cifar: folder of CIFAR-10's batch files; None means random pixels of the same
    size.
    """

    studies: str
    threads: int = 1
    rounds: int = 5
    quick: bool = False
    device: str = "cpu"
    precision: str = "float32"
    compiled: bool = True
    folder: str = ""
    photos: str | None = None
    cifar: str | None = None

    def pick(self, full: T, quick: T) -> T:
        """Return ``full`` in a full run and ``quick`` in a quick one."""
        return quick if self.quick else full

    def environment(self) -> dict[str, str]:
        """Return the variables that set threads and precision for all libraries of a contestant."""
        names = ("NEEDLE", "OMP", "MKL", "OPENBLAS")
        limited = {f"{name}_NUM_THREADS": str(self.threads) for name in names}
        return {**limited, "NEEDLE_MATMUL_PRECISION": self.precision}

    def to_json(self) -> str:
        """Return the settings as JSON for a contestant's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return the settings from the text of ``to_json``."""
        return cls(**json.loads(text))
