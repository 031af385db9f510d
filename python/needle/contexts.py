"""Context managers that a Ctrl-C cannot leave half done and that decorate functions of every kind.

Python may raise KeyboardInterrupt at the entry of any Python function. In ``__exit__`` a mode would
then never be restored; in ``__del__`` and in callbacks of weak references the exception would be
printed and dropped. Such methods are therefore C functions or ``uninterrupted``. A ``try`` whose
``finally`` only assigns, or calls one C function, needs neither.

A decorator made by ``contextlib`` is active only during the call, so the body of a generator or
coroutine, which runs later, would be outside the context.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def uninterrupted(function: F) -> F:
    """Wrap a function so that no KeyboardInterrupt is raised while it runs.

    A Ctrl-C that arrives meanwhile is delivered afterwards, and a debugger does not see the call.
    The function must be short and must not change the SIGINT handler. Without the compiled module,
    the call can be interrupted.
    """
    return function


@contextmanager
def assigned(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Set the variable inside the context; the compiled version cannot be interrupted."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


main_interpreter = True
"""False in a sub-interpreter, where the compiled kernels would deadlock."""

with suppress(ImportError):  # not built: the functions above are used
    from .interrupts import assigned as assigned  # type: ignore[no-redef]
    from .interrupts import main_interpreter as main_interpreter  # type: ignore[no-redef]
    from .interrupts import uninterrupted  # type: ignore[no-redef]


class finalize(weakref.finalize):  # type: ignore[type-arg]
    """A ``weakref.finalize`` with a callback that cannot swallow a Ctrl-C."""

    __slots__ = ()
    __call__ = uninterrupted(weakref.finalize.__call__)


class Decorator(ContextDecorator):
    """Base class of context managers that also decorate functions.

    The body of a generator or coroutine is inside the context while it runs, not while it waits.
    """

    def _recreate_cm(self) -> Any:
        raise NotImplementedError

    def __call__(self, function: Any) -> Any:
        """Run ``function`` inside the context; TypeError for a class or async generator."""
        refused = inspect.isasyncgenfunction(function) or inspect.isclass(function)
        if refused or not callable(function):
            raise TypeError(
                f"{type(self).__name__}: a decorated object must be a function, generator or "
                f"coroutine function, got {function!r}; write `with ...:` in its methods or body"
            )
        if inspect.iscoroutinefunction(function):
            run: Any = types.coroutine(self._run)

            @functools.wraps(function)
            async def coroutine(*args: Any, **options: Any) -> Any:
                return await run(function(*args, **options))

            return coroutine
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **options: Any) -> Generator[Any, Any, Any]:
                return (yield from self._run(function(*args, **options)))

            return generator
        return super().__call__(function)

    def _run(self, body: Any) -> Any:
        """Yield from a generator or coroutine, and run each of its steps inside a context."""
        step, value = body.send, None
        while True:
            with self._recreate_cm():
                try:
                    item = step(value)
                except StopIteration as end:
                    return end.value
            try:
                step, value = body.send, (yield item)
            except BaseException as error:
                step, value = body.throw, error


class _FromGenerator(Decorator):
    """A context manager made from a generator function by ``context``."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make, self._made = make, make()

    def _recreate_cm(self) -> _FromGenerator:
        return _FromGenerator(self._make)

    @uninterrupted
    def __enter__(self) -> Any:
        return self._made.__enter__()

    @uninterrupted
    def __exit__(self, *error: Any) -> bool | None:
        return self._made.__exit__(*error)


def context(function: Callable[P, Iterator[Any]]) -> Callable[P, _FromGenerator]:
    """Return ``contextlib.contextmanager(function)``, but with managers that are ``Decorator``s."""
    make = contextmanager(function)

    @functools.wraps(function)
    def made(*args: P.args, **options: P.kwargs) -> _FromGenerator:
        return _FromGenerator(functools.partial(make, *args, **options))

    return made
