"""An all-reduce around a ring, built from send and receive only.

``python examples/ring_all_reduce.py`` runs it in four threads; ``mpiexec -n 4 python
examples/ring_all_reduce.py`` times it against the all-reduce of the MPI library.
"""

from __future__ import annotations

import importlib
import queue
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from needle import config

Array = npt.NDArray[np.float32]
Send = Callable[[Array], None]
Receive = Callable[[], Array]

PATIENCE = 10.0
"""Seconds that a thread waits for its neighbour."""


def ring_all_reduce(array: Array, rank: int, size: int, send: Send, receive: Receive) -> None:
    """Replace a one-dimensional array by its sum over all ranks.

    send(part) sends an array to rank + 1, receive() returns the next one from rank - 1; the last
    rank's neighbour is rank 0. send returns at once, and the array may be changed afterwards.
    """
    ### BEGIN YOUR SOLUTION [ring-all-reduce]
    parts = np.array_split(array, size)
    for step in range(size - 1):  # after these steps part rank + 1 is complete
        send(parts[(rank - step) % size])
        parts[(rank - step - 1) % size] += receive()
    for step in range(size - 1):
        send(parts[(rank + 1 - step) % size])
        parts[(rank - step) % size][:] = receive()
    ### END YOUR SOLUTION


def in_threads(arrays: Sequence[Array]) -> list[list[int]]:
    """All-reduce the arrays, one per thread; return the lengths of what each thread sent."""
    size = len(arrays)
    links: list[queue.Queue[Array]] = [queue.Queue() for _ in arrays]
    sent: list[list[int]] = [[] for _ in arrays]
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        def send(part: Array) -> None:
            sent[rank].append(len(part))
            links[(rank + 1) % size].put(part.copy())

        try:
            ring_all_reduce(
                arrays[rank], rank, size, send, lambda: links[rank].get(timeout=PATIENCE)
            )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sent


def with_mpi(length: int, rounds: int = 20) -> None:
    """Time the ring against the library's all-reduce; rank 0 prints both."""
    mpi: Any = importlib.import_module("mpi4py.MPI")
    group = mpi.COMM_WORLD
    rank, size = group.Get_rank(), group.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    requests: list[Any] = []
    lengths = {len(part) for part in np.array_split(np.empty(length, np.float32), size)}

    def send(part: Array) -> None:
        copy = part.copy()
        requests.append((group.Isend(copy, right), copy))

    def receive() -> Array:
        room = np.empty(max(lengths), np.float32)
        status = mpi.Status()
        group.Recv(room, left, status=status)
        return room[: status.Get_count(mpi.FLOAT)]

    def ring(array: Array) -> None:
        ring_all_reduce(array, rank, size, send, receive)
        for request, _ in requests:
            request.Wait()
        requests.clear()

    def library(array: Array) -> None:
        group.Allreduce(mpi.IN_PLACE, array)

    times: dict[str, float] = {}
    for name, reduce in (("ring", ring), ("library", library)):
        found = []
        for _ in range(rounds):
            array = np.full(length, rank + 1, np.float32)
            group.Barrier()
            began = time.perf_counter()
            reduce(array)
            found.append(time.perf_counter() - began)
        assert (array == size * (size + 1) / 2).all()
        times[name] = 1e3 * statistics.median(found)
    if rank == 0:
        print(f"{length} numbers, {size} processes: ring {times['ring']:.2f} ms, ", end="")
        print(f"library {times['library']:.2f} ms")


def main() -> None:
    """Run with MPI if mpiexec started this program, else in threads."""
    if config.started_by_mpi():
        for length in (1_000, 100_000, 10_000_000):
            with_mpi(length)
        return
    arrays = [np.arange(8, dtype=np.float32) * (rank + 1) for rank in range(4)]
    sent = in_threads(arrays)
    print(f"every rank has {arrays[0].tolist()}")
    print(f"rank 0 sent {len(sent[0])} messages with {sum(sent[0])} numbers")


if __name__ == "__main__":
    main()
