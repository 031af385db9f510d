"""Test ``watch``: reloading keeps objects, and growing graphs cause warnings."""

import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import needle as ndl
from apps.notebook import growing_graphs, watch
from apps.notebook.growth import assigned
from apps.notebook.reloading import Reloader
from needle.ops import REGISTRY
from tests.programs import python

Edit = Callable[[str], ModuleType]
FIRST = """
from needle.autograd import Tensor, TensorOp
from needle.ops.registry import op

class Base:
    def __init__(self):
        self.parts = ["base"]
    def gone(self):
        return 1

class Derived(Base):
    def __init__(self):
        super().__init__()
        self.parts.append("derived")
    def name(self):
        return "first"

class Tripled(TensorOp):
    def compute(self, a):
        return a * 3
    def gradient(self, out_grad, node):
        return out_grad * 3

@op(Tripled, methods=["tripled"])
def tripled(a: Tensor, extra=0) -> Tensor:
    return Tripled()(a) + extra
"""


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edit]:
    """Write the module ``edited_exercise`` with a new file time, and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    path, times = tmp_path / "edited_exercise.py", iter(range(10**9, 2 * 10**9, 1000))

    def write(text: str) -> ModuleType:
        path.write_text(textwrap.dedent(text))
        when = next(times)
        os.utime(path, (when, when))
        return importlib.import_module("edited_exercise")

    yield write
    sys.modules.pop("edited_exercise", None)
    for row in [REGISTRY.pop(name) for name in list(REGISTRY) if name == "tripled"]:
        for method in row.methods:
            delattr(ndl.Tensor, method)


def test_objects_stay_instances_and_functions_change_for_everybody(edit: Edit) -> None:
    reloader = Reloader(["edited_exercise"])
    module = edit(FIRST)
    reloader.note()
    kept, derived, function = module.Derived(), module.Derived, module.tripled
    edit(
        FIRST.replace('"first"', '"second"')
        .replace("    def gone(self):\n        return 1\n", "")
        .replace("a * 3", "a * 30")
        .replace("extra=0", "extra=5")
        .replace('["base"]', '["new base"]')
        + "class Added(Derived):\n    pass\n"
    )
    assert reloader.refresh() == ["edited_exercise"] and reloader.refresh() == []
    assert module.Derived is derived and isinstance(kept, module.Derived)
    assert isinstance(kept, module.Base) and isinstance(module.Added(), derived)
    assert kept.name() == "second" and not hasattr(kept, "gone")
    assert module.Derived().parts == ["new base", "derived"]  # super() finds the kept class
    x = ndl.Tensor([1.0])
    assert function(x).item() == 35 and x.tripled().item() == 35
    assert isinstance(function(x).inputs[0].op, module.Tripled)


def test_a_mistake_is_told_of_and_what_was_there_stays(edit: Edit) -> None:
    module = edit(FIRST)
    reloader = Reloader(["edited_exercise"])
    for wrong in ("def broken(:\n", FIRST.replace("a * 3", "a * 4") + "\n1 / 0\n"):
        edit(wrong)
        with pytest.warns(UserWarning, match="edited_exercise was edited but cannot be reloaded"):
            assert reloader.refresh() == []
        assert ndl.Tensor([1.0]).tripled().item() == 3 and module.Derived().name() == "first"


def test_needle_itself_can_be_edited() -> None:
    """Test modules of ops: they register again, and decorated functions change everywhere."""
    program = """
        import sys
        import needle as ndl
        from apps.notebook.reloading import rerun
        from needle import accelerated
        from needle.ops import REGISTRY, elementwise

        x, exp, softmax = ndl.Tensor([[0.0, 1.0]]), ndl.exp, accelerated.softmax
        y, order = exp(x), list(REGISTRY)
        rerun(elementwise)
        assert elementwise.exp is exp is ndl.exp is REGISTRY["exp"].function is ndl.Tensor.exp
        assert REGISTRY["exp"].classes == (ndl.Exp,) and list(REGISTRY) == order
        assert isinstance(y.op, ndl.Exp) and isinstance(x.exp().op, ndl.Exp)
        y.sum().backward()
        rerun(sys.modules["needle.accelerated.softmax"])
        assert accelerated.softmax is softmax and abs(ndl.softmax(x).sum().item() - 1) < 1e-6
        rerun(sys.modules["needle.autograd.tensor"])
        z = ndl.Tensor([1.0])
        (z * 2).sum().backward()
        assert isinstance(z, ndl.Tensor) and isinstance(x, ndl.Tensor) and z.grad.item() == 2
    """
    python("-c", textwrap.dedent(program))


def test_outside_a_notebook_nothing_is_watched() -> None:
    assert watch("needle") is None


# ---- graphs --------------------------------------------------------------------------------------


def training(keep: str, backward: bool = True) -> list[str]:
    """Return the warnings after a cell of twenty steps in which ``keep`` uses the loss."""
    code = f"total, kept = w * 0, []\nfor _ in range(20):\n    {keep}\n"
    names = {"w": ndl.Tensor([1.0, 2.0]), "ndl": ndl}

    def loss() -> ndl.Tensor:
        made = (names["w"] ** 2).sum()  # type: ignore[operator]
        if backward:
            made.backward()
        return made

    exec(code, {**names, "loss": loss}, names)
    return [f"{found.line}: {found}" for found in growing_graphs(names, code)]


def test_a_sum_that_forgets_to_detach_is_told_of_with_its_line() -> None:
    (message,) = training("total = total + loss()")
    assert message.startswith("3: total keeps the graphs of 20 steps in memory")
    assert "in 'total = total + loss()'; keep a number (.item())" in message
    (message,) = training("kept.append(loss())")
    assert message.startswith("3: kept keeps the graphs of 20 tensors in memory")


def test_numbers_constants_and_single_graphs_are_no_matter() -> None:
    assert training("total = total + loss().item()") == []
    assert training("kept.append(loss().detach())") == []
    assert training("total = loss()") == []


def test_a_long_graph_without_any_backward_is_told_of_too() -> None:
    x = ndl.Tensor([1.0])
    y = x
    for _ in range(2500):
        y = y + 1
    (message,) = growing_graphs({"y": y}, "y = y + 1")
    assert "a graph of 2501 nodes" in str(message)


def test_assigned_finds_the_last_line_and_survives_magics() -> None:
    assert assigned("a = 1\nb += a\nc.append(b)\na: int = 2\n") == {"a": 4, "b": 2, "c": 3}
    assert assigned("%matplotlib inline\na = 1") == {}
