"""PyTorch's names and needle's names for the same things: one table for all error messages.

The packages ask here when a name is missing (``missing_attribute``), and constructors and ops when
a keyword is unknown (``PointsToKeywords``, ``points_to_keywords``). Looking up an existing name
costs nothing extra. docs/glossary.md shows the table.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class")

HOMES = ("needle", "needle.nn", "needle.optim", "needle.data", "needle.init")
"""The packages with known public names; a hint points to the first one that has a missing name."""

NAMES: dict[str, dict[str, str]] = {
    "needle": {
        "tensor": "needle.Tensor(values)",
        "as_tensor": "needle.Tensor(values)",
        "from_numpy": "needle.Tensor(array)",
        "cat": "needle.concatenate(tensors, axis)",
        "concat": "needle.concatenate(tensors, axis)",
        "hstack": "needle.concatenate(tensors, 1)",
        "vstack": "needle.concatenate(tensors, 0)",
        "sum": "needle.summation(x, axes)",
        "amax": "needle.max(x, axes)",
        "amin": "needle.min(x, axes)",
        "mm": "needle.matmul(a, b)",
        "bmm": "needle.matmul(a, b)",
        "mul": "needle.multiply(a, b)",
        "div": "needle.divide(a, b, rounding_mode)",
        "neg": "needle.negate(x)",
        "pow": "needle.power(a, b)",
        "eq": "needle.equal(a, b)",
        "ne": "needle.not_equal(a, b)",
        "lt": "needle.less(a, b)",
        "le": "needle.less_equal(a, b)",
        "gt": "needle.greater(a, b)",
        "ge": "needle.greater_equal(a, b)",
        "absolute": "needle.abs(x)",
        "unsqueeze": "needle.expand_dims(x, axis)",
        "clamp": "needle.clip(x, min, max)",
        "unbind": "needle.split(x, axis)",
        "log_softmax": "needle.logsoftmax(x, axis=axis)",
        "full": "needle.init.constant(*shape, c=value)",
        "arange": "needle.Tensor(numpy.arange(n))",
        "linspace": "needle.Tensor(numpy.linspace(a, b, n))",
        "eye": "needle.Tensor(numpy.eye(n))",
        "manual_seed": "needle.seed(number)",
        "save": "needle.io.save(path, model.state_dict())",
        "load": "needle.io.load(path)",
        "compile": "needle.capture(step, state=[model, optimizer])",
        "inference_mode": "needle.no_grad()",
        "set_grad_enabled": "needle.no_grad(), needle.enable_grad()",
        "functional": "needle, where the functions are: needle.relu(x)",
        "utils": "needle.data for torch.utils.data",
        "amp": 'needle.config.matmul_precision.using("bf16")',
        "autocast": 'needle.config.matmul_precision.using("bf16")',
        "GradScaler": "nothing: leave it out, all gradients are float32",
        "allclose": "numpy.allclose(a.numpy(), b.numpy())",
        "metrics": "needle.confusion_matrix(predicted, labels)",
        "EarlyStopping": "needle.optim.ReduceLROnPlateau, and stop when its reductions grow",
        "long": "needle.int64",
        "float": "needle.float32",
        "double": "needle.float64",
        "bool": "needle.bool_",
    },
    "needle.cuda": {
        "is_available": "needle.cuda().enabled()",
        "empty_cache": "needle.cuda().empty_cache()",
        "memory_allocated": "needle.cuda().memory_stats()",
        "device_count": "needle.cuda(index).enabled()",
        "current_device": "needle.default_device()",
        "set_device": "needle.set_default_device(needle.cuda(index))",
        "synchronize": "x.numpy(), which waits for the values",
        "amp": 'needle.config.matmul_precision.using("bf16")',
    },
    "needle.nn": {
        "utils": "needle.optim.clip_grad_norm(params, max_norm) for torch.nn.utils",
        "ModuleList": "a list: modules in lists, tuples and dicts are found",
        "ModuleDict": "a dict: modules in lists, tuples and dicts are found",
        "ParameterList": "a list: parameters in lists, tuples and dicts are found",
        "functional": "needle, where the functions are: needle.relu(x)",
        "TransformerEncoder": "a list of needle.nn.TransformerEncoderLayer, named layers",
        "TransformerDecoder": "a list of needle.nn.TransformerDecoderLayer, named layers",
        "UpsamplingNearest2d": "needle.nn.Upsample(mode='nearest')",
        "UpsamplingBilinear2d": "needle.nn.Upsample(mode='bilinear', align_corners=True)",
        "Swish": "needle.nn.SiLU",
        "CosineSimilarity": "needle.cosine_similarity(a, b)",
        "summary": "needle.summary(model, shape)",
    },
    "needle.optim": {
        "lr_scheduler": "needle.optim, where the schedules are: needle.optim.CosineLR",
        "CosineAnnealingLR": "needle.optim.CosineLR(optimizer, total_steps)",
        "LinearLR": "needle.optim.WarmUp(optimizer, total_steps)",
        "ConstantLR": "needle.optim.LambdaLR(optimizer, function)",
        "PolynomialLR": "needle.optim.LambdaLR(optimizer, function)",
    },
    "needle.data": {
        "RandomHorizontalFlip": "needle.data.RandomFlipHorizontal",
        "HorizontalFlip": "needle.data.RandomFlipHorizontal",
        "RandomVerticalFlip": "needle.data.RandomFlipVertical",
        "VerticalFlip": "needle.data.RandomFlipVertical",
        "ToTensor": "needle.data.ToFloat and needle.data.ToCHW",
        "ConvertImageDtype": "needle.data.ToFloat",
        "RandomApply": "needle.data.OneOf(transforms, p)",
        "RandomChoice": "needle.data.OneOf(transforms)",
        "Lambda": "the function itself, in a list of transforms",
        "TensorDataset": "needle.data.ArrayDataset(*arrays)",
        "DatasetFolder": "needle.data.ImageFolder(root)",
    },
    "Tensor": {
        "view": ".reshape(shape)",
        "view_as": ".reshape(other.shape)",
        "reshape_as": ".reshape(other.shape)",
        "ravel": ".reshape((-1,))",
        "expand_as": ".broadcast_to(other.shape)",
        "dim": ".ndim",
        "numel": ".size",
        "clone": ".detach() for a constant; values are never changed in place",
        "contiguous": "nothing: leave it out",
        "tolist": ".numpy().tolist()",
        "cpu": ".to(needle.cpu())",
        "cuda": ".to(needle.cuda())",
        "float": '.astype("float32")',
        "double": '.astype("float64")',
        "long": '.astype("int64")',
        "bool": '.astype("bool")',
        "amax": ".max(axes)",
        "amin": ".min(axes)",
        "mm": ".matmul(other)",
        "bmm": ".matmul(other)",
        "eq": "needle.equal(a, b)",
        "pow": "x ** y",
        "softmax": "needle.softmax(x, axis)",
        "log_softmax": "needle.logsoftmax(x, axis=axis)",
        "scatter_add": '.scatter(axis, index, values, reduce="add")',
        "retain_grad": "nothing: every tensor keeps its .grad",
        "requires_grad_": "x.requires_grad = True or False",
        "grad_fn": ".op",
    },
    "Schedule": {
        "get_last_lr": ".optimizer.lr, or the lr of each of .optimizer.param_groups",
        "last_epoch": ".steps",
    },
    "Module": {
        "cpu": ".to(needle.cpu())",
        "cuda": ".to(needle.cuda())",
        "float": '.to("float32")',
        "double": '.to("float64")',
        "children": ".named_children()",
        "modules": ".named_modules()",
        "requires_grad_": ".parameters(), and p.requires_grad = True or False for each",
    },
}
"""By package, function or class: PyTorch's name, and what to write instead."""

MODULES = {
    "needle.cuda": "needle.cuda(), a function; needle.config.matmul_precision for torch.cuda.amp",
    "needle.nn.init": "needle.init",
    "needle.nn.modules": "needle.nn",
    "needle.nn.parameter": "needle.nn.Parameter",
    "needle.data.dataset": "needle.data.Dataset",
    "needle.data.dataloader": "needle.data.DataLoader",
    "needle.jit": "needle.capture(step, state=[model, optimizer])",
}
"""PyTorch's modules with names that are not missing attributes of the packages in ``NAMES``."""

LEFT_OUT = (
    *("create_graph", "inplace", "set_to_none", "foreach", "fused", "capturable", "verbose"),
    *("pin_memory", "persistent_workers", "multiprocessing_context", "in_order"),
    "target_transform",
)
"""PyTorch's keywords that have no counterpart."""

KEYWORDS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"),
    "axis": ("axes", "dim"),
    "axes": ("axis",),
    "dims": ("axes", "axis", "repetitions"),
    "dim0": ("axes",),
    "dim1": ("axes", "axis1"),
    "dim2": ("axis2",),
    "keepdim": ("keepdims",),
    "input": ("a", "x", "logits", "logs", "ids"),
    "tensors": ("args",),
    "target": ("ids",),
    "log_probs": ("logs",),
    "kernel_size": ("kernel",),
    "pad": ("widths",),
    "start_dim": ("start",),
    "end_dim": ("end",),
    "diagonal": ("offset",),
    "gradient": ("out_grad",),
    "unbiased": ("correction",),
    "ddof": ("correction",),
    "learning_rate": ("lr",),
    "betas": ("beta1 beta2",),
    "schedulers": ("schedules",),
    "T_max": ("total_steps",),
    "T_0": ("first_steps",),
    "T_mult": ("factor",),
    "eta_min": ("min_lr",),
    "split_size": ("sizes",),
    "size_average": ("reduction",),
    "collate_fn": ("collate",),
    "prefetch_factor": ("prefetch",),
    "worker_init_fn": ("seed",),
    "generator": ("seed",),
    "transform": ("transforms",),
    "targets": ("labels",),
    "data_source": ("source",),
    "num_replicas": ("world",),
    "num_features": ("dim",),
    "normalized_shape": ("dim",),
    **dict.fromkeys(LEFT_OUT, ()),
}
"""PyTorch's keyword, and the keywords that may replace it, several for one by a space between them;
() if it has to be left out."""

ATTRIBUTES = {
    "transform": "use transforms= of the data set or of the loader",
    "target_transform": "use collate= of the loader, which can map the labels",
    "targets": "set labels, if the data set has them, or create another data set",
    "data": "set images or arrays, if the data set has them, or create another data set",
    "collate_fn": "use collate= of the loader",
    "generator": "use seed= of the loader",
    "worker_init_fn": "use seed= of the loader",
    "prefetch_factor": "use prefetch= of the loader",
    "multiprocessing_context": "use engine= of the loader",
    "pin_memory": "leave it out",
    "persistent_workers": "leave it out, because workers are kept for the next epoch",
    "in_order": "leave it out, because batches are always in order",
}
"""PyTorch's attributes of data sets and loaders, with the remedy for each."""


# ---- names ---------------------------------------------------------------------------------------


def missing_attribute(home: str, name: str) -> AttributeError:
    """Return the error for a name that the package ``home`` does not have, with a pointer.

    In ``from home import name``, which would drop the pointer, ImportError is raised instead.

    >>> str(missing_attribute("needle.nn", "Swish"))
    "module 'needle.nn' has no attribute 'Swish'; use needle.nn.SiLU"
    """
    own = NAMES.get(home, {}).get(name)
    pointer = own or _elsewhere(name)
    module = own is None and _is_module(home, name)
    hint = (
        f"; use {pointer}" if pointer else f"; write import {home}.{name} first" if module else ""
    )
    if pointer and not module and _is_imported():
        raise ImportError(f"cannot import name {name!r} from {home!r}{hint}", name=home)
    text = f"module {home!r} has no attribute {name!r}{hint}"
    return AttributeError(text, name=name, obj=None if hint else sys.modules.get(home))


class ModuleFinder:
    """The last finder of ``sys.meta_path``; its errors for modules of PyTorch give a hint."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for a module that only PyTorch has; otherwise return None."""
        home, _, last = name.rpartition(".")
        pointer = MODULES.get(name) or NAMES.get(home, {}).get(last)
        asks = inspect.currentframe()
        asks = asks.f_back.f_back if asks and asks.f_back else None
        # an import, not a call of find_spec
        if pointer and asks and asks.f_code.co_name == "_find_and_load_unlocked":
            raise ModuleNotFoundError(f"No module named {name!r}; use {pointer}", name=name)
        return None


def _is_module(home: str, name: str) -> bool:
    path = getattr(sys.modules.get(home), "__path__", None)
    return path is not None and PathFinder.find_spec(f"{home}.{name}", path) is not None


def _is_imported() -> bool:
    """Return True if a from-import called the module's ``__getattr__``."""
    frame = inspect.currentframe()
    for _ in range(3):
        frame = frame.f_back if frame else None
    return frame is not None and frame.f_code.co_name == "_handle_fromlist"


def defined_names(home: str) -> list[str]:
    """Return the public names of classes and functions defined in a module or in its files."""
    public = {name: each for name, each in vars(sys.modules[home]).items() if name[0] != "_"}
    homes = {name: str(getattr(each, "__module__", "")) for name, each in public.items()}
    own = (name for name in public if homes[name] == home or homes[name].startswith(f"{home}."))
    return sorted(name for name in own if callable(public[name]))


def publish(module: str) -> None:
    """Set ``__all__`` to ``defined_names``, as type checkers do where ``__all__`` is missing."""
    vars(sys.modules[module])["__all__"] = defined_names(module)


def _elsewhere(name: str) -> str | None:
    """Return the full name of ``name`` in another package of needle, or None."""
    for home in HOMES:
        if name in getattr(sys.modules.get(home), "__all__", ()):
            return f"{home}.{name}"
    return next((NAMES[home][name] for home in HOMES if name in NAMES.get(home, ())), None)


class PointingFunction:
    """A function named like a package of PyTorch; missing attributes raise errors with a hint."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function."""
        return self.__wrapped__(*args, **options)  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return self.__name__  # type: ignore[attr-defined, no-any-return]

    def __repr__(self) -> str:
        return f"<function needle.{self.__name__}>"  # type: ignore[attr-defined]

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            home = f"needle.{vars(self).get('__name__')}"
            hint = f"; use {NAMES[home][name]}" if name in NAMES.get(home, ()) else ""
            raise AttributeError(f"function {home!r} has no attribute {name!r}{hint}")


class _Missing:
    """A name that a class does not have; access is an AttributeError that says what to use."""

    def __init__(self, name: str, pointer: str) -> None:
        self.name, self.pointer = name, pointer

    def __get__(self, instance: Any, owner: type) -> Any:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self.name!r}; use {self.pointer}"
        )


class _Pointers:
    """Base class of classes that have the missing names of ``NAMES[home]``."""

    def __init_subclass__(cls, home: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, pointer in NAMES.get(home, {}).items():
            setattr(cls, name, _Missing(name, pointer))

    def __dir__(self) -> list[str]:
        found = ((name, getattr_static(self, name, None)) for name in super().__dir__())
        return [name for name, value in found if not isinstance(value, _Missing)]


class MethodPointers(_Pointers, home="Tensor"):
    """Base class of Tensor; errors for PyTorch's method names mention needle's names."""


class ModulePointers(_Pointers, home="Module"):
    """Base class of Module; see ``MethodPointers``."""


class SchedulePointers(_Pointers, home="Schedule"):
    """Base class of schedules; see ``MethodPointers``."""


# ---- keywords ------------------------------------------------------------------------------------


def keyword_hint(keyword: str, known: Iterable[str]) -> str:
    """Return a hint such as ``"; use axis= instead of dim="``, or "" if there is none."""
    known = set(known)
    if keyword not in KEYWORDS or keyword in known:
        return ""
    if not KEYWORDS[keyword]:
        return f"; leave {keyword}= out"
    found = next((name for name in KEYWORDS[keyword] if known.issuperset(name.split())), None)
    return f"; use {found.replace(' ', '= and ')}= instead of {keyword}=" if found else ""


class _InitSignature:
    """The signature of a class, taken from ``__init__`` since ``__new__`` accepts anything."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        if owner.__init__ is object.__init__:  # type: ignore[misc]
            return inspect.Signature()
        first, *others = inspect.signature(owner.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(others if first.name == "self" else [first, *others])


class PointsToKeywords:
    """Base class of layers, optimisers and data classes, which translates PyTorch's keywords."""

    if not TYPE_CHECKING:
        __signature__ = _InitSignature()

        def __new__(cls, *args, **options):
            """Return a new object; TypeError if a keyword is PyTorch's."""
            if options and not KEYWORDS.keys().isdisjoint(options):
                wrong = keyword_error(cls, options)
                if wrong is not None:
                    raise wrong
            elif (args or options) and cls.__init__ is object.__init__:
                raise TypeError(f"{cls.__name__}() takes no arguments")
            return super().__new__(cls)


class PointsToAttributes(PointsToKeywords):
    """Base class of data sets and loaders; setting an attribute that nothing reads is an error.

    Subclasses of a program may use any name in ``ATTRIBUTES``, as its own code reads them.
    """

    _fixed: frozenset[str] = frozenset()
    """The attributes that are read only while the object is created."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; AttributeError if it is in ``ATTRIBUTES``, or fixed by now."""
        if name in ATTRIBUTES and _is_own(type(self)):
            kind = type(self).__name__
            raise AttributeError(f"{kind} has no attribute {name!r} to set; {ATTRIBUTES[name]}")
        if name in self._fixed and self._is_fixed(name):
            kind = type(self).__name__
            raise AttributeError(
                f"{kind}: {name} cannot be changed after the {kind} has been created, got "
                f"{value!r:.60}; make another {kind}"
            )
        super().__setattr__(name, value)

    def _is_fixed(self, name: str) -> bool:
        """Return True if an attribute in ``_fixed`` has its value; a program's class may set it."""
        return name in vars(self) and _is_own(type(self))


def _is_own(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def points_to_keywords(function: Function) -> Function:
    """Wrap ``function`` so that its TypeError for a keyword of PyTorch names needle's."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError as error:
            raised_here = error.__traceback__ is not None and error.__traceback__.tb_next is None
            wrong = keyword_error(function, options) if raised_here else None
            if wrong is None:
                raise
            raise wrong from None

    return call  # type: ignore[return-value]


def keyword_error(function: Callable[..., Any], options: Mapping[str, Any]) -> TypeError | None:
    """Return the error for an unknown keyword that the table translates, or None."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    for keyword in options:
        hint = "" if keyword in parameters else keyword_hint(keyword, parameters)
        if hint:
            return TypeError(
                f"{function.__name__}: got an unexpected keyword argument {keyword!r}{hint}"
            )
    return None
