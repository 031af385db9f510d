"""GlobalDataLoader: DataLoader's interface, with samples that a server prepares for many tasks.

Batches come from session.py while there is a server, from a DataLoader of its own where there is
none any more (iteration.py). What may be shared is shared_transforms.py's to say.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....array_namespace import device as find_device
from ...batching.collate import default_collate
from ...datasets.indexing import check_indices
from ...loader import options
from ...loader.statistics import Stats
from ...samples.random_source import check_seed
from ...sampling import batch_count, check_batch_size
from ..serving.server import Options
from ..wire.index_sets import write_indices
from ..wire.named_sets import check_shareable
from ..wire.protocol import Kind
from ..wire.shared_transforms import divide
from .assembly import Assembler
from .epochs import Epoch, read_state, write_state
from .global_iteration import GlobalIterator
from .joining import Rendezvous
from .session import Session
from .starting import await_end

SHARE = ("decoded", "prepared")
_numbers = itertools.count(1)


class GlobalDataLoader:
    """As ``DataLoader(dataset, batch_size, shuffle=True)``, beside other tasks on this machine.

    Each task sees a uniformly random order of its own indices every epoch, each index once, and
    the server lets tasks meet at one index as often as that allows, which is then read once.

    source: a data set, whose server is found, or started and ended with its last task; or the
    address of a server: a name or the path of its socket. indices: the samples of this task, all
    by default. task: its name, which no other task of the server has. share: "decoded" shares
    what the transforms before the first random one make of a sample, and each task augments for
    itself, with DataLoader's random numbers of (seed, epoch, index); "prepared" shares the whole
    list, so that tasks which meet at an index see the same augmentation of it: cheaper, and
    correlated. What a data set draws by itself is shared in either case. fallback: True reads the
    rest of an epoch in this process when the server dies (with an address: the data set to read
    from); False raises LoaderServerError, after which ``next()`` goes on with another server.

    num_workers, cache_bytes, spill_bytes: processes that read, bytes of samples kept in memory
    beyond those in use and in a file beyond these, of a server that this loader starts; all
    cores, a GiB and none by default. name: another name for it, for a server of one's own.
    credits: batches drawn ahead, 4 by default; more let tasks of uneven pace share more, and hold
    more memory. prefetch: those of them that are put together ahead. batch_size, drop_last,
    transforms, batch_transforms, collate, seed, device, timeout and on_error are DataLoader's;
    without a seed one is drawn from ``np.random``.

    ``close()``, ``with loader:``, or dropping the loader ends the task. Raises ValueError for
    options that contradict each other, DataError where the server refuses the task.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int = 1,
        shuffle: bool = True,
        *,
        task: str | None = None,
        indices: Iterable[int] | npt.NDArray[np.integer[Any]] | None = None,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
        batch_transforms: Sequence[Callable[..., Any]] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        device: Any = None,
        share: str = "decoded",
        fallback: Any = False,
        num_workers: int | None = None,
        cache_bytes: int | None = None,
        spill_bytes: int | None = None,
        name: str | None = None,
        credits: int = 4,
        prefetch: int = 2,
        timeout: float | None = None,
        on_error: str = "raise",
    ) -> None:
        _check_shuffle(shuffle)
        address = source if isinstance(source, (str, os.PathLike)) else None
        self.dataset = _dataset(source, address, fallback)
        self.fallback, self.share = (
            fallback is not False,
            options.check_choice("share", share, SHARE),
        )
        self.batch_size = check_batch_size("GlobalDataLoader", batch_size)
        self.drop_last, self.timeout = bool(drop_last), timeout
        self.device = None if device is None else find_device(device)
        self.transforms = options.check_transforms(self.dataset, transforms)
        self.batch_transforms = options.check_batch_transforms(batch_transforms)
        self.collate = default_collate if collate is None else collate
        self.on_error = options.check_choice("on_error", on_error, options.ON_ERROR)
        self.prefetch = options.check_waiting("server", prefetch, timeout)
        self.credits = _check_credits(credits, self.prefetch)
        if address is not None:
            _check_no_server_options(num_workers, cache_bytes, spill_bytes, name)
        self.seed = (
            int(np.random.randint(0, 2**32, dtype=np.uint32))
            if seed is None
            else check_seed("GlobalDataLoader", seed)
        )
        self.task = task or f"task-{os.getpid()}-{next(_numbers)}"
        self._division = divide(self.transforms, share)
        settings = Options(
            _workers(num_workers),
            _bytes("cache_bytes", cache_bytes, 1 << 30),
            spill=_bytes("spill_bytes", spill_bytes, 0),
            until_last=True,
        )
        self._rendezvous = Rendezvous(address, None if address else self.dataset, settings, name)
        length = self._rendezvous.length() if self.dataset is None else len(self.dataset)
        self.indices = _index_set(indices, length)
        self._stats = Stats()
        self._next = Epoch(0, len(self.indices))
        self._current: Epoch | None = None
        self._session: Session | None = None
        self._closing: Any = None  # the finalizer that ends the session
        self._user: object = None  # the iterator that the session works for
        self._lock = threading.RLock()
        self._running_session()  # what the server refuses is told here, not in a loop

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return batch_count(len(self.indices), self.batch_size, self.drop_last)

    def __iter__(self) -> GlobalIterator:
        """Starts the next epoch, or goes on where ``load_state_dict`` put it."""
        epoch, self._next = self._next, Epoch(self._next.number + 1, len(self.indices))
        self._current = epoch
        return GlobalIterator(self, epoch)

    @property
    def owns_batches(self) -> bool:
        """Whether nobody else refers to a batch's arrays."""
        return not self.batch_transforms and self.collate is default_collate

    # ---- where it is

    @property
    def epoch(self) -> int:
        """The epoch under way, else the one that the next ``iter()`` starts."""
        return self._place().number

    def set_epoch(self, epoch: int) -> None:
        """The next ``iter()`` starts this epoch. Optional: epochs advance by themselves."""
        if epoch < 0:
            raise ValueError(f"GlobalDataLoader.set_epoch: must not be negative, got {epoch}")
        self._next, self._current = Epoch(int(epoch), len(self.indices)), None

    def state_dict(self) -> dict[str, Any]:
        """Where the task is, as JSON values: seed, epoch, and which samples it has been given.

        A bit a sample, compressed; the order of the rest is drawn anew when it goes on.
        """
        return write_state(self, self._place())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next ``iter()`` gives the samples that the epoch had left, with this seed.

        Also at another server, or a new one. ValueError for a state of another kind or size.
        """
        self.seed, self._next = read_state(self, state)
        self._current = None
        if self._session is not None:
            self._session.assembler.seed = self.seed

    def _place(self) -> Epoch:
        current = self._current
        return self._next if current is None or current.finished else current

    # ---- what it does

    def stats(self, reset: bool = False) -> Stats:
        """Seconds and samples by stage since the loader was made, or the last ``reset``."""
        found = self._stats.copy()
        if reset:
            self._stats = Stats()
        return found

    def server_status(self) -> dict[str, Any]:
        """All tasks of the server, its readings and memory. LoaderServerError if it is gone."""
        with self._lock:
            return self._running_session().ask(Kind.STATUS)

    def explain(self) -> str:
        """In words: which transforms the server runs for all, and which run here."""
        shared = ", ".join(each["name"] for each in self._division.shared) or "none"
        own = ", ".join(part.name for part in self._division.own.parts) or "none"
        return (
            f"task {self.task!r} at {self._rendezvous.path}, share={self.share!r}\n"
            f"run by the server, once for all tasks: {shared}\nrun here: {own}"
        )

    # ---- the session

    def close(self) -> None:
        """Ends the task, and with the last task a server that a loader has started."""
        session = self._session
        self._drop_session()
        if session is not None and session.last:
            await_end(2.0)

    def __enter__(self) -> GlobalDataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _running_session(self) -> Session:
        """The session; a new one, if need be at a new server, where there is none."""
        if self._session is None:
            assembler = Assembler(self._division.own, self.collate, self.seed, threads=1)
            where, raw = write_indices(self.indices)
            decode_at = self._division.decode_at
            values = {
                **where,
                "task": self.task,
                "batch_size": self.batch_size,
                "drop_last": self.drop_last,
                "credits": self.credits,
                "share": self.share,
                "shared": self._division.shared,
                "decode_at": None if decode_at is None else list(decode_at),
            }
            self._session = self._rendezvous.meet(assembler, self.prefetch, values, raw)
            self._closing = weakref.finalize(self, self._session.close)
        return self._session

    def _drop_session(self) -> None:
        if self._closing is not None:
            self._closing()
        self._session = self._closing = self._user = None


def _dataset(source: Any, address: Any, fallback: Any) -> Any:
    """The data set, where this process has it."""
    if address is None:
        check_shareable(source)
        if fallback not in (True, False):
            raise ValueError(
                "GlobalDataLoader: fallback is True or False where source is the data set, got "
                f"{type(fallback).__name__}"
            )
        return source
    if fallback is True:
        raise ValueError(
            "GlobalDataLoader: fallback=True needs the data set, got an address; give the data set "
            "itself: fallback=dataset"
        )
    if fallback is False:
        return None
    check_shareable(fallback)
    return fallback


def _index_set(indices: Any, length: int) -> npt.NDArray[np.int64]:
    """The distinct indices in rising order; all of them by default."""
    if indices is None:
        return np.arange(length)
    given = indices if isinstance(indices, np.ndarray) else np.array(list(indices))
    if given.dtype == bool:
        given = np.flatnonzero(given)
    found = np.unique(check_indices("GlobalDataLoader", given, length))
    if len(found) != len(given) or not len(found):
        raise ValueError(
            f"GlobalDataLoader: indices must be distinct and at least one, got {len(given)} of "
            f"which {len(found)} differ; a sample comes once an epoch"
        )
    return found


def _check_shuffle(shuffle: Any) -> None:
    if shuffle is not True:
        raise ValueError(
            f"GlobalDataLoader: tasks meet at random places only, got shuffle={shuffle!r}; take "
            "DataLoader for samples in order"
        )


def _check_credits(credits: Any, prefetch: int) -> int:
    if not isinstance(credits, int) or not 2 <= credits <= 1024:
        raise ValueError(f"GlobalDataLoader: credits must be in [2, 1024], got {credits!r}")
    if prefetch > credits:
        raise ValueError(
            f"GlobalDataLoader: of {credits} credits at most as many batches can be put together "
            f"ahead, got prefetch={prefetch}; give credits={prefetch}"
        )
    return credits


def _check_no_server_options(*given: Any) -> None:
    for name, value in zip(("num_workers", "cache_bytes", "spill_bytes", "name"), given):
        if value is not None:
            raise ValueError(
                f"GlobalDataLoader: {name} is for a server that it starts, got {name}={value!r} "
                "and an address; leave it out, or give the data set itself"
            )


def _bytes(name: str, given: Any, default: int) -> int:
    if given is None:
        return default
    if not isinstance(given, int) or given < 0:
        raise ValueError(f"GlobalDataLoader: {name} must be a count of bytes, got {given!r}")
    return given


def _workers(num_workers: int | None) -> int:
    if num_workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    return options.check_workers(num_workers)
