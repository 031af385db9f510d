"""How a loader comes to its server: one that is there, or one that it starts.

The socket's name of a server that loaders start is made of what the data set holds, so that
programs with equal data sets meet without being told where.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ....errors import DataError, LoaderServerError
from ..serving.server import Options
from ..wire.address import connect, socket_path
from ..wire.call import Call
from ..wire.named_sets import fingerprint
from .assembly import Assembler
from .session import Session
from .starting import start_server

PATIENCE = 60.0  # seconds for a server to be there
Found = TypeVar("Found")


class Rendezvous:
    """Where a loader's server is: at ``address``, or wherever ``dataset`` says; one of them None.

    options: of the server, if it is this loader who starts it; name: another name for it.
    """

    def __init__(
        self, address: Any, dataset: Any, options: Options, name: str | None = None
    ) -> None:
        self.dataset, self.options = dataset, options
        self.fingerprint = None if dataset is None else fingerprint(dataset)
        self.starts = address is None
        if address is None:
            address = name or f"auto-{self.fingerprint}"
        self.path: Path = socket_path(address)

    def meet(
        self, assembler: Assembler, prefetch: int, values: dict[str, Any], raw: bytes
    ) -> Session:
        """A session with the server, registered as ``values`` say.

        Raises LoaderServerError where there is no server and none is to be started, DataError
        where the server has other data or refuses the task.
        """

        def register(call: Call) -> Session:
            session = Session(call, assembler, prefetch)
            try:
                session.register(values, raw)
            except BaseException:
                session.close()
                raise
            return session

        return self._with_server(register)

    def length(self) -> int:
        """Of the server's data set. Raises as ``meet``."""

        def read(call: Call) -> int:
            call.close()
            return int(call.server["length"])

        return self._with_server(read)

    def _with_server(self, use: Callable[[Call], Found]) -> Found:
        """What ``use`` makes of a connection; tried again where a server was at its end."""
        end = time.monotonic() + PATIENCE
        while True:
            channel = connect(self.path)
            if channel is None:
                self._start(end)
                continue
            call = Call(channel)
            try:
                self._check(call.greet())
                return use(call)
            except LoaderServerError:
                call.close()
                if not self.starts or time.monotonic() > end:
                    raise
            except BaseException:
                call.close()
                raise

    def _start(self, end: float) -> None:
        if not self.starts:
            raise LoaderServerError(
                f"GlobalDataLoader: no server listens at {self.path}; start one: python -m "
                "needle.data.sharing --dataset ..., or give the data set itself"
            )
        if time.monotonic() > end:
            raise LoaderServerError(
                f"GlobalDataLoader: no server came to listen at {self.path}; start one by hand"
            )
        start_server(self.dataset, self.path, self.options)

    def _check(self, server: dict[str, Any]) -> None:
        theirs = server.get("fingerprint")
        if self.fingerprint is not None and theirs != self.fingerprint:
            raise DataError(
                f"GlobalDataLoader: the server at {self.path} has another data set "
                f"({server.get('dataset')}, {server.get('length')} samples); give another address"
            )
