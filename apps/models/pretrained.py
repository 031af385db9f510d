"""Weights from files into models: needle's own names, or PyTorch's names and layouts.

torchvision's files for ResNets load as they are into the models whose names end in _imagenet.
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
    """The named arrays of a safetensors file, or of a PyTorch file where PyTorch is installed.

    Of a checkpoint of a run the model's part. A PyTorch file is read with ``weights_only``, which
    runs no code of it. CheckpointError if the file is damaged or holds something else.
    """
    if path.suffix in TORCH_SUFFIXES:
        return _read_torch(path)
    arrays = needle.io.load(path)
    own = {k.removeprefix("model."): a for k, a in arrays.items() if k.startswith("model.")}
    return own or arrays


def load_weights(model: nn.Module, path: Path) -> None:
    """Puts the file's values into ``model``, whichever of the two layouts they are in.

    CheckpointError, and nothing changed, if they are of another model.
    """
    state = read_weights(path)
    if _is_torch_layout(model, state):
        torch_mapping.from_torch_state_dict(model, state)
    else:
        model.load_state_dict(state)


def _is_torch_layout(model: nn.Module, state: dict[str, NDArray[Any]]) -> bool:
    """A linear layer's bias has one axis in PyTorch and two here; counters are PyTorch's alone."""
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
            "convert it to safetensors where torch is"
        ) from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {str(name): np.asarray(value.numpy()) for name, value in state.items()}
    except FileNotFoundError:
        raise CheckpointError(f"no file at {path}; check the path") from None
    except Exception as error:  # what torch raises for damaged files has no common class
        raise CheckpointError(
            f"{path} is no PyTorch file of named tensors ({str(error).splitlines()[0]}); save "
            "model.state_dict()"
        ) from error
