"""Settings of all studies: folders and size of a run; sent to contestants as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
S = TypeVar("S", bound="RunSettings")


class RunSettings:
    """The base class of the settings of a benchmark; subclasses are dataclasses."""

    STUDIES: ClassVar[str]
    """The module in which a contestant finds ``STUDIES`` and ``Settings``."""
    quick: bool
    rounds: int

    def pick(self, full: T, quick: T) -> T:
        """Return ``full`` in a full run and ``quick`` in a quick one."""
        return quick if self.quick else full

    def to_json(self) -> str:
        """Return the settings as JSON for a contestant's command line."""
        values: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return json.dumps(values)

    @classmethod
    def from_json(cls: type[S], text: str) -> S:
        """Return the settings from the text of ``to_json``."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Settings(RunSettings):
    """One run of the benchmark.

    folder: for files that studies prepare. photos: folder of JPEG photographs; None: made-up ones.
    cifar: folder of CIFAR-10's batch files; None: random pixels of the same size.
    """

    STUDIES = "apps.bench.data.studies"

    folder: str
    photos: str | None = None
    cifar: str | None = None
    quick: bool = False
    rounds: int = 5
