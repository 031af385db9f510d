"""Loads weights from files into models, with needle's own names or PyTorch's names and layouts.

torchvision's files for ResNets load unchanged into the models with names that end in _imagenet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from needle import nn
from needle.errors import CheckpointError
from needle.nn import torch_mapping

TORCH_SUFFIXES = (".pt", ".pth", ".bin")


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Return the named arrays of a safetensors file, or of a PyTorch file if torch is installed.

    For the checkpoint of a training run, return the model's arrays alone. PyTorch files are read
    with ``weights_only``, which runs none of their code. Raises CheckpointError if the file is
    damaged or holds something else.
    """
    if path.suffix in TORCH_SUFFIXES:
        return _read_torch(path)
    arrays = needle.io.load(path)
    own = {k.removeprefix("model."): a for k, a in arrays.items() if k.startswith("model.")}
    return own or arrays


def load_weights(model: nn.Module, path: Path, only_matching: bool = False) -> int:
    """Load the file's values, in either of the two layouts, into ``model``.

    Returns the number of arrays that were loaded. only_matching: skip arrays whose names or shapes
    differ. CheckpointError, without any change, if they belong to another model.
    """
    state = read_weights(path)
    of_torch = _is_torch_layout(model, state)
    all_own: Any = torch_mapping.to_torch_state_dict(model) if of_torch else model.state_dict()
    own, state = (
        {k: v for k, v in each.items() if not k.endswith(torch_mapping.COUNTER)}
        for each in (all_own, state)
    )
    matching = {k: v for k, v in state.items() if k in own and tuple(own[k].shape) == v.shape}
    if len(matching) < max(len(own), len(state)) and not (only_matching and matching):
        raise CheckpointError(_differences(path, own, state, matching))
    whole = {**own, **matching}
    if of_torch:
        torch_mapping.from_torch_state_dict(model, whole)
    else:
        model.load_state_dict(whole)
    return len(matching)


def _differences(
    path: Path, own: dict[str, Any], state: dict[str, Any], matching: dict[str, Any]
) -> str:
    """Return three lines: each kind of difference with an example, and the remedy."""
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in state and name not in matching
    ]
    missing = [name for name in own if name not in state]
    unknown = [name for name in state if name not in own]
    found = [(shapes, "of another shape"), (missing, "missing"), (unknown, "unknown")]
    parts = [f"{len(names)} {what}, such as {names[0]}" for names, what in found if names]
    remedy = "give --only-matching to load these alone" if matching else "give another file"
    return (
        f"{path} is of another model: {len(matching)} of {len(own)} arrays match\n"
        f"  {'; '.join(parts)}\n"
        f"  {remedy}, or the --model that the file was saved from"
    )


def _is_torch_layout(model: nn.Module, state: dict[str, NDArray[Any]]) -> bool:
    """A linear layer's bias has one axis in PyTorch and two here; only PyTorch has counters."""
    if any(name.endswith(torch_mapping.COUNTER) for name in state):
        return True
    own = model.state_dict()
    return any(
        name.endswith("bias") and name in own and value.ndim != len(own[name].shape)
        for name, value in state.items()
    )


def _read_torch(path: Path) -> dict[str, NDArray[Any]]:
    try:
        import torch
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path} is a PyTorch file, which needs torch to be read; pip install torch, or "
            "convert it to safetensors on a machine with torch"
        ) from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {str(name): np.asarray(value.numpy()) for name, value in state.items()}
    except FileNotFoundError:
        raise CheckpointError(f"no file at {path}; check the path") from None
    except Exception as error:  # torch's errors for damaged files have no common class
        raise CheckpointError(
            f"{path} is not a PyTorch file of named tensors ({str(error).splitlines()[0]}); save "
            "model.state_dict()"
        ) from error
