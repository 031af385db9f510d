"""Kernels of WebGPU written down instead of run, for programs without Python such as a web page.

``Listing`` takes the place of ``Queue``, so no adapter is needed. Another program makes the
buffers, writes the host's data into them, and runs the commands in their order.
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
"""Storage buffers of a kernel that every adapter allows (WebGPU, section 3.6.2, "Limits")."""


@dataclass(frozen=True)
class Dispatch:
    """A kernel: index of its text, int32 parameters, buffers from binding 1 on, workgroups."""

    source: int
    parameters: list[int]
    buffers: list[int]
    workgroups: tuple[int, int, int]

    @property
    def target(self) -> int:
        """The buffer of the result."""
        return self.buffers[0]


@dataclass(frozen=True)
class Copy:
    """The whole contents of a buffer, copied to another one."""

    origin: int
    target: int


@dataclass
class Listing(Queue):
    """The commands of a program, the sizes of its buffers, and what the host writes to them.

    sources: the texts of kernels. sizes: bytes of each buffer. written: (buffer, offset in bytes,
    data) of what the host writes, before the first command.
    """

    sources: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    written: list[tuple[int, int, bytes]] = field(default_factory=list)
    commands: list[Dispatch | Copy] = field(default_factory=list)
    most_buffers: int = FEWEST_BUFFERS
    _filled: set[int] = field(default_factory=set)

    def take(self, size: int) -> Buffer:
        """Return a new buffer of ``size`` elements; none is used twice."""
        self.sizes.append(max(-(-size * WORD // GRAIN), 1) * GRAIN)
        return Buffer(self, size, None, len(self.sizes) - 1)  # type: ignore[arg-type]

    def give_back(self, number: int) -> None:
        """Keep the buffer: the commands name it."""

    def dispatch(
        self,
        source: str,
        parameters: Sequence[int],
        buffers: Sequence[Buffer],
        workgroups: tuple[int, int, int],
    ) -> None:
        """Write down a kernel, whose first buffer is its result.

        A browser refuses a buffer that two bindings may write. The second binding gets a copy, or a
        buffer of its own if there is nothing to read.
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
        """Note what the host writes; DeviceError if a kernel has written to the buffer."""
        if any(buffer.number == command.target for command in self.commands):
            raise DeviceError("webgpu: a listed program cannot write over a kernel's result")
        self._filled.add(buffer.number)
        self.written.append((buffer.number, offset, bytes(memoryview(data).cast("B"))))

    def wait(self) -> None:
        """Return at once: nothing runs."""

    def read(self, buffer: Buffer, offset: int, size: int) -> NoReturn:
        """Raise DeviceError: nothing has run."""
        raise DeviceError("webgpu: a program cannot read values while it is listed")


class ListingBackend(WebGpuBackend):
    """The kernels of WebGPU, which ``queue`` writes down."""

    queue: Listing

    def __init__(self) -> None:
        self.name, self.adapter_name, self.queue = "webgpu_listing", "none", Listing()
