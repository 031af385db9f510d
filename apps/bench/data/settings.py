"""What all studies share: where files lie, how large a run is. Travels to contestants as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """One run of the benchmark.

    folder: for files that studies prepare. photos: a folder of JPEG photographs, None for made-up
    ones. cifar: the folder of CIFAR-10's batch files, None for random pixels of the same size.
    """

    folder: str
    photos: str | None = None
    cifar: str | None = None
    quick: bool = False
    rounds: int = 5

    def pick(self, full: T, quick: T) -> T:
        """The first in a full run, the second in a quick one."""
        return quick if self.quick else full

    def to_json(self) -> str:
        """For the command line of a contestant."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """What ``to_json`` wrote."""
        return Settings(**json.loads(text))
