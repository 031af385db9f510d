"""Record WebGPU commands instead of running them, to export a program to a web page.

``Listing`` replaces ``Queue``, so no adapter is needed. A program without Python creates the
buffers, writes the host's data into them, and runs the commands in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...errors import DeviceError
from .memory import GRAIN, WORD, Buffer
from .optional import WebGpuBackend
from .queue import Queue

FEWEST_BUFFERS = 8
"""Storage buffers per kernel that every adapter supports (WebGPU, section 3.6.2, "Limits")."""


@dataclass(frozen=True)
class Dispatch:
    """A kernel launch: source index, int32 parameters, buffers from binding 1 on, workgroups."""

    source: int
    parameters: list[int]
    buffers: list[int]
    workgroups: tuple[int, int, int]

    @property
    def target(self) -> int:
        """The number of the buffer that holds the result."""
        return self.buffers[0]


@dataclass(frozen=True)
class Copy:
    """A copy of a whole buffer to another one."""

    origin: int
    target: int


@dataclass
class Listing(Queue):
    """A queue that records the commands of a program, its buffer sizes and the host's writes.

    sources: the kernels' source texts. sizes: the bytes of each buffer. written: the (buffer, byte
    offset, data) of each host write; all precede the first command.
    """

    sources: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    written: list[tuple[int, int, bytes]] = field(default_factory=list)
    commands: list[Dispatch | Copy] = field(default_factory=list)
    most_buffers: int = FEWEST_BUFFERS
    _filled: set[int] = field(default_factory=set)

    def take(self, size: int) -> Buffer:
        """Return a new buffer of ``size`` elements; memory is never reused."""
        self.sizes.append(max(-(-size * WORD // GRAIN), 1) * GRAIN)
        return Buffer(self, size, None, len(self.sizes) - 1)  # type: ignore[arg-type]

    def give_back(self, number: int) -> None:
        """Keep the buffer, since recorded commands refer to it."""

    def dispatch(
        self,
        source: str,
        parameters: Sequence[int],
        buffers: Sequence[Buffer],
        workgroups: tuple[int, int, int],
    ) -> None:
        """Record a kernel; its first buffer is the result.

        A browser rejects a buffer with two writable bindings. The second binding therefore gets a
        copy, or an empty buffer if the first has no contents yet.
        """
        numbers: list[int] = []
        for number in (buffer.number for buffer in buffers):
            if number in numbers:
                self.sizes.append(self.sizes[number])
                if number in self._filled:
                    self.commands.append(Copy(number, len(self.sizes) - 1))
                number = len(self.sizes) - 1
            numbers.append(number)
        self._filled.add(numbers[0])
        if source not in self.sources:
            self.sources.append(source)
        index = self.sources.index(source)
        self.commands.append(Dispatch(index, list(parameters), numbers, workgroups))

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Record a host write; raise DeviceError if a kernel has written to the buffer."""
        if any(buffer.number == command.target for command in self.commands):
            raise DeviceError("webgpu: a recorded program cannot overwrite a kernel's result")
        self._filled.add(buffer.number)
        self.written.append((buffer.number, offset, bytes(memoryview(data).cast("B"))))

    def wait(self) -> None:
        """Return immediately, since nothing runs."""

    def read(self, buffer: Buffer, offset: int, size: int) -> NoReturn:
        """Raise DeviceError, since nothing has run."""
        raise DeviceError("webgpu: a program cannot read values while it is recorded")


class ListingBackend(WebGpuBackend):
    """A WebGPU backend with a ``queue`` that records commands."""

    queue: Listing

    def __init__(self) -> None:
        self.name, self.adapter_name, self.queue = "webgpu_listing", "none", Listing()
