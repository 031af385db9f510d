"""The command queue of a WebGPU device: pipelines, and dispatches submitted in batches.

``required`` and ``optional`` add dispatches. A batch is submitted when it is full, when a value is
read, or when a recorded graph is launched. Only reads block.
"""

from __future__ import annotations

import importlib
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...errors import DeviceError, DeviceLostError, DeviceMemoryError
from .memory import WORD, Buffer, Pool

BATCH = 64
"""Maximum number of dispatches in a batch."""
SLOT = 1024
"""Bytes reserved for the parameters of a dispatch."""
BINDINGS = 4096
"""Maximum number of cached bind groups."""
ROW = 32768
"""Workgroups per row (x dimension) of a dispatch; WebGPU allows 65535."""


class Batch:
    """A batch of dispatches submitted together, with the buffer of their parameters."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters
        self.slots = bytearray(BATCH * SLOT)
        self.groups: dict[tuple[int, ...], Any] = {}
        self.dispatches: list[tuple[Any, Any, tuple[int, int, int]]] = []
        self.buffers: set[int] = set()

    def clear(self) -> None:
        """Drop the dispatches but keep the bind groups."""
        self.dispatches.clear()
        self.buffers.clear()

    def encode(self, run: Any) -> None:
        """Encode the dispatches in a compute pass."""
        current = None
        for i, (pipeline, group, workgroups) in enumerate(self.dispatches):
            if pipeline is not current:
                run.set_pipeline(pipeline)
                current = pipeline
            run.set_bind_group(0, group, [i * SLOT])
            run.dispatch_workgroups(*workgroups)


class Graph:
    """The dispatches recorded by ``Queue.record``. ``kept``: the buffers that they use."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.kept: list[Buffer] = []


class Queue:
    """A command queue of a device, with its pipelines, bind groups, memory and pending commands.

    most_buffers: the maximum number of buffers of a dispatch, including that of its parameters.
    """

    def __init__(self, device: Any) -> None:
        self._wgpu = importlib.import_module("wgpu")
        self._device = device
        usage = self._wgpu.BufferUsage
        limits = device.limits
        size = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
        self.most_buffers = limits["max-storage-buffers-per-shader-stage"]
        self._usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self._lock = threading.RLock()
        self.pool = Pool(device, self._usage, size, self._lock, self.forget)
        self._layouts: dict[int, tuple[Any, Any]] = {}
        self._pipelines: dict[str, Any] = {}
        self._graph: Graph | None = None
        with self._typed_errors():
            self._batch = self._new_batch()
        self.submissions = 0

    def _new_batch(self) -> Batch:
        return Batch(self._device.create_buffer(size=BATCH * SLOT, usage=self._usage))

    def take(self, size: int) -> Buffer:
        """Return an uninitialised buffer of ``size`` elements, or raise DeviceMemoryError."""
        with self._lock, self._typed_errors():
            buffer = self.pool.take(size)
            if self._graph is not None:
                self._graph.kept.append(buffer)
            return buffer

    # ---- recording ---------------------------------------------------------------------------

    def dispatch(
        self,
        source: str,
        parameters: Sequence[int],
        buffers: Sequence[Buffer],
        workgroups: tuple[int, int, int],
    ) -> None:
        """Add a kernel launch: source, int32 parameters, buffers from binding 1 on, workgroups."""
        with self._lock, self._typed_errors():
            batch = self._batch
            pipeline = self._pipelines.get(source) or self._compile(source, len(buffers))
            numbers = tuple([buffer.number for buffer in buffers])
            group = batch.groups.get(numbers) or self._bind(batch, numbers, buffers)
            at = len(batch.dispatches) * SLOT
            struct.pack_into(f"<{len(parameters)}i", batch.slots, at, *parameters)
            batch.dispatches.append((pipeline, group, workgroups))
            batch.buffers.update(numbers)
            if len(batch.dispatches) == BATCH:
                self._full()

    def _full(self) -> None:
        """Submit the full batch, or begin the next one of the graph being recorded."""
        if self._graph is None:
            self.submit()
        else:
            self._batch = self._new_batch()
            self._graph.batches.append(self._batch)

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """Return a function that submits the dispatches made by ``run`` as one command.

        They do not run while they are recorded. Raises DeviceError if ``run`` writes or reads
        memory from the host.
        """
        with self._lock, self._typed_errors():
            before, graph = self._batch, Graph()
            self._graph, self._batch = graph, self._new_batch()
            graph.batches.append(self._batch)
            try:
                run()
            finally:
                self._graph, self._batch = None, before
            for batch in graph.batches:
                self._write_parameters(batch)
        return lambda: self._launch(graph)

    def _launch(self, graph: Graph) -> None:
        with self._lock, self._typed_errors():
            batches = [self._batch] if self._batch.dispatches else []
            try:
                if batches:
                    self._write_parameters(self._batch)
                self._submit([*batches, *graph.batches])
            finally:
                self._batch.clear()

    def _require_no_graph(self) -> None:
        if self._graph is not None:
            raise DeviceError(
                "webgpu: a recorded step cannot read or write memory of the device from the host; "
                "call needle.capture(step, graphs=False)"
            )

    def _compile(self, source: str, buffers: int) -> Any:
        module = self._device.create_shader_module(code=source)
        pipeline = self._device.create_compute_pipeline(
            layout=self._layout(buffers)[1], compute={"module": module, "entry_point": "main"}
        )
        self._pipelines[source] = pipeline
        return pipeline

    def _layout(self, buffers: int) -> tuple[Any, Any]:
        """Return the layouts of a bind group and a pipeline with this number of buffers."""
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

    def _bind(self, batch: Batch, numbers: tuple[int, ...], buffers: Sequence[Buffer]) -> Any:
        if len(batch.groups) >= BINDINGS:
            batch.groups.clear()
        entries = [
            {"binding": 0, "resource": {"buffer": batch.parameters, "offset": 0, "size": SLOT}}
        ]
        entries += [
            {"binding": i + 1, "resource": {"buffer": buffer.gpu}}
            for i, buffer in enumerate(buffers)
        ]
        group = self._device.create_bind_group(
            layout=self._layout(len(buffers))[0], entries=entries
        )
        batch.groups[numbers] = group
        return group

    # ---- running -----------------------------------------------------------------------------

    def submit(self) -> None:
        """Submit the pending dispatches."""
        with self._lock, self._typed_errors():
            self._require_no_graph()
            if not self._batch.dispatches:
                return
            try:
                self._write_parameters(self._batch)
                self._submit([self._batch])
            finally:
                self._batch.clear()

    def _write_parameters(self, batch: Batch) -> None:
        size = len(batch.dispatches) * SLOT
        if size:
            self._device.queue.write_buffer(batch.parameters, 0, batch.slots, 0, size)

    def _submit(self, batches: Sequence[Batch]) -> None:
        encoder = self._device.create_command_encoder()
        run = encoder.begin_compute_pass()
        for batch in batches:
            batch.encode(run)
        run.end()
        self._device.queue.submit([encoder.finish()])
        self.submissions += 1

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Write bytes to a buffer, after submitting pending dispatches that use it."""
        with self._lock, self._typed_errors():
            self._require_no_graph()
            if buffer.number in self._batch.buffers:
                self.submit()
            self._device.queue.write_buffer(buffer.gpu, offset, data)

    def read(self, buffer: Buffer, offset: int, size: int) -> memoryview:
        """Wait for all commands and return bytes from the buffer."""
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
            self._read(self._batch.parameters, 0, WORD)

    def forget(self) -> None:
        """Release cached memory, and the bind groups that would keep it alive."""
        with self._lock:
            self.submit()
            self._batch.groups.clear()
            self.pool.empty()

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Convert wgpu's errors to needle's."""
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
