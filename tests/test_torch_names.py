"""Test that errors for PyTorch's names point to ours, and that the glossary's names exist."""

import ast
import copy
import importlib
import importlib.util
import inspect
import pickle
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import data, nn, optim
from needle.torch_names import HOMES, KEYWORDS, MODULES, NAMES, missing_attribute
from tests.programs import python

PAGE = Path(__file__).resolve().parents[1] / "docs" / "glossary.md"
ROWS = [(home, name) for home, names in NAMES.items() for name in names]


CLASSES = {
    "Tensor": ndl.Tensor([1.0]),
    "Module": nn.ReLU(),
    "Schedule": optim.StepLR(optim.SGD([ndl.Tensor([1.0])]), 1),
}
LEFT_OUT = ("nothing", "a list", "a dict", "the function itself")
"""How pointers begin that name nothing."""


def owner(home: str) -> Any:
    if home in CLASSES:
        return type(CLASSES[home])
    if home == "needle.cuda":
        return ndl.cuda if ndl.BACKEND == "nd" else pytest.skip("NumPy has no devices")
    return importlib.import_module(home)


@pytest.mark.parametrize(("home", "name"), ROWS)
def test_a_missing_name_points_to_ours(home: str, name: str) -> None:
    place = owner(home)
    assert not hasattr(place, name), f"{home}.{name} exists; drop its row"
    target = CLASSES.get(home, place)
    assert not hasattr(target, name) and name not in dir(target)
    with pytest.raises(AttributeError, match=re.escape(f"{name!r}; use {NAMES[home][name]}")):
        getattr(target, name)


@pytest.mark.parametrize(("home", "name"), ROWS)
def test_a_pointer_exists(home: str, name: str) -> None:
    pointer = NAMES[home][name]
    if ndl.BACKEND == "np" and "needle.cuda" in pointer:
        pytest.skip("devices are of needle's own arrays")
    named = [(ndl, dotted) for dotted in re.findall(r"needle((?:\.\w+)+)", pointer)]
    named += [(np, dotted) for dotted in re.findall(r"numpy((?:\.\w+)+)", pointer)]
    of_object = r"(?<![\w)])[xp]?(\.[a-z]\w+)"
    named += [(CLASSES.get(home, ndl.Tensor([1.0])), d) for d in re.findall(of_object, pointer)]
    assert named or pointer.startswith(LEFT_OUT) or pointer == "x ** y"
    for found, dotted in named:
        if home == "Module" and dotted == ".requires_grad":
            found = ndl.Tensor([1.0])
        for part in dotted.split(".")[1:]:
            found = getattr(found, part)


CALLS = [
    (dotted, arguments)
    for names in NAMES.values()
    for pointer in names.values()
    for dotted, arguments in re.findall(r"needle\.([\w.]+)\(([^()]*)\)", pointer)
]


@pytest.mark.parametrize(("dotted", "arguments"), sorted(set(CALLS)))
def test_a_call_that_is_pointed_to_fits_its_function(dotted: str, arguments: str) -> None:
    if dotted == "cuda" and ndl.BACKEND == "np":
        pytest.skip("devices are of needle's own arrays")
    call: Any = ast.parse(f"f({arguments})").body[0]
    keywords = {each.arg: None for each in call.value.keywords}
    inspect.signature(attrgetter(dotted)(ndl)).bind(*call.value.args, **keywords)


def test_a_keyword_that_is_pointed_to_exists() -> None:
    homes = [importlib.import_module(home) for home in HOMES]
    public = [vars(home).get(name) for home in homes for name in home.__all__]
    public.append(ndl.Tensor.backward)
    plain = [f for f in public if inspect.isclass(f) or inspect.isfunction(f)]
    plain = [f for f in plain if not (inspect.isclass(f) and issubclass(f, Exception))]
    known = {n for f in plain for n in inspect.signature(f).parameters}
    for keyword, ours in KEYWORDS.items():
        assert all(known.issuperset(each.split()) for each in ours), keyword


IMPORTS = [
    ("from needle import cat", "use needle.concatenate"),
    ("from needle import Linear", "use needle.nn.Linear"),
    ("from needle.data import HorizontalFlip", "use needle.data.RandomFlipHorizontal"),
    ("from needle.optim import lr_scheduler", "needle.optim.CosineLR"),
    ("from needle.nn import functional as F", "use needle, where the functions are"),
    ("import needle.nn.functional as F", "use needle, where the functions are"),
    ("from needle.nn.functional import relu", "use needle, where the functions are"),
    ("from needle.optim.lr_scheduler import StepLR", "needle.optim.CosineLR"),
    ("import needle.utils.data", "use needle.data for torch.utils.data"),
    ("from needle.utils.data import DataLoader", "use needle.data for torch.utils.data"),
    ("from needle.nn.utils import clip_grad_norm_", "use needle.optim.clip_grad_norm"),
    *[(f"import {name}", f"No module named '{name}'; use {p}") for name, p in MODULES.items()],
]


@pytest.mark.parametrize(("line", "hint"), IMPORTS)
def test_a_from_import_has_the_hint(line: str, hint: str) -> None:
    with pytest.raises(ImportError, match=re.escape(hint)):
        exec(line)


def test_a_package_that_is_not_loaded_yet_is_named() -> None:
    program = (
        "import needle\n"
        "try: needle.onnx\n"
        "except AttributeError as error: print(error)\n"
        "from needle import onnx\n"
        "print(needle.onnx.save.__name__)"
    )
    found = python("-c", program).stdout
    assert "write import needle.onnx first" in found and found.endswith("save\n")


@pytest.mark.skipif(ndl.BACKEND == "np", reason="NumPy has no devices")
def test_a_function_that_points_is_a_function_otherwise() -> None:
    assert pickle.loads(pickle.dumps(ndl.cuda)) is copy.deepcopy(ndl.cuda) is ndl.cuda
    assert [*inspect.signature(ndl.cuda).parameters] == ["index"]
    assert ndl.cuda(1).name == "cuda:1"
    with pytest.raises(AttributeError, match="'needle.cuda' has no attribute 'nonsense'$"):
        _ = ndl.cuda.nonsense


def test_a_name_of_another_package_is_found() -> None:
    for place, name, full in (
        (ndl, "Linear", "needle.nn.Linear"),
        (nn, "relu", "needle.relu"),
        (nn, "Adam", "needle.optim.Adam"),
        (ndl.ops, "cat", "needle.concatenate(tensors, axis)"),
        (optim, "DataLoader", "needle.data.DataLoader"),
        (ndl, "randn", "needle.init.randn"),
    ):
        with pytest.raises(AttributeError, match=re.escape(f"{name!r}; use {full}")):
            getattr(place, name)


def test_an_unknown_name_is_an_ordinary_error() -> None:
    for home in HOMES[:4]:
        with pytest.raises(AttributeError) as found:
            _ = owner(home).nonsense
        assert str(found.value) == f"module {home!r} has no attribute 'nonsense'"
    assert missing_attribute("needle.nn", "Linar").name == "Linar"
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nonsense'"):
        _ = ndl.Tensor([1.0]).nonsense  # type: ignore[attr-defined]


X = ndl.Tensor([[1.0, 2.0], [3.0, 4.0]])
IMAGE = ndl.Tensor(np.ones((1, 4, 4, 1)))
P = [ndl.Tensor([1.0])]
DIGITS = data.ArrayDataset(np.zeros((4, 2)))
WRONG: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (ndl.Tensor.sum, (X,), {"dim": 1}, "use axes= instead of dim="),
    (ndl.Tensor.sum, (X,), {"axis": 1}, "use axes= instead of axis="),
    (ndl.mean, (X,), {"axes": 1, "keepdim": True}, "use keepdims= instead of keepdim="),
    (ndl.Tensor.argmax, (X,), {"dim": 1}, "use axis= instead of dim="),
    (ndl.softmax, (X,), {"dim": 1}, "use axis= instead of dim="),
    (ndl.concatenate, ([X, X],), {"dim": 1}, "use axis= instead of dim="),
    (ndl.var, (X,), {"unbiased": True}, "use correction= instead of unbiased="),
    (ndl.max_pool2d, (IMAGE,), {"kernel_size": 2}, "use kernel= instead of kernel_size="),
    (ndl.avg_pool1d, (IMAGE,), {"kernel_size": 2}, "use kernel= instead of kernel_size="),
    (ndl.max_unpool2d, (IMAGE, IMAGE), {"kernel_size": 2}, "use kernel= instead of kernel_size="),
    (ndl.softmax, (), {"input": X, "axis": 1}, "use a= instead of input="),
    (ndl.max_pool2d, (), {"input": IMAGE, "kernel": 2}, "use x= instead of input="),
    (ndl.cross_entropy, (), {"input": X, "target": X}, "use logits= instead of input="),
    (ndl.cross_entropy, (X,), {"target": X}, "use ids= instead of target="),
    (ndl.stack, (), {"tensors": [X]}, "use args= instead of tensors="),
    (ndl.flatten, (IMAGE,), {"start_dim": 1}, "use start= instead of start_dim="),
    (ndl.pad, (X,), {"pad": (1, 1)}, "use widths= instead of pad="),
    (ndl.transpose, (X,), {"dim0": 0, "dim1": 1}, "use axes= instead of dim0="),
    (ndl.diagonal, (X,), {"dim1": 0, "dim2": 1}, "use axis1= instead of dim1="),
    (ndl.tile, (X,), {"dims": (2, 2)}, "use repetitions= instead of dims="),
    (ndl.Tensor.backward, (X.sum(),), {"gradient": X}, "use out_grad= instead of gradient="),
    (ndl.Tensor.backward, (X.sum(),), {"create_graph": True}, "leave create_graph= out"),
    (data.RandomSampler, (), {"data_source": DIGITS}, "use source= instead of data_source="),
    (nn.Softmax, (), {"axis": 1}, "use dim= instead of axis="),
    (nn.ReLU, (), {"inplace": True}, "leave inplace= out"),
    (nn.BatchNorm2d, (), {"num_features": 3}, "use dim= instead of num_features="),
    (optim.SGD, (P,), {"learning_rate": 0.1}, "use lr= instead of learning_rate="),
    (optim.Adam, (P,), {"betas": (0.9, 0.999)}, "use beta1= and beta2= instead of betas="),
    (optim.CosineAnnealingWarmRestarts, (), {"T_0": 5}, "use first_steps= instead of T_0="),
    (optim.SequentialLR, (), {"schedulers": []}, "use schedules= instead of schedulers="),
    (optim.RAdam, (P,), {"foreach": True}, "leave foreach= out"),
    (optim.SGD([X]).zero_grad, (), {"set_to_none": True}, "leave set_to_none= out"),
    (nn.CTCLoss, (), {"size_average": True}, "use reduction= instead of size_average="),
    (X.split, (), {"split_size": 1}, "use sizes= instead of split_size="),
    (data.DataLoader, (DIGITS, 2), {"collate_fn": len}, "use collate= instead of collate_fn="),
    (data.DataLoader, (DIGITS, 2), {"pin_memory": True}, "leave pin_memory= out"),
    (data.ImageFolder, ("x",), {"transform": None}, "use transforms= instead of transform="),
    (data.RandomFlipHorizontal, (), {"inplace": True}, "leave inplace= out"),
]


@pytest.mark.parametrize(("function", "args", "options", "hint"), WRONG)
def test_a_keyword_of_pytorch_points_to_ours(
    function: Any, args: Any, options: Any, hint: str
) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument") as found:
        function(*args, **options)
    assert str(found.value).endswith(hint)


def test_other_mistakes_stay_what_they_were() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        nn.Linear(2, 3, nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        X.sum(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        nn.Linear(2)  # type: ignore[call-arg]


class Mine(nn.Module):
    """A layer that accepts one of PyTorch's keywords and passes on all others."""

    def __init__(self, dim: int, **rest: Any) -> None:
        super().__init__()
        self.dim, self.rest = dim, rest


def test_a_users_class_may_have_the_keyword() -> None:
    layer = Mine(dim=3, inplace=True)
    assert (layer.dim, layer.rest) == (3, {"inplace": True})
    assert [*inspect.signature(Mine).parameters] == ["dim", "rest"]


def test_signatures_pickles_and_names_stay() -> None:
    assert [*inspect.signature(nn.Linear).parameters][:3] == [
        "in_features",
        "out_features",
        "bias",
    ]
    assert [*inspect.signature(data.Normalize).parameters] == ["mean", "std"]
    assert pickle.loads(pickle.dumps(data.RandomCrop(padding=2))) == data.RandomCrop(padding=2)
    assert pickle.loads(pickle.dumps(ndl.softmax)) is ndl.softmax
    assert "axis" in inspect.signature(ndl.softmax).parameters


def test_the_glossary_uses_no_other_missing_name() -> None:
    text = PAGE.read_text(encoding="utf-8").split("## Coming from the course")[0]
    cells = " ".join(re.findall(r"^\| (.+?) \|", text, re.MULTILINE))
    for prefix, home in (("torch", "needle"), ("nn", "needle.nn"), ("x", "Tensor")):
        for name in re.findall(rf"`{prefix}\.(\w+)", cells):
            known = name in NAMES[home] or hasattr(owner(home), name)
            assert known or name in ("Generator", "autograd", "func"), f"{prefix}.{name}"


def test_a_program_may_ask_whether_a_name_of_pytorch_exists() -> None:
    """Using a PyTorch name raises an error with a hint; testing for it with hasattr does not."""
    for name in MODULES:
        home, _, last = name.rpartition(".")
        if name != "needle.cuda":
            assert importlib.util.find_spec(name) is None or name == "needle.nn.init"
            assert not hasattr(importlib.import_module(home), last) or name == "needle.nn.init"


def test_names_that_needle_only_imports_are_not_listed() -> None:
    listed = dir(ndl)
    assert {"Tensor", "nn", "relu", "__version__"} <= {*listed}
    assert not {"sys", "importlib", "find_spec", "ModuleFinder", "TYPE_CHECKING"} & {*listed}
