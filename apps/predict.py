"""Classify pictures: python -m apps.predict --checkpoint runs/a/best.safetensors cat.jpg

Prints the five most probable classes of each picture; pictures are given as files or folders.
``--serve`` serves a page to draw on instead; ``--onnx`` writes an ONNX file.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

if not __package__:  # run as a script, so make the package ``apps`` importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from apps.prediction.classifier import Classifier, picture_paths
from apps.prediction.server import serve
from needle import onnx
from needle.errors import NeedleError

BATCH = 64


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m needle predict", description="Classify pictures."
    )
    add = result.add_argument
    add("pictures", nargs="*", type=Path, help="files, or folders with pictures")
    add(
        "--checkpoint",
        type=Path,
        required=True,
        help="model.safetensors, best.safetensors or checkpoint.safetensors of a run",
    )
    add("--device", help="cpu (compiled kernels; the default) or cpu_numpy")
    add("--top", type=int, default=5, help="number of classes to show (default: 5)")
    add("--invert", action="store_true", help="swap light and dark, for dark ink on white paper")
    add("--serve", action="store_true", help="open a page to draw on")
    add("--onnx", type=Path, help="write the model as an ONNX file for other programs")
    add("--host", default="127.0.0.1", help="address of the page (default: this machine only)")
    add("--port", type=int, default=8000, help="port of the page (default: 8000)")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit code, 1 if any picture cannot be read."""
    options = parser().parse_args(arguments)
    # The classifier has its own size limit, with a clear error.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")
    try:
        if bool(options.serve) + bool(options.pictures) + bool(options.onnx) != 1:
            raise NeedleError("predict: give either pictures, --serve or --onnx")
        classifier = Classifier(options.checkpoint, options.device)
        if options.onnx:
            export(classifier, options.onnx)
            return 0
        if options.serve:
            serve(classifier, options.host, options.port)
            return 0
        return predict(classifier, picture_paths(options.pictures), options.top, options.invert)
    except KeyboardInterrupt:
        return 0
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def export(classifier: Classifier, path: Path) -> None:
    """Write the model as an ONNX file and print its inputs and outputs."""
    example = np.zeros(classifier.input_shape, np.float32)
    onnx.save(classifier.model, path, example)
    mean, std = classifier.source.mean, classifier.source.std
    _, *shape = classifier.input_shape
    print(f"{path}: input (N, {', '.join(map(str, shape))}) float32, pixels in 0..1, of each")
    print(f"  channel minus {mean} and divided by {std}; output (N, {len(classifier.classes)})")
    print(f"  logits of {', '.join(classifier.classes)}")


def predict(classifier: Classifier, paths: list[Path], top: int, invert: bool) -> int:
    """Print a line for each picture; return 1 if one of them cannot be read, else 0."""
    code = 0
    for start in range(0, len(paths), BATCH):
        images, named = [], []
        for path in paths[start : start + BATCH]:
            try:
                images.append(classifier.prepare(path, invert))
                named.append(path)
            except (NeedleError, OSError) as error:
                print(f"error: {error}", file=sys.stderr)
                code = 1
        answers = classifier.predict(np.stack(images), top) if images else []
        for path, answer in zip(named, answers, strict=True):
            pairs = zip(answer.classes, answer.probabilities, strict=True)
            print(f"{path}: " + ", ".join(f"{name} {share:.1%}" for name, share in pairs))
    return code


if __name__ == "__main__":
    sys.exit(main())
