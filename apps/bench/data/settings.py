"""What all studies share: where files lie, how large a run is. Travels to contestants as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
S = TypeVar("S", bound="RunSettings")


class RunSettings:
    """What the harness asks of the settings of any benchmark; subclasses are dataclasses."""

    STUDIES: ClassVar[str]
    """The module in which a contestant finds ``STUDIES`` and ``Settings``."""
    quick: bool
    rounds: int

    def pick(self, full: T, quick: T) -> T:
        """The first in a full run, the second in a quick one."""
        return quick if self.quick else full

    def to_json(self) -> str:
        """For the command line of a contestant."""
        values: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return json.dumps(values)

    @classmethod
    def from_json(cls: type[S], text: str) -> S:
        """What ``to_json`` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Settings(RunSettings):
    """One run of the benchmark.

    folder: for files that studies prepare. photos: a folder of JPEG photographs, None for made-up
    ones. cifar: the folder of CIFAR-10's batch files, None for random pixels of the same size.
    """

    STUDIES = "apps.bench.data.studies"

    folder: str
    photos: str | None = None
    cifar: str | None = None
    quick: bool = False
    rounds: int = 5
