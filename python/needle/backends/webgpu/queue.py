"""Commands of a WebGPU device: pipelines, and dispatches that are submitted many at a time.

``required`` and ``optional`` record dispatches; a submission happens after ``BATCH`` of them or
when a value is read. Only reading waits.
"""

from __future__ import annotations

import importlib
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...errors import DeviceError, DeviceLostError, DeviceMemoryError
from .memory import WORD, Buffer, Pool

BATCH = 64
SLOT = 1024
"""Bytes for the parameters of a dispatch."""
BINDINGS = 4096
"""Bind groups that are kept."""
ROW = 32768
"""Workgroups in a row of a dispatch; WebGPU allows 65535."""

_Dispatch = tuple[Any, Any, tuple[int, int, int]]


class Queue:
    """A device with its pipelines, bind groups, memory and commands that wait to be submitted."""

    def __init__(self, device: Any) -> None:
        self._wgpu = importlib.import_module("wgpu")
        self._device = device
        usage = self._wgpu.BufferUsage
        limits = device.limits
        size = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
        memory = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self._lock = threading.RLock()
        self.pool = Pool(device, memory, size, self._lock)
        self._parameters = device.create_buffer(size=BATCH * SLOT, usage=memory)
        self._layouts: dict[int, tuple[Any, Any]] = {}
        self._pipelines: dict[str, Any] = {}
        self._groups: dict[tuple[int, ...], Any] = {}
        self._pending: list[_Dispatch] = []
        self._slots = bytearray(BATCH * SLOT)
        self._touched: set[int] = set()
        self.submissions = 0

    # ---- recording ---------------------------------------------------------------------------

    def dispatch(
        self,
        source: str,
        parameters: Sequence[int],
        buffers: Sequence[Buffer],
        groups: tuple[int, int, int],
    ) -> None:
        """Record a kernel: its text, int32 parameters, buffers from binding 1 on, workgroups."""
        with self._lock, self._typed_errors():
            pipeline = self._pipelines.get(source) or self._compile(source, len(buffers))
            numbers = tuple([buffer.number for buffer in buffers])
            group = self._groups.get(numbers) or self._bind(numbers, buffers)
            at = len(self._pending) * SLOT
            struct.pack_into(f"<{len(parameters)}i", self._slots, at, *parameters)
            self._pending.append((pipeline, group, groups))
            self._touched.update(numbers)
            if len(self._pending) == BATCH:
                self.submit()

    def _compile(self, source: str, buffers: int) -> Any:
        module = self._device.create_shader_module(code=source)
        pipeline = self._device.create_compute_pipeline(
            layout=self._layout(buffers)[1], compute={"module": module, "entry_point": "main"}
        )
        self._pipelines[source] = pipeline
        return pipeline

    def _layout(self, buffers: int) -> tuple[Any, Any]:
        """Return the layouts of a bind group and of a pipeline with so many buffers."""
        if buffers not in self._layouts:
            entries: list[dict[str, Any]] = [
                {
                    "binding": i,
                    "visibility": self._wgpu.ShaderStage.COMPUTE,
                    "buffer": {
                        "type": "storage" if i else "read-only-storage",
                        "has_dynamic_offset": i == 0,
                    },
                }
                for i in range(buffers + 1)
            ]
            group = self._device.create_bind_group_layout(entries=entries)
            whole = self._device.create_pipeline_layout(bind_group_layouts=[group])
            self._layouts[buffers] = group, whole
        return self._layouts[buffers]

    def _bind(self, numbers: tuple[int, ...], buffers: Sequence[Buffer]) -> Any:
        if len(self._groups) >= BINDINGS:
            self._groups.clear()
        entries = [
            {"binding": 0, "resource": {"buffer": self._parameters, "offset": 0, "size": SLOT}}
        ]
        entries += [
            {"binding": i + 1, "resource": {"buffer": buffer.gpu}}
            for i, buffer in enumerate(buffers)
        ]
        group = self._device.create_bind_group(
            layout=self._layout(len(buffers))[0], entries=entries
        )
        self._groups[numbers] = group
        return group

    # ---- running -----------------------------------------------------------------------------

    def submit(self) -> None:
        """Submit the recorded dispatches."""
        with self._lock, self._typed_errors():
            pending, self._pending = self._pending, []
            self._touched.clear()
            if not pending:
                return
            self._submit(pending)
            self.submissions += 1

    def _submit(self, pending: list[_Dispatch]) -> None:
        queue = self._device.queue
        queue.write_buffer(self._parameters, 0, self._slots, 0, len(pending) * SLOT)
        encoder = self._device.create_command_encoder()
        run = encoder.begin_compute_pass()
        current = None
        for i, (pipeline, group, groups) in enumerate(pending):
            if pipeline is not current:
                run.set_pipeline(pipeline)
                current = pipeline
            run.set_bind_group(0, group, [i * SLOT])
            run.dispatch_workgroups(*groups)
        run.end()
        queue.submit([encoder.finish()])

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Write bytes after the recorded dispatches that use the buffer."""
        with self._lock, self._typed_errors():
            if buffer.number in self._touched:
                self.submit()
            self._device.queue.write_buffer(buffer.gpu, offset, data)

    def read(self, buffer: Buffer, offset: int, size: int) -> memoryview:
        """Wait for all commands and return bytes of the buffer."""
        with self._lock:
            self.submit()
            return self._read(buffer.gpu, offset, size)

    def _read(self, gpu: Any, offset: int, size: int) -> memoryview:
        with self._typed_errors():
            found: memoryview = self._device.queue.read_buffer(gpu, offset, size)
        return found

    def wait(self) -> None:
        """Wait until all commands have run."""
        with self._lock:
            self.submit()
            self._read(self._parameters, 0, WORD)

    def forget(self) -> None:
        """Drop bind groups and cached memory."""
        with self._lock:
            self.submit()
            self._groups.clear()
            self.pool.empty()

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Turn the errors of wgpu into needle's."""
        try:
            yield
        except DeviceError:
            raise
        except (self._wgpu.GPUError, RuntimeError) as reason:
            raise self._error(reason) from reason

    def _error(self, reason: Exception) -> DeviceError:
        if isinstance(reason, self._wgpu.GPUOutOfMemoryError):
            return DeviceMemoryError(
                f"webgpu: the adapter's memory is exhausted, {self.pool.in_use} bytes are in use "
                f"({reason}); use smaller batches"
            )
        if "lost" in str(reason).lower() or "destroyed" in str(reason).lower():
            return DeviceLostError(
                f"webgpu: the device was lost, its arrays are gone ({reason}); start the program "
                "again from its last checkpoint"
            )
        return DeviceError(f"webgpu: the driver refused a command ({reason}); report this as a bug")
