"""Records one step while it runs eagerly: listens at the seam between arrays and their backend.

``seam`` tells it of every kernel call and every buffer, ``host_steps`` of what the host does. Weak
references to the buffers tell which of them outlive the step.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..backends.base import Backend, Epilogue, EpilogueGrad, View
from ..host_steps import current
from ..ndarray import NDArray
from .outcome import map_leaves
from .places import PLAIN, Holding, Place, State, array_in
from .program import Bind, HostCall, Made, Program, Segment, Source
from .seam import HostNumber, listening
from .slot import Slot


class RefusedError(Exception):
    """Why there is no recording; ``now`` only: another call may be recorded."""

    def __init__(self, reason: str, now: bool = False) -> None:
        super().__init__(reason)
        self.now = now


class Recorder:
    """One recording of ``function`` on ``backends``; ``run`` is called once."""

    def __init__(self, function: Callable[..., Any], leaves: Sequence[Any]) -> None:
        self.function, self.leaves = function, leaves
        self.refusal: RefusedError | None = None
        self.backend: Backend | None = None
        self.slots: list[Slot] = []
        self.segments = [Segment()]
        self._by_handle: dict[int, tuple[Slot, Callable[[], Any]]] = {}
        self._outside: list[Any] = []  # buffers that were there before, so that their ids last
        self._values: list[Any] = []  # what host steps returned
        self._positions = 0
        self._written: dict[tuple[int | None, int, Any], Place] = {}
        self._state = State(function, leaves)
        self._guards = self._state.guards()
        self._look()

    # ---- the run -----------------------------------------------------------------------------

    def run(self, backends: Sequence[Backend], args: Any, options: Any) -> Any:
        """The eager result; afterwards ``program`` makes the recording or tells why not."""
        self._random = _random_state()
        with listening(self, backends):
            return self.function(*args, **options)

    def program(self, result: Any, as_graphs: bool = True) -> tuple[Any, Program]:
        """The result, its tensors as constants, and the recording. RefusedError if none."""
        if self.refusal is not None:
            raise self.refusal
        self._check_random()
        if self.backend is None:
            raise RefusedError("no kernel was called")
        self._sync()
        plan, result = self._outcome(result)
        self._let_go_of_graphs()
        self._check_survivors(result)
        changed = set(self._written)
        guards = [g for g in self._guards if _key(g[0]) not in changed]
        rebuild = _rebuilder(plan)
        program = Program(self.backend, self.segments, self.slots, rebuild, guards, as_graphs)
        return result, program

    def refuse(self, reason: str, now: bool = False) -> None:
        """Notes why the step cannot be recorded; it runs on."""
        if self.refusal is None:
            self.refusal = RefusedError(reason, now)

    # ---- kernel calls ------------------------------------------------------------------------

    def allocated(self, handle: Any, size: int, dtype: Any) -> None:
        """Called by the seam for a new buffer."""
        if self.refusal is None:
            self._new_slot(handle, size, dtype)

    def _new_slot(self, handle: Any, size: int, dtype: Any, **given: Any) -> Slot:
        slot = Slot(len(self.slots), size, dtype, **given)
        self.slots.append(slot)
        try:
            self._by_handle[id(handle)] = slot, weakref.ref(handle)
        except TypeError:
            self.refuse(f"buffers of {type(handle).__name__} have no weak references")
        return slot

    def called(
        self, backend: Backend, kernel: Any, name: str, args: tuple[Any, ...], options: Any
    ) -> None:
        """Called by the seam for a kernel, before it runs."""
        if self.refusal is not None:
            return
        if self.backend is None:
            self.backend = backend
        if backend is not self.backend or options:
            self.refuse(f"{name} is called on a second device, or with keywords")
            return
        self._positions += 1
        recorded: list[Any] = []
        self._fill(recorded, args)
        text = f"{name}({', '.join(self._text(a) for a in args)})"
        self.segments[-1].calls.append((kernel, text, recorded))

    def _fill(self, into: list[Any], args: Sequence[Any]) -> None:
        """Copies arguments, and notes where views of which slots are."""
        for place, arg in enumerate(args):
            if isinstance(arg, View):
                self._use(arg, into, place)
                into.append(None)
            elif isinstance(arg, Epilogue | EpilogueGrad):
                views = {n: v for n, v in arg._asdict().items() if isinstance(v, View)}
                without: dict[str, Any] = dict.fromkeys(views)
                into.append(arg._replace(**without))
                for name, view in views.items():
                    self._use(view, into, place, name)
            elif isinstance(arg, list) or (isinstance(arg, tuple) and _has_view(arg)):
                inner: list[Any] = []
                self._fill(inner, arg)
                into.append(inner)
            else:
                into.append(arg)

    def _use(self, view: View, into: list[Any], place: int, name: str | None = None) -> None:
        """Notes that ``into[place]``, or its field ``name``, is a view of a slot."""
        slot = self._slot_of(view)
        if slot is not None:
            slot.uses.append((into, place, name, view._replace(handle=None)))
            slot.last = self._positions
            slot.first = slot.first or self._positions

    def _text(self, arg: Any) -> str:
        if isinstance(arg, View):
            slot = self._slot_of(arg)
            return f"%{slot.number if slot else '?'}{list(arg.shape)}"
        if isinstance(arg, Epilogue | EpilogueGrad):
            return f"{type(arg).__name__}({', '.join(self._text(a) for a in arg)})"
        if isinstance(arg, list):
            return f"[{', '.join(self._text(a) for a in arg)}]"
        return repr(arg)

    def _slot_of(self, view: View) -> Slot | None:
        """The slot of a view's buffer; one that comes from outside is bound to its place."""
        found = self._by_handle.get(id(view.handle))
        if found is not None and found[1]() is view.handle:
            return found[0]
        held = self._arrays.get(id(view.handle), [])
        if not held:
            self.refuse(
                "an array is used that was made before and is at no place that can be found "
                "(closure, globals, self, arguments, modules)"
            )
            return None
        if len({holding.owner for holding in held}) > 1:
            labels = ", ".join(holding.place.label for holding in held[:3])
            self.refuse(f"several tensors share one buffer ({labels})", now=True)
            return None
        return self._outside_slot(view.handle, held[0])

    def _outside_slot(self, handle: Any, held: Holding) -> Slot:
        like = held.array._view
        slot = self._new_slot(handle, 0, like.dtype, offset=like.offset, own=False)
        self._outside.append(handle)
        self.segments[-1].binds.append(Bind(slot, held.place, like._replace(handle=None)))
        return slot

    # ---- host steps --------------------------------------------------------------------------

    def host(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        changes_state: bool,
    ) -> Any:
        """Called by ``host_step``: runs the function unheard and notes the call."""
        call = None
        if self.refusal is None:
            self._check_random()
            self._sync()
            sources = tuple(self._source(a) for a in args)
            named = {name: self._source(a) for name, a in options.items()}
            call = HostCall(function, sources, named)
        current.recorder = None
        try:
            result = function(*args, **options)
        finally:
            current.recorder = self
        if call is not None:
            result = self._returned(call, result)
            if changes_state:
                self._forget_places()
            self._look()
            self._random = _random_state()
            self.segments.append(Segment())
        return result

    def _returned(self, call: HostCall, result: Any) -> Any:
        self.segments[-1].host = call
        view = result if isinstance(result, View) else None
        array = array_in(result)
        if array is not None:
            view = array._view
        if view is not None:
            given = {"offset": view.offset, "own": False}
            call.result = self._new_slot(view.handle, 0, view.dtype, **given)
            call.like = view._replace(handle=None)
            self._outside.append(view.handle)
        elif type(result) is float:
            result = HostNumber(result)
        elif not isinstance(result, (type(None), np.ndarray)):
            self.refuse(f"{call.function.__qualname__} returned a {type(result).__name__}")
        self._values.append(result)
        return result

    def _source(self, value: Any) -> Any:
        """How a replay comes by an argument of a host step: itself, if it is no data."""
        for i, leaf in enumerate(self.leaves):
            if value is leaf and isinstance(value, (Tensor, NDArray, np.ndarray)):
                return Source(leaf=i)
        for i, returned in enumerate(self._values):
            if value is returned and isinstance(value, (np.ndarray, HostNumber)):
                return Source(step=i)
        if isinstance(value, np.ndarray):
            self.refuse("data of NumPy is used that is no argument of the step; pass it in")
        if isinstance(value, (list, tuple)):
            if not all(self._is_kept(v) for v in value if array_in(v) is not None):
                self.refuse("a list of results is handed to a host step; pass them one by one")
            return value
        array = array_in(value)
        if array is None or self._is_kept(value):
            return value
        return Source(made=self._made(value, array))

    def _is_kept(self, value: Any) -> bool:
        """Whether it is a Tensor that stays, such as a parameter."""
        return any(c.owner is value for c in self._state.containers)

    def _made(self, value: Any, array: NDArray) -> Made:
        slot = self._slot_of(array._view)
        if slot is None:
            slot = Slot(-1, 0, array.dtype)
        slot.fresh, slot.shown = slot.own, True  # somebody may keep it
        like = array._view._replace(handle=None)
        if not isinstance(value, Tensor):
            return Made(slot, like, array.device)
        return Made(slot, like, array.device, type(value), value.op is None and value.requires_grad)

    # ---- what the step changes ---------------------------------------------------------------

    def _look(self) -> None:
        """The state as it is now."""
        self._arrays = self._state.arrays()
        self._before = self._state.snapshot()

    def _forget_places(self) -> None:
        """What places hold from here on is read from them again."""
        for handle in self._state.arrays():
            self._by_handle.pop(handle, None)

    def _sync(self) -> None:
        """Notes what places have got since the last look."""
        for container, before in zip(self._state.containers, self._before, strict=True):
            after = container.entries()
            if isinstance(container.holder, list) and len(after) != len(before):
                self.refuse(f"the step changes the length of the list {container.label}")
            for key in before.keys() | after.keys():
                old, new = before.get(key), after.get(key)
                if old is not new and not (container.owner is not None and key in ("op", "inputs")):
                    self._note_write(container.place(key), old, new, container.holder)
        self._before = self._state.snapshot()

    def _note_write(self, place: Place, old: Any, new: Any, holder: Any) -> None:
        array = array_in(new)
        if array is not None and not isinstance(holder, tuple):
            made: Any = self._made(new, array)
        elif new is None and array_in(old) is not None:
            made = None
        else:
            self.refuse(f"the step changes {place.label} from {_short(old)} to {_short(new)}")
            return
        self._written[_key(place)] = place
        self.segments[-1].writes.append((place, made))

    def _outcome(self, result: Any) -> tuple[Any, Any]:
        """The result as replays rebuild it, and with constants for its tensors."""

        def plan(leaf: Any) -> Any:
            array = array_in(leaf)
            for i, value in enumerate(self._values):
                if leaf is value and isinstance(leaf, (HostNumber, np.ndarray)):
                    return Source(step=i)
            if array is not None:
                return Source(made=self._made(leaf, array))
            if not isinstance(leaf, PLAIN) and not any(leaf is given for given in self.leaves):
                raise RefusedError(f"the step returns a {type(leaf).__name__}")
            return leaf

        def constant(leaf: Any) -> Any:
            if isinstance(leaf, HostNumber):
                return float(leaf)
            if isinstance(leaf, Tensor):
                _make_constant(leaf)
            return leaf

        planned = map_leaves(plan, result)
        if self.refusal is not None:
            raise self.refusal
        return planned, map_leaves(constant, result)

    def _let_go_of_graphs(self) -> None:
        """Tensors that the step leaves behind become constants, as replays make them."""
        for place in self._written.values():
            _make_constant(place.get(self.leaves))

    def _check_survivors(self, result: Any) -> None:
        """Every buffer that outlives the step must be one that a replay hands out anew."""
        self._before = []
        for collected in (False, True):
            if collected:
                gc.collect()
            alive = [slot for slot, ref in self._by_handle.values() if ref() is not None]
            lost = [slot for slot in alive if slot.own and not slot.fresh]
            if not lost:
                return
        raise RefusedError(
            f"the step keeps {len(lost)} results where a replay could not renew them "
            "(a list, a dict that grows, an attribute of another object); return them instead"
        )

    def _check_random(self) -> None:
        if _random_state() != self._random:
            self.refuse(
                "random numbers are drawn outside of needle.init and layers such as Dropout; "
                "draw them before the step and pass them in"
            )


def _make_constant(value: Any) -> None:
    """Cuts a result off from its graph, which holds what would else be temporary."""
    if isinstance(value, Tensor) and value.op is not None:
        value.op, value.inputs, value.requires_grad, value.grad = None, (), False, None


def _random_state() -> Any:
    state: Any = np.random.get_state(legacy=True)
    return state[1].tobytes(), *state[2:], random.getstate()


def _has_view(items: Sequence[Any]) -> bool:
    return any(isinstance(item, View) for item in items)


def _key(place: Place) -> tuple[int | None, int, Any]:
    return place.leaf, id(place.holder), place.key


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, PLAIN) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


def _rebuilder(plan: Any) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    def rebuild(leaves: Sequence[Any], values: Sequence[Any]) -> Any:
        return map_leaves(
            lambda leaf: leaf.value(leaves, values) if isinstance(leaf, Source) else leaf, plan
        )

    return rebuild
