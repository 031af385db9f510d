"""What a trained model sees: python -m apps.predict --checkpoint runs/a/best.safetensors cat.jpg

Pictures, or folders of them; the five most probable classes of each. ``--serve`` opens a page on
this machine to draw on instead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: the folder above is where apps.prediction is found
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from apps.prediction.classifier import Classifier, picture_paths
from apps.prediction.server import serve
from needle.errors import NeedleError

BATCH = 64


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="apps/predict.py", description="Classifies pictures.")
    add = result.add_argument
    add("pictures", nargs="*", type=Path, help="files, or folders with pictures")
    add(
        "--checkpoint", type=Path, required=True, help="model, best or checkpoint of a run's folder"
    )
    add("--device", help="cpu (compiled kernels; the default) or cpu_numpy")
    add("--top", type=int, default=5, help="classes to show (default: 5)")
    add("--invert", action="store_true", help="light and dark are swapped, as ink on paper")
    add("--serve", action="store_true", help="open a page to draw on")
    add("--host", default="127.0.0.1", help="of the page (default: this machine alone)")
    add("--port", type=int, default=8000, help="of the page (default: 8000)")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code: 1 if a picture cannot be read, the others shown."""
    options = parser().parse_args(arguments)
    try:
        if options.serve == bool(options.pictures):
            raise NeedleError("predict: give pictures or --serve, one of them")
        classifier = Classifier(options.checkpoint, options.device)
        if options.serve:
            serve(classifier, options.host, options.port)
            return 0
        return predict(classifier, picture_paths(options.pictures), options.top, options.invert)
    except KeyboardInterrupt:
        return 0
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def predict(classifier: Classifier, paths: list[Path], top: int, invert: bool) -> int:
    """Prints a line a picture."""
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
