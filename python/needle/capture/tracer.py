"""The tracer, which records a step while it runs eagerly.

``interception`` reports every kernel call and every new buffer, ``host_steps`` every host step.
Weak references to buffers show which of them outlive the step.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from .. import backends
from ..autograd import Tensor
from ..autograd.graph import recording
from ..backends.base import Backend, View, provides
from ..backends.writes import now, written_since
from ..host_steps import current
from ..ndarray import NDArray
from .buffers import BufferSlot
from .calls import Call
from .deferral import DeferredCalls
from .guards import MISSING, PLAIN_TYPES, Guard, Guards, Location, array_in, fact, layout
from .interception import READS, UPLOADS, intercept, place_in_program
from .passes import Options
from .program import Program
from .recorded import ArrayTemplate, HostCall, InputBinding, Recording, Segment, exchanges_messages
from .renewal import Renewals, make_constant
from .signature import CaptureError, function_name, map_leaves
from .state import GRAPH_KEYS, SERVICES, Roots, State, random_state, short_text

COMPUTED = "data of the host that is neither, or that Python computed or copied"


@dataclass(eq=False)
class StepCall:
    """One call of a captured function, with its signature and its arguments, nested and flat.

    ``roots``: the objects given as the state of the step, with their labels. ``always_check``:
    compare a replay of this call with the step.
    """

    function: Callable[..., Any]
    args: Any
    keywords: Any
    key: Any
    leaves: list[Any]
    roots: Roots
    options: Options
    always_check: bool

    @property
    def objects(self) -> list[Any]:
        """The arguments that the signature identifies by id, which must not be freed before it."""
        return [leaf for leaf in self.leaves if not isinstance(leaf, (Tensor, NDArray, np.ndarray))]


class Tracer:
    """A tracer of one call of a step: call ``run``; unless ``refusal`` is set, ``program``."""

    def __init__(self, call: StepCall) -> None:
        self.call, self._name = call, function_name(call.function)
        self.options = replace(call.options, inference=not recording.on)
        self.refusal: str | None = None
        self.backend: Backend | None = None
        self.slots: list[BufferSlot] = []
        self.segments = [Segment()]
        self._by_handle: dict[int, tuple[BufferSlot, Callable[[], Any]]] = {}
        # Slots of older buffers, with their handles, which are kept alive so that ids stay unique.
        self._bound: list[tuple[BufferSlot, Any]] = []
        self._deferred = DeferredCalls(self.options)
        self._lock = threading.RLock()  # another thread may use the results of deferred calls
        self._start, self._random = now(), random_state()
        self._values = [*call.leaves]  # the arguments, then the results of host steps
        # Arguments that host steps receive at every replay and that are in no other place.
        self._passed: set[int | None] = set()
        self._writes: dict[tuple[int | None, int, Any], Location] = {}
        self._state = State(call.roots, call.leaves)
        self._guards = self._state.guards()
        self._snapshot_state()
        self._safe = self._before
        self._entered = {id(c.holder): c.entries() for c in self._state.containers if c.service}
        self._renewals = Renewals(self._state, self._arrays)

    # ---- running the step --------------------------------------------------------------------

    def run(self) -> Any:
        """Run the step eagerly while its calls are recorded; return its result."""
        with intercept(self, backends.loaded()):
            try:
                result = self.call.function(*self.call.args, **self.call.keywords)
            finally:
                self._run_deferred()
        result = self._finish(result)
        if self.refusal is None:
            self._check_released()
        return result

    def _finish(self, result: Any) -> Any:
        """Return the result, with constant tensors unless the step is refused."""
        self._check_random()
        if self.refusal is None and self.backend is None:
            self.refuse("no kernel was called")
        if self.refusal is None:
            self._note_state_changes()
            self._plan = map_leaves(self._planned, result)
        if self.refusal is not None:
            return result
        # A replay stores constants there. DataParallel knows gradients by their objects.
        leaves, renewed = self.call.leaves, self._renewals.renewed
        renew = make_constant if exchanges_messages(self.segments) else renewed
        for location in self._writes.values():
            location.put(leaves, renew(location.get(leaves)))
        return map_leaves(renewed, result)

    def program(self) -> Program:
        """Return the finished step in a form that can be replayed."""
        bound = {bind.location.identity for part in self.segments for bind in part.bindings}
        call = self.call
        guards = [guard for guard in self._guards if self._stays(guard, bound)]
        for i, leaf in enumerate(call.leaves):
            if isinstance(leaf, np.ndarray) and i not in self._passed:  # only Python can use it
                place = Location(None, None, f"the content of argument {i}", i)
                guards.append(Guard(place, fact, fact(leaf)))
        return Program(self.recording(), Guards(guards), self.options, call.key, call.objects)

    def _stays(self, guard: Guard, bound: set[Any]) -> bool:
        """Return False for an attribute of a Tensor, or a gradient, that the step replaces.

        Nor does the layout of an array need a guard if its location is ``bound`` to a slot.
        """
        place = guard.location
        if guard.key is layout and place.identity in bound:
            return False
        if place.identity not in self._writes:
            return True
        if place.leaf is not None or getattr(guard.expected, "requires_grad", False):
            return False
        return all(c.owner is None or c.holder is not place.holder for c in self._state.containers)

    def recording(self) -> Recording:
        """Return the recorded calls of the finished step."""
        assert self.backend is not None
        for slot, handle in self._bound:
            slot.written = written_since(handle, self._start)
        return Recording(self.backend, self.segments, self.slots, self._plan)

    def refuse(self, reason: str) -> None:
        """Note why the step cannot be recorded, while the step itself continues."""
        if self.refusal is None:
            self.refusal = reason
            self._run_deferred()

    # ---- kernel calls ------------------------------------------------------------------------

    def allocated(self, handle: Any, size: int, dtype: Any) -> None:
        """Create the slot of a new buffer."""
        if self.refusal is None:
            self._new_slot(handle, size, dtype)

    def _new_slot(self, handle: Any, size: int, dtype: Any, **given: Any) -> BufferSlot:
        slot = BufferSlot(len(self.slots), size, dtype, **given)
        self.slots.append(slot)
        self._by_handle[id(handle)] = slot, weakref.ref(handle)
        return slot

    def called(self, backend: Backend, name: str, args: tuple[Any, ...], options: Any) -> bool:
        """Record a call before it runs; return True if it is deferred."""
        if name in UPLOADS:
            self._outside(COMPUTED)
        if name in READS:
            self.refuse(
                "the step reads the values of an array, as numpy(), item(), bool() and x[mask] do, "
                f"{place_in_program()}"
            )
        if self.refusal is not None or name == "allocate":
            return False
        self.backend = self.backend or backend
        if backend is not self.backend or options:
            self.refuse(f"{name} is called on a second device, or with keywords")
            return False
        given = Call(name, args)
        call = given.with_views(lambda view: view._replace(handle=self._slot_of(view)))
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
            with self._lock:
                if slot is not None and self._deferred.touch(slot, written):
                    self._run_deferred()

    def _run_deferred(self) -> None:
        """Run the deferred calls; if one fails, restore the Python state of the last such run."""
        if self.backend is None or not self._deferred.calls:
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
            self._outside(f"another array of shape {tuple(view.shape)} and dtype {view.dtype}")
        if len({holding.owner for holding in held}) > 1:
            labels = ", ".join(holding.location.label for holding in held[:3])
            self.refuse(f"several tensors share one buffer ({labels})")
            return None
        return self._bound_slot(held[0].array.view, held[0].location)

    def _bound_slot(self, view: View, location: Location) -> BufferSlot:
        slot = self._new_slot(view.handle, 0, view.dtype, offset=view.offset, bound=True)
        self._bound.append((slot, view.handle))
        bindings = self.segments[-1].bindings
        bindings.append(InputBinding(slot, location, view._replace(handle=None)))
        return slot

    def read_option(self, holder: dict[str, Any], name: str) -> None:
        """Guard an option of an optimiser, or a counter, by the value that a replay starts with."""
        value = dict.get(holder, name, MISSING)  # the group's own ``get`` would recurse
        entered = self._entered.get(id(holder))
        if entered is not None and fact(value) != fact(entered.get(name, MISSING)):
            self.refuse(f"it reads {name} after changing it; read it at the start of the step")
        self._guards.append(Guard(Location(holder, name, f"the option {name}"), id, value))

    def _outside(self, data: str) -> NoReturn:
        """Raise CaptureError, since every replay would use the data of this call."""
        raise CaptureError(
            "capture: a step may read its arguments, its state and its own results, but "
            f"{self._name} reads {data}, {place_in_program()}; pass it as an argument, or add it, "
            "its owner or a Tensor of it to state=[...]"
        )

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
            named = {name: self._source(a) for name, a in options.items()}
            call = HostCall(function, tuple(map(self._source, args)), named, changes_state)
        if changes_state:
            self._run_deferred()
        current.recorder = None
        try:
            result = function(*args, **options)
        finally:
            current.recorder = self
        if call is not None:
            self._end_segment(call, result)
        return result

    def _end_segment(self, host: HostCall, result: Any) -> None:
        self.segments[-1].host = host
        self.segments.append(Segment())
        array, name = array_in(result), host.function.__qualname__
        view = result if array is None else array.view
        if isinstance(view, View):
            place = Location(None, None, f"the result of {name}", len(self._values))
            self._bound_slot(view, place)
        elif not isinstance(result, (type(None), float, np.ndarray)):
            self.refuse(f"{name} returned a {type(result).__name__}")
        self._values.append(result)
        self._snapshot_state()
        if host.changes_state:  # later uses of arrays in the state bind them again
            for handle in self._arrays:
                self._by_handle.pop(handle, None)
        self._random = random_state()

    def _place_of(self, value: Any) -> Location | None:
        """Return the location of an argument, a host step's result or a NumPy array in the state.

        Plain arguments are constants.
        """
        if isinstance(value, PLAIN_TYPES) and not isinstance(value, float):
            return None
        for i, given in enumerate(self._values):
            if value is given:
                host = i - len(self.call.leaves)
                return Location(None, None, f"argument {i}" if host < 0 else f"host step {host}", i)
        return self._state.location_of(value) if isinstance(value, np.ndarray) else None

    def _source(self, value: Any) -> Any:
        """Return a replay's source of a host step's argument; constants stand for themselves."""
        place = self._place_of(value)
        if place is not None:
            copies = sum(given is value for given in self._values)
            if copies == 1 and self._state.location_of(value) is None:
                self._passed.add(place.leaf)
            return place
        inner: list[Any] = []
        map_leaves(inner.append, value)
        if any(isinstance(leaf, np.ndarray) for leaf in inner):
            self._outside(COMPUTED)
        arrays = [v for v in inner if array_in(v) is not None]
        made = [v for v in arrays if not self._state.holds(v)]
        if made and made[0] is value:
            return self._template(value)
        if made or any(self._place_of(v) for v in arrays if v is not value):
            self.refuse("it passes a list of arguments or results to a host step; pass single ones")
        return value

    def _template(self, value: Any) -> ArrayTemplate:
        array = array_in(value)
        assert array is not None
        slot = self._slot_of(array.view) or BufferSlot(-1, 0, array.dtype)
        slot.fresh, slot.exposed = not slot.bound, True  # the program may keep the buffer
        like = array.view._replace(handle=None)
        if not isinstance(value, Tensor):
            return ArrayTemplate(slot, like, array.device)
        needs_grad = value.op is None and value.requires_grad
        return ArrayTemplate(slot, like, array.device, type(value), needs_grad)

    # ---- changes of the Python state ---------------------------------------------------------

    def _snapshot_state(self) -> None:
        self._arrays, self._before = self._state.arrays(), self._state.snapshot()

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
        if isinstance(new, Tensor) and new.op is not None and location.key != "grad":
            self.refuse(
                f"the step stores {location.label} with its graph, through which the next step "
                "would differentiate; store detach() of it"
            )
            return
        if array is not None and isinstance(holder, (dict, list)):
            made: Any = self._template(new)
        elif new is None and array_in(old) is not None:
            made = None
        else:
            self.refuse(
                f"the step changes {location.label} from {short_text(old)} to {short_text(new)}"
            )
            return
        self._writes[location.identity] = location
        self.segments[-1].writes.append((location, made))

    def _planned(self, leaf: Any) -> Any:
        """Return what a replay returns in place of a leaf of the result."""
        if array_in(leaf) is not None:
            return self._template(leaf)
        place = self._place_of(leaf)
        if place is None and not isinstance(leaf, PLAIN_TYPES):
            self.refuse(f"the step returns a {type(leaf).__name__}")
        return leaf if place is None else place

    def _check_released(self) -> None:
        """Refuse the step if the program keeps an array of it that a replay cannot update.

        Called after ``_finish``, which returns new objects on the same buffers. The caller keeps
        only these, so an original array is still alive only if the program keeps it elsewhere.
        """
        self._before = self._safe = self._values = []
        self._arrays = {}
        lost = self._renewals.kept(self._by_handle.values())
        if lost:
            self.refuse(
                f"the step keeps an array that a replay cannot update ({lost} in all), in a list "
                "or in an attribute of an object outside of its state; return it only, or add what "
                "holds it to state=[...]"
            )

    def _check_random(self) -> None:
        if random_state() != self._random:
            self.refuse(
                "it draws random numbers outside of needle.init and layers such as Dropout; "
                "draw them before the step and pass them in"
            )
