"""Four pieces of work that take a minute: ``make bench``."""

from __future__ import annotations

from functools import partial

import numpy as np

from apps.bench.harness.settings import Settings

from .pieces import Build
from .sides import EAGER, SLOW, Side, Step
from .study import PieceStudy
from .study_conv2d import Shape, convolution
from .study_matmul import product
from .study_models import training_step


def builds(settings: Settings) -> dict[str, Build]:
    """Return the pieces; they are as small in a quick run as they can be."""
    edge, n, batch = settings.pick((2000, 512, 32), (8, 8, 1))
    shape = Shape(32, 64, 32)
    return {
        f"relu(a * b + a), {edge} × {edge}": partial(elementwise, edge=edge),
        f"a @ b, {n} × {n}": partial(product, shape=(n, n, n)),
        f"conv2d, {batch} images, {shape.name}": partial(
            convolution, shape=shape, way="forward", batch=batch
        ),
        f"LeNet-5, a training step of {2 * batch} images": partial(
            training_step, model="lenet5", channels=1, batch=2 * batch
        ),
    }


def elementwise(side: Side, edge: int) -> Step:
    a, b = (side.tensor(np.random.rand(edge, edge).astype(np.float32)) for _ in range(2))
    return lambda: side.relu(a * b + a)


STUDY = PieceStudy("A short comparison", "work", builds, ("needle", SLOW[0], EAGER[0]), quick=3)
