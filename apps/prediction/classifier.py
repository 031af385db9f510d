"""A trained model out of a run's file: pictures in, classes with probabilities and maps out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from apps.models import build_model, find_model
from apps.training.sources import find_source, fitting
from needle import data, nn
from needle.data.formats.decoding import decode
from needle.errors import CheckpointError, DataError

MOST_PIXELS = 50_000_000
"""Of a picture that is opened; a small file can claim to be a large picture."""
EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")


@dataclass(frozen=True)
class Answer:
    """Classes with their probabilities, the most probable first."""

    classes: list[str]
    probabilities: list[float]


class Classifier:
    """A model in evaluation mode, and what its data set does to a picture before."""

    def __init__(self, path: Path, device: str | None = None) -> None:
        """From ``model.safetensors`` or a checkpoint of a run; CheckpointError if it is neither.

        Averaged weights are taken where the run kept such.
        """
        arrays, about = needle.io.load_with_metadata(path)
        settings, self.classes = _description(path, about)
        self.source = find_source(settings["data"])
        self.image_size = find_model(settings["model"]).image_size  # type: ignore[attr-defined]
        self.device = needle.device(device)
        self.model = build_model(
            settings["model"],
            in_channels=self.source.channels,
            num_classes=len(self.classes),
            device=self.device,
        )
        self.model.load_state_dict(_weights(arrays))
        self.model.eval()

    def prepare(self, picture: bytes | Path, invert: bool = False) -> NDArray[np.float32]:
        """A picture file, or its content, as (C, H, W) float32, as the model was trained to see it.

        DataError if it cannot be read.
        """
        mode, name = "L" if self.source.channels == 1 else "RGB", str(picture)
        name = name if isinstance(picture, Path) else "what was sent"
        image = decode(picture, mode, name=name, max_pixels=MOST_PIXELS)
        small = data.Resize(self.source.size)(image)
        pixels = np.asarray(small, np.float32) / np.float32(255)
        pixels = 1 - pixels if invert else pixels
        normalised = data.Normalize(self.source.mean, self.source.std)(pixels)
        fit = fitting(self.source.size, self.image_size)
        framed = np.asarray(normalised if fit is None else fit(normalised), np.float32)
        return np.ascontiguousarray(framed.transpose(2, 0, 1))

    def predict(self, images: NDArray[np.float32], count: int = 5) -> list[Answer]:
        """Of prepared images (N, C, H, W)."""
        with needle.no_grad():
            logits = self.model(needle.Tensor(images, device=self.device)).numpy()
        logits = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        answers = []
        for row in shares:
            best = np.argsort(-row, kind="stable")[:count]
            answers.append(Answer([self.classes[i] for i in best], [float(row[i]) for i in best]))
        return answers

    def feature_maps(self, image: NDArray[np.float32], layers: int = 3) -> dict[str, Any]:
        """Name -> (C, H, W) of what the first convolutions make of one prepared image."""
        named = [(n, m) for n, m in self.model.named_modules() if isinstance(m, nn.Conv2d)][:layers]
        found: dict[str, Any] = {}
        with _noting(named, found), needle.no_grad():
            self.model(needle.Tensor(image[None], device=self.device))
        return found


def picture_paths(given: list[Path]) -> list[Path]:
    """The files themselves, and of folders the pictures in them, sorted."""
    found = []
    for path in given:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in EXTENSIONS)
            if not inside:
                raise DataError(f"predict: no pictures ({', '.join(EXTENSIONS)}) in {path}")
            found += inside
        else:
            found.append(path)
    return found


def _description(path: Path, about: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The run's settings and classes, from either kind of file."""
    try:
        if "checkpoint" in about:
            extra = json.loads(about["checkpoint"])["extra"]
            settings, classes = extra["settings"], extra["classes"]
        else:
            settings, classes = json.loads(about["settings"]), json.loads(about["classes"])
        return {key: str(settings[key]) for key in ("model", "data")}, [str(c) for c in classes]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"--checkpoint: {path} does not say of which model and data set it is; give "
            "model.safetensors, best.safetensors or checkpoint.safetensors of a run"
        ) from error


def _weights(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The averaged weights, else the model's, else all of them."""
    for prefix in ("average.", "model."):
        found = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        if found:
            return found
    return arrays


@contextmanager
def _noting(named: list[tuple[str, nn.Module]], found: dict[str, Any]) -> Iterator[None]:
    """What these modules give inside goes to ``found``."""

    def noted(name: str, forward: Any) -> Any:
        def run(x: needle.Tensor) -> needle.Tensor:
            result: needle.Tensor = forward(x)
            found[name] = result.numpy()[0]
            return result

        return run

    for name, module in named:
        vars(module)["forward"] = noted(name, module.forward)
    try:
        yield
    finally:
        for _, module in named:
            del vars(module)["forward"]
