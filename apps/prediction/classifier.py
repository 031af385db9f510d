"""A classifier of pictures, made from a file of a training run.

Called by predict.py and server.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from apps.models import build_model, image_size
from apps.profiling import shadowed
from apps.training.sources import find_source, fitting
from needle import data, nn
from needle.data.datasets.image_folder import image_files
from needle.data.formats.decoding import EXTENSIONS, decode
from needle.errors import CheckpointError, DataError

MOST_PIXELS = 50_000_000
"""Largest picture that is decoded: a small file can declare a huge size."""
MOST_SIDE = 4096
"""Largest side of a network's input."""


@dataclass(frozen=True)
class Answer:
    """Classes with their probabilities, the most probable first."""

    classes: list[str]
    probabilities: list[float]


class Classifier:
    """A model in evaluation mode, with the preprocessing of pictures that its data set needs."""

    def __init__(self, path: Path, device: str | None = None) -> None:
        """Load ``model.safetensors`` or a checkpoint of a run, with averaged weights if it has any.

        CheckpointError if the file is neither.
        """
        arrays, about = needle.io.load_with_metadata(path)
        settings, classes = _description(path, about)
        weights = _weights(arrays)
        if not any(len(classes) in array.shape for array in weights.values()):
            raise CheckpointError(
                f"--checkpoint: {path} names {len(classes):,} classes, but none of its arrays has "
                "so many rows or columns; give an unmodified file of a run"
            )
        size = image_size(settings["model"], settings["image_size"])
        model = build_model(
            settings["model"],
            in_channels=find_source(settings["data"]).channels,
            num_classes=len(classes),
            device=needle.device(device),
        )
        model.load_state_dict(weights)
        self._set(model, classes, settings["data"], size)

    @classmethod
    def of(
        cls, model: nn.Module, classes: Sequence[str], data: str, image_size: tuple[int, int]
    ) -> Classifier:
        """Return a classifier of a model in memory, which is set to evaluation mode.

        classes: the name of each output. data: a name in sources.SOURCES; pictures are preprocessed
        as those of this data set. image_size: (height, width) of the model's input.
        """
        made = cls.__new__(cls)
        made._set(model, list(classes), data, image_size)
        return made

    def _set(
        self, model: nn.Module, classes: list[str], data: str, image_size: tuple[int, int]
    ) -> None:
        self.model, self.classes, self.image_size = model, classes, image_size
        self.source = find_source(data)
        self.device = model.parameters()[0].device
        self.model.eval()

    def prepare(self, picture: bytes | Path, invert: bool = False) -> NDArray[np.float32]:
        """Return a picture file, or its content, as the (C, H, W) float32 input of the model.

        DataError if it cannot be decoded.
        """
        mode, name = "L" if self.source.channels == 1 else "RGB", str(picture)
        name = name if isinstance(picture, Path) else "the picture sent"
        image = decode(picture, mode, name=name, max_pixels=MOST_PIXELS)
        size = self.source.size or self.image_size
        small = data.Resize(size)(image)
        pixels = np.asarray(small, np.float32) / np.float32(255)
        pixels = 1 - pixels if invert else pixels
        normalised = data.Normalize(self.source.mean, self.source.std)(pixels)
        fit = fitting(size, self.image_size)
        framed = np.asarray(normalised if fit is None else fit(normalised), np.float32)
        return np.ascontiguousarray(framed.transpose(2, 0, 1))

    def predict(self, images: NDArray[np.float32], count: int = 5) -> list[Answer]:
        """Return the ``count`` most probable classes of each prepared image, (N, C, H, W)."""
        with needle.no_grad():
            logits = self.model(needle.Tensor(images, device=self.device)).numpy()
        logits = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        answers = []
        for row in shares:
            best = np.argsort(-row, kind="stable")[:count]
            answers.append(Answer([self.classes[i] for i in best], [float(row[i]) for i in best]))
        return answers

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """The shape of a prepared picture with a batch axis in front: (1, C, H, W)."""
        return (1, self.source.channels, *self.image_size)

    def feature_maps(self, image: NDArray[np.float32], layers: int = 3) -> dict[str, Any]:
        """Return the outputs (C, H, W) of the first convolutions for a prepared image, by name."""
        named = [(n, m) for n, m in self.model.named_modules() if isinstance(m, nn.Conv2d)][:layers]
        found: dict[str, Any] = {}
        with ExitStack() as stack, needle.no_grad():
            for name, module in named:
                run = _recorded(name, module.forward, found)
                stack.enter_context(shadowed(module, "forward", run))
            self.model(needle.Tensor(image[None], device=self.device))
        return found


def picture_paths(given: list[Path]) -> list[Path]:
    """Return the given files, and the pictures in the given folders, sorted."""
    found = []
    for path in given:
        if path.is_dir():
            inside = [path / name for name in image_files(path, "", EXTENSIONS)]
            if not inside:
                raise DataError(f"predict: {path} holds no pictures ({', '.join(EXTENSIONS)})")
            found += inside
        else:
            found.append(path)
    return found


def _description(path: Path, about: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the run's settings and classes, from the metadata of either kind of file."""
    try:
        if "checkpoint" in about:
            extra = json.loads(about["checkpoint"])["extra"]
            settings, classes = extra["settings"], extra["classes"]
        else:
            settings, classes = json.loads(about["settings"]), json.loads(about["classes"])
        found: dict[str, Any] = {key: str(settings[key]) for key in ("model", "data")}
        found["image_size"] = size = int(settings.get("image_size", 0))
        if not 0 <= size <= MOST_SIDE:
            raise ValueError(f"an image size of {size}")
        return found, [str(c) for c in classes]
    except needle.io.DAMAGE as error:
        raise CheckpointError(
            f"--checkpoint: {path} does not record its model and data set; give "
            "model.safetensors, best.safetensors or checkpoint.safetensors of a run"
        ) from error


def _weights(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the averaged weights, else the model's, else all arrays."""
    for prefix in ("average.", "model."):
        found = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        if found:
            return found
    return arrays


def _recorded(name: str, forward: Any, found: dict[str, Any]) -> Any:
    """Return a function that also stores the output of ``forward`` in ``found``."""

    def run(x: needle.Tensor) -> needle.Tensor:
        result: needle.Tensor = forward(x)
        found[name] = result.numpy()[0]
        return result

    return run
