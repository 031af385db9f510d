"""The tracer, which records a step while it runs eagerly.

``interception`` reports every kernel call and every new buffer, ``host_steps`` every host step.
Weak references to buffers show which of them outlive the step.
"""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..backends.base import Backend, View, provides
from ..backends.writes import now, written_since
from ..host_steps import current
from ..ndarray import NDArray
from ..ndarray.array import wrap
from .buffers import BufferSlot
from .calls import Call
from .deferral import DeferredCalls
from .interception import intercept, place_in_program
from .passes import Options
from .program import Program
from .recorded import (
    ArrayTemplate,
    HostCall,
    InputBinding,
    Recording,
    Segment,
    ValueSource,
    exchanges_messages,
)
from .signature import CaptureError, map_leaves
from .state import (
    GRAPH_KEYS,
    MISSING,
    PLAIN_TYPES,
    SERVICES,
    ArrayReference,
    ContentLocation,
    Location,
    Roots,
    State,
    array_in,
)


class RefusedError(Exception):
    """Raised with the reason why a step cannot be recorded.

    ``this_call_only``: another call with the same signature may be recorded.
    """

    def __init__(self, reason: str, this_call_only: bool = False) -> None:
        super().__init__(reason)
        self.this_call_only = this_call_only


class Tracer:
    """A tracer of one call of ``function``: call ``run``, ``finish`` and, if wanted, ``program``.

    ``roots``: the objects given as the state of the step, with their labels.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        roots: Roots,
        leaves: Sequence[Any],
        options: Options,
    ) -> None:
        self.function, self.leaves, self.options = function, leaves, options
        self.refusal: RefusedError | None = None
        self.backend: Backend | None = None
        self.slots: list[BufferSlot] = []
        self.segments = [Segment()]
        self._by_handle: dict[int, tuple[BufferSlot, Callable[[], Any]]] = {}
        # Slots of older buffers, with their handles, which are kept alive so that ids stay unique.
        self._bound: list[tuple[BufferSlot, Any]] = []
        self._deferred = DeferredCalls(options)
        self._lock = threading.RLock()  # another thread may use the results of deferred calls
        self._start = now()
        self._passed: set[int] = set()  # arguments that host steps receive at every replay
        self._host_results: list[Any] = []  # the results of host steps
        self._replaced: list[weakref.ref[NDArray]] = []
        self._renewals: dict[int, Any] = {}  # by the id of the object that is replaced
        self._writes: dict[tuple[int | None, int, Any], Location] = {}
        self._state = State(roots, leaves)
        self._guards = self._state.guards()
        self._snapshot_state()
        self._safe, self._given = self._before, frozenset(self._arrays)

    # ---- running the step --------------------------------------------------------------------

    def run(self, backends: Sequence[Backend], args: Any, options: Any) -> Any:
        """Run the step eagerly while its calls are recorded; return its result."""
        self._random = random_state()
        with intercept(self, backends):
            try:
                return self.function(*args, **options)
            finally:
                self._run_deferred()

    def finish(self, result: Any) -> Any:
        """Return the result with constant tensors, or raise RefusedError."""
        if self.refusal is not None:
            raise self.refusal
        self._check_random()
        if self.backend is None:
            raise RefusedError("no kernel was called")
        self._note_state_changes()
        self._plan, result = self._plan_result(result)
        # A replay stores constants there. DataParallel knows gradients by their objects.
        renew = _make_constant if exchanges_messages(self.segments) else self._renewed
        for location in self._writes.values():
            location.put(self.leaves, renew(location.get(self.leaves)))
        return result

    def program(self, as_graphs: bool) -> Program:
        """Return the finished step in a form that can be replayed."""
        guards = [g for g in self._guards if _key(g[0]) not in self._writes or self._stays(*g)]
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, np.ndarray) and i not in self._passed:  # only Python can use it
                content = ContentLocation(None, None, f"the content of argument {i}", i)
                guards.append((content, leaf.tobytes()))
        rebuild = _rebuilder(self._plan)
        return Program(self.recording(), rebuild, guards, self.options, as_graphs)

    def _stays(self, location: Location, expected: Any) -> bool:
        """Return True if a guard of a location that the step writes is needed: of no gradient."""
        held = any(
            c.owner is not None and c.holder is location.holder for c in self._state.containers
        )
        replaced = isinstance(expected, Tensor) and expected.requires_grad
        return location.leaf is None and not held and not replaced

    def recording(self) -> Recording:
        """Return the recorded calls of the finished step."""
        assert self.backend is not None
        for slot, handle in self._bound:
            slot.written = written_since(handle, self._start)
        return Recording(self.backend, self.segments, self.slots, self._plan)

    def refuse(self, reason: str, this_call_only: bool = False) -> None:
        """Note why the step cannot be recorded, while the step itself continues."""
        if self.refusal is None:
            self.refusal = RefusedError(reason, this_call_only)
            self._run_deferred()

    # ---- kernel calls ------------------------------------------------------------------------

    def allocated(self, handle: Any, size: int, dtype: Any) -> None:
        """Create the slot of a new buffer."""
        if self.refusal is None:
            self._new_slot(handle, size, dtype)

    def _new_slot(self, handle: Any, size: int, dtype: Any, **given: Any) -> BufferSlot:
        slot = BufferSlot(len(self.slots), size, dtype, **given)
        self.slots.append(slot)
        try:
            self._by_handle[id(handle)] = slot, weakref.ref(handle)
        except TypeError:
            self.refuse(f"buffers of {type(handle).__name__} have no weak references")
        return slot

    def called(self, backend: Backend, name: str, args: tuple[Any, ...], options: Any) -> bool:
        """Record a kernel call before it runs; return True if it is deferred."""
        if self.refusal is not None:
            return False
        if self.backend is None:
            self.backend = backend
        if backend is not self.backend or options:
            self.refuse(f"{name} is called on a second device, or with keywords")
            return False
        given = Call(name, args)
        call = given.with_views(self._on_slot)
        if self.refusal is not None:
            return False
        self.segments[-1].calls.append(call)
        if not provides(backend, "export") and self.options.exact:
            return False
        buffers = {
            view.handle: (actual.handle, self._by_handle[id(actual.handle)][1])
            for (view, _), (actual, _) in zip(call.views(), given.views(), strict=True)
        }
        with self._lock:
            self._deferred.add(call, buffers)
        return True

    def used(self, name: str, args: tuple[Any, ...], options: Any) -> None:
        """Run the deferred calls if a call outside the recording depends on them."""
        if options:
            self._run_deferred()
            return
        for view, written in Call(name, args).views():
            slot = self._known_slot(view.handle)
            if slot is not None:
                with self._lock:
                    if self._deferred.touch(slot, written):
                        self._run_deferred()

    def _run_deferred(self) -> None:
        """Run the deferred calls; if one fails, restore the Python state of the last such run."""
        if self.backend is None or not self._deferred.waiting:
            return
        recorder, current.recorder = current.recorder, None
        try:
            with self._lock:
                self._deferred.run(self.backend)
                self.backend.empty_cache()  # free the arena before the optimiser allocates
                self._safe = self._state.snapshot()
        except BaseException:
            self._state.restore(self._safe)
            raise
        finally:
            current.recorder = recorder

    def _on_slot(self, view: View) -> View:
        """Return the view with its buffer's slot as its handle."""
        return view._replace(handle=self._slot_of(view))

    def _known_slot(self, handle: Any) -> BufferSlot | None:
        """Return the slot of a buffer; None for one with the id of a buffer that is gone."""
        found = self._by_handle.get(id(handle))
        return found[0] if found is not None and found[1]() is handle else None

    def _slot_of(self, view: View) -> BufferSlot | None:
        """Return the slot of a view's buffer; bind one from before the step to its location."""
        slot = self._known_slot(view.handle)
        if slot is not None:
            return slot
        held = self._arrays.get(id(view.handle), [])
        if not held:
            raise CaptureError(
                f"capture: a step may read its arguments, its state and what it makes, but "
                f"{self._name} reads another array of shape {tuple(view.shape)} and dtype "
                f"{view.dtype}, {place_in_program()}; add it or its owner to state=[...], or pass "
                "it as an argument"
            )
        if len({holding.owner for holding in held}) > 1:
            labels = ", ".join(holding.location.label for holding in held[:3])
            self.refuse(f"several tensors share one buffer ({labels})", this_call_only=True)
            return None
        return self._bound_slot(view.handle, held[0])

    def _bound_slot(self, handle: Any, held: ArrayReference) -> BufferSlot:
        like = held.array.view
        slot = self._new_slot(handle, 0, like.dtype, offset=like.offset, bound=True)
        self._bound.append((slot, handle))
        self.segments[-1].bindings.append(
            InputBinding(slot, held.location, like._replace(handle=None))
        )
        return slot

    def read_option(self, holder: dict[str, Any], name: str) -> None:
        """Guard an option of an optimiser."""
        value = dict.get(holder, name, MISSING)  # the group's own ``get`` would recurse
        self._guards.append((Location(holder, name, f"the option {name}"), value))

    def uploaded(self) -> None:
        """Raise CaptureError, since every replay would use the data of this call."""
        raise CaptureError(
            f"capture: host data must be an argument of a step, as is, but {self._name} uploads "
            f"other or computed data, {place_in_program()}; pass that array in, or make a Tensor "
            "of it before and add it to state=[...]"
        )

    @property
    def _name(self) -> str:
        return function_name(self.function)

    # ---- host steps --------------------------------------------------------------------------

    def host(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        changes_state: bool,
    ) -> Any:
        """Run a host step without interception and record the call."""
        call = None
        for value in (*args, *options.values()):
            if isinstance(value, SERVICES) and not self._state.holds(value):
                self.refuse(
                    f"it calls {function.__qualname__} for an object outside of the state, which a "
                    f"check cannot restore; add that {type(value).__name__} to state=[...]"
                )
        if self.refusal is None:
            self._check_random()
            self._note_state_changes()
            sources = tuple(self._source(a) for a in args)
            named = {name: self._source(a) for name, a in options.items()}
            call = HostCall(function, sources, named, changes_state)
        if changes_state:
            self._run_deferred()
        current.recorder = None
        try:
            result = function(*args, **options)
        finally:
            current.recorder = self
        if call is not None:
            result = self._note_host_result(call, result)
            if changes_state:
                self._drop_state_slots()
            self._snapshot_state()
            self._random = random_state()
            self.segments.append(Segment())
        return result

    def _note_host_result(self, call: HostCall, result: Any) -> Any:
        self.segments[-1].host = call
        view = result if isinstance(result, View) else None
        array = array_in(result)
        if array is not None:
            view = array.view
        if view is not None:
            given = {"offset": view.offset, "bound": True}
            call.result = self._new_slot(view.handle, 0, view.dtype, **given)
            call.like = view._replace(handle=None)
            self._bound.append((call.result, view.handle))
        elif not isinstance(result, (type(None), float, np.ndarray)):
            self.refuse(f"{call.function.__qualname__} returned a {type(result).__name__}")
        self._host_results.append(result)
        return result

    def _source(self, value: Any) -> Any:
        """Return a replay's source of a host step's argument; constants stand for themselves."""
        for i, leaf in enumerate(self.leaves):
            if value is leaf and isinstance(value, (Tensor, NDArray, np.ndarray)):
                self._passed.add(i)
                return ValueSource(leaf=i)
        for i, returned in enumerate(self._host_results):
            if value is returned and isinstance(value, (np.ndarray, float)):
                return ValueSource(step=i)
        if isinstance(value, np.ndarray):
            self.uploaded()
        if isinstance(value, (list, tuple)):
            inner: list[Any] = []
            map_leaves(inner.append, value)
            if any(isinstance(leaf, np.ndarray) for leaf in inner):
                self.uploaded()
            if not all(self._is_persistent(v) for v in value if array_in(v) is not None):
                self.refuse("it passes a list of results to a host step; pass them one by one")
            return value
        array = array_in(value)
        if array is None or self._is_persistent(value):
            return value
        return ValueSource(made=self._template(value, array))

    def _is_persistent(self, value: Any) -> bool:
        """Return True for a Tensor of the Python state, such as a parameter."""
        return any(c.owner is value for c in self._state.containers)

    def _template(self, value: Any, array: NDArray) -> ArrayTemplate:
        slot = self._slot_of(array.view)
        if slot is None:
            slot = BufferSlot(-1, 0, array.dtype)
        slot.fresh, slot.exposed = not slot.bound, True  # the program may keep the buffer
        like = array.view._replace(handle=None)
        if not isinstance(value, Tensor):
            return ArrayTemplate(slot, like, array.device)
        return ArrayTemplate(
            slot, like, array.device, type(value), value.op is None and value.requires_grad
        )

    # ---- changes of the Python state ---------------------------------------------------------

    def _snapshot_state(self) -> None:
        """Save the entries and arrays of the current state."""
        self._arrays = self._state.arrays()
        self._before = self._state.snapshot()

    def _drop_state_slots(self) -> None:
        """Forget the slots of arrays in the state, which later uses bind to locations again."""
        for handle in self._state.arrays():
            self._by_handle.pop(handle, None)

    def _note_state_changes(self) -> None:
        """Record the locations assigned since the last snapshot."""
        for container, before in zip(self._state.containers, self._before, strict=True):
            after = container.entries()
            if len(after) != len(before) and not isinstance(container.holder, dict):
                self.refuse(f"the step changes the length of {container.label}")
            for key in before.keys() | after.keys():
                old, new = before.get(key), after.get(key)
                if old is not new and not (container.owner is not None and key in GRAPH_KEYS):
                    self._note_write(container.location(key), old, new, container.holder)
        self._before = self._state.snapshot()

    def _note_write(self, location: Location, old: Any, new: Any, holder: Any) -> None:
        array = array_in(new)
        if array is not None and isinstance(holder, (dict, list)):
            made: Any = self._template(new, array)
        elif new is None and array_in(old) is not None:
            made = None
        else:
            self.refuse(f"the step changes {location.label} from {_short(old)} to {_short(new)}")
            return
        self._writes[_key(location)] = location
        self.segments[-1].writes.append((location, made))

    def _plan_result(self, result: Any) -> tuple[Any, Any]:
        """Return the template of a replay's result, and the result with constant tensors."""

        def plan(leaf: Any) -> Any:
            array = array_in(leaf)
            for i, value in enumerate(self._host_results):
                if leaf is value and isinstance(leaf, (float, np.ndarray)):
                    return ValueSource(step=i)
            if array is not None:
                return ValueSource(made=self._template(leaf, array))
            if not isinstance(leaf, PLAIN_TYPES) and not any(
                leaf is given for given in self.leaves
            ):
                raise RefusedError(f"the step returns a {type(leaf).__name__}")
            return leaf

        planned = map_leaves(plan, result)
        if self.refusal is not None:
            raise self.refusal

        def renew(leaf: Any) -> Any:
            array = array_in(leaf)
            slot = None if array is None else self._known_slot(array.view.handle)
            if id(leaf) in self._renewals:  # the state has it, too
                return self._renewals[id(leaf)]
            if slot is None or slot.bound or self._is_persistent(leaf):
                return _make_constant(leaf)
            return self._renewed(leaf)

        return planned, map_leaves(renew, result)

    def _renewed(self, value: Any) -> Any:
        """Return a constant that replaces ``value``, an array of the step, on the same buffer.

        ``check_released`` then finds out whether the program also keeps the replaced object.
        """
        array = array_in(_make_constant(value))
        if array is None or id(array.view.handle) in self._given:
            return value
        if id(value) not in self._renewals:
            self._replaced.append(weakref.ref(array))
            again = wrap(array.view, array.device)
            if value is not array:
                again = value.make_const(again, value.requires_grad)
            self._renewals[id(value)] = again
        return self._renewals[id(value)]

    def check_released(self) -> None:
        """Raise RefusedError if the program keeps an array of the step that a replay cannot update.

        Called after ``finish``, which returns new objects on the same buffers. The caller keeps
        only these, so an original array is still alive only if the program keeps it elsewhere.
        """
        self._before = self._safe = []
        self._arrays, self._renewals = {}, {}
        for collected in (False, True):
            if collected:
                gc.collect()
            alive = [slot for slot, ref in self._by_handle.values() if ref() is not None]
            lost = sum(not (slot.bound or slot.fresh) for slot in alive)
            lost += sum(ref() is not None for ref in self._replaced)
            if not lost:
                return
        raise RefusedError(
            f"the step keeps an array that a replay cannot update ({lost} in all), in a list or in "
            "an attribute of an object outside of its state; return it only, or add what holds it "
            "to state=[...]"
        )

    def _check_random(self) -> None:
        if random_state() != self._random:
            self.refuse(
                "it draws random numbers outside of needle.init and layers such as Dropout; "
                "draw them before the step and pass them in"
            )


def _make_constant(value: Any) -> Any:
    """Return a value; a Tensor without its autograd graph, which would keep temporaries alive."""
    if isinstance(value, Tensor) and value.op is not None:
        value.op, value.inputs, value.requires_grad, value.grad = None, (), False, None
        value.saved = None
    return value


def random_state() -> Any:
    """Return the states of the global streams of NumPy and Python, which can be compared."""
    state: Any = np.random.get_state(legacy=True)
    return state[1].tobytes(), *state[2:], random.getstate()


def function_name(function: Any) -> str:
    """Return the name of a step for messages."""
    return str(getattr(function, "__qualname__", type(function).__name__))


def _key(location: Location) -> tuple[int | None, int, Any]:
    return location.leaf, id(location.holder), location.key


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, PLAIN_TYPES) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


def _rebuilder(plan: Any) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    def rebuild(leaves: Sequence[Any], values: Sequence[Any]) -> Any:
        return map_leaves(
            lambda leaf: leaf.value(leaves, values) if isinstance(leaf, ValueSource) else leaf, plan
        )

    return rebuild
