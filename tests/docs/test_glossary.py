"""Run needle's code in the two comparison tables of docs/glossary.md.

What the tables say about needle is tested elsewhere; what they say about PyTorch is tested here.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import data, nn, optim
from needle.errors import DeviceError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
X = np.arange(6, dtype=np.float64).reshape(2, 3)


def shown() -> list[tuple[str, str]]:
    """Return each piece of needle's code in the tables, with the shape that follows it or ""."""
    text = PAGE.read_text(encoding="utf-8").split("## Words")[0]
    rows = re.findall(r"^\| (.+?) \|(.*?)\|", text, re.MULTILINE)
    cells = (first if second.startswith(" the same") else second for first, second in rows)
    return [found for cell in cells for found in re.findall(r"`(.+?)`(?: \((\d.*?)\))?", cell)]


def names(x: ndl.Tensor) -> dict[str, Any]:
    """Return the names that the code uses; ``x`` has a gradient."""
    layer, loss = nn.Linear(3, 2), (x**3).sum()
    loss.backward()
    own = {"ndl": ndl, "nn": nn, "optim": optim, "np": np, "DataLoader": data.DataLoader}
    values = {"x": x, "y": x * 2, "a": x, "b": x, "i": np.zeros(x.shape, int), "loss": loss, "d": X}
    functions = {"f": lambda t: t**3, "step": lambda t: t * 2 + 1, "lstm": nn.LSTM(3, 5)}
    others = {"mask": x > 1, "other": x > 3, "lr": 0.1, "lengths": [2], "path": "w.safetensors"}
    parts = {"model": layer, "p": layer.parameters(), "optimizer": optim.SGD([x])}
    return vars(ndl) | own | values | functions | others | parts


def test_the_code_of_needle_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(shown()) > 50
    for code, shape in shown():
        errors: list[Exception] = []
        for values in (X, X.reshape(2, 1, 3), X.reshape(1, 1, 2, 3)):  # a matrix, steps, images
            given = names(ndl.Tensor(values))
            try:
                exec(f"result = ({code})" if " = " not in code else code, given)
            except DeviceError:
                assert "cuda" in code
            except (ndl.errors.NeedleError, RuntimeError, TypeError, ValueError) as error:
                errors.append(error)
                continue
            assert not shape or str(given["result"].shape) == f"({shape})", code
            break
        assert len(errors) < 3, f"{code}: {errors}"


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)


def test_what_the_rows_say_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(RuntimeError):
        x.numpy()
    for _ in range(2):
        (x * 2).sum().backward()
    same(x.grad, np.full((2, 3), 4))  # gradients accumulate
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError):
        y.backward()
    same(x.detach().var(), X.var(ddof=1))
    with pytest.raises(ValueError):
        x[::-1]
    assert torch.tensor(X).dtype == torch.float64 and not torch.tensor(X).requires_grad
    assert torch.nn.Linear(3, 2).weight.shape == (2, 3)
    assert torch.nn.Conv2d(1, 6, 5).weight.shape == (6, 1, 5, 5)
    layer = torch.nn.BatchNorm2d(3, momentum=1.0)
    values = np.random.default_rng(0).random((2, 3, 4, 4)).astype("float32")
    layer(torch.from_numpy(values))
    same(layer.running_var, values.var(axis=(0, 2, 3), ddof=1))
    p = torch.tensor([1.0], requires_grad=True)
    optimizer = torch.optim.SGD([p], 0.1, momentum=0.9)
    for i in range(2):
        optimizer.zero_grad()
        (p * (i + 1.0)).sum().backward()
        optimizer.step()
    same(p.detach(), [1 - 0.1 - 0.29])
    module = torch.nn.Module()
    module.blocks = [torch.nn.Linear(3, 2)]
    assert not list(module.parameters())
