"""Batches and random numbers do not depend on who prepares them: complaints 5, 6 and 15."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data

from .programs import run
from .sets import Drawn

ENGINES: list[dict[str, Any]] = [
    {"num_workers": workers, "engine": engine}
    for engine in ("threads", "processes")
    for workers in (1, 2, 5)
]
IMAGES = np.random.default_rng(0).integers(0, 256, (26, 12, 11, 3), dtype=np.uint8)
LABELS = np.arange(26) % 4


def augmented(mixing: Any = None, **options: Any) -> data.DataLoader:
    """Return a loader of cropped, flipped, jittered and normalised images, mixed by ``mixing``."""
    transforms = [
        data.RandomCrop(2),
        data.RandomFlipHorizontal(),
        data.OneOf([data.ColorJitter(0.4, 0.4, 0.4, 0.1), data.RandomRotation(20)]),
        data.Normalize([100.0, 110.0, 120.0], [50.0, 60.0, 70.0]),
        data.ToCHW(),
    ]
    transforms += [] if mixing is None else [mixing]
    dataset = data.ArrayDataset(IMAGES, LABELS)
    return data.DataLoader(dataset, 5, True, seed=7, transforms=transforms, **options)


def plain(batch: Any) -> Any:
    """Return a batch as bytes with shape and dtype, so that ``==`` compares it."""
    if isinstance(batch, (tuple, list)):
        return [plain(each) for each in batch]
    array = batch.numpy() if hasattr(batch, "numpy") else np.asarray(batch)
    return array.dtype.str, array.shape, array.tobytes()


def named(options: dict[str, Any]) -> str:
    return f"{options['engine']}-{options['num_workers']}" if options else "inline"


def epochs(loader: data.DataLoader, count: int = 2) -> list[Any]:
    with loader:
        return [plain(batch) for _ in range(count) for batch in loader]


DIGEST = """
import hashlib, sys
import numpy as np
from needle import data
images = np.random.default_rng(0).integers(0, 256, (26, 12, 11, 3), dtype=np.uint8)
transforms = [data.RandomCrop(2), data.RandomResizedCrop(9), data.RandomFlipHorizontal(),
              data.ColorJitter(0.4, 0.4, 0.4, 0.1), data.RandomErasing(0.5), data.ToCHW()]
found = hashlib.sha256()
workers = int(sys.argv[1])
with data.DataLoader(data.ArrayDataset(images), 5, True, seed=7, transforms=transforms,
                     num_workers=workers) as loader:
    for _ in range(2):
        for (batch,) in loader:
            found.update(np.asarray(batch.numpy(), np.uint8).tobytes())
print(found.hexdigest())
"""


def test_6_batches_are_the_same_with_and_without_compiled_kernels(tmp_path: Path):
    """NumPy's definitions in one process and the kernels in two workers give equal uint8 images."""
    alone = run(tmp_path, DIGEST, "0", variables={"NEEDLE_BACKEND": "np"})
    assert len(alone) == len(hashlib.sha256().hexdigest()) + 1
    assert run(tmp_path, DIGEST, "2") == alone


@pytest.mark.parametrize("options", [{}, *ENGINES], ids=named)
def test_5_no_random_number_comes_twice(options):
    """In 2 epochs of 40 samples no draw repeats, in needle's generator or the two global ones."""
    loader = data.DataLoader(Drawn(40), 4, seed=1, **options)
    with loader:
        rows = [np.stack([x.numpy() for x in batch], 1) for _ in range(2) for batch in loader]
    drawn = np.concatenate(rows)
    assert drawn.shape == (80, 3)
    for column in drawn.T:
        assert len(set(column.tolist())) == 80


def drawing(samples: list[Any]) -> Any:
    """Collate the samples, and draw a random number for the whole batch."""
    return np.array(samples), np.random.rand(1)


@pytest.mark.parametrize("collate", [None, drawing])
def test_5_random_numbers_are_of_the_sample_not_of_the_worker(collate):
    """No draw depends on the number of processes, not even a draw from a global generator."""
    wanted, *others = (
        epochs(data.DataLoader(Drawn(40), 4, True, seed=1, num_workers=count, collate=collate))
        for count in (1, 2, 5)
    )
    assert all(found == wanted for found in others)
    assert len({str(batch[-1]) for batch in wanted}) == 20


class Remembers(data.Sampler):
    """A user's sampler whose order depends on ``set_epoch``."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def __len__(self) -> int:
        return 12

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)

    def __iter__(self) -> Any:
        return iter(np.random.RandomState(self.told[-1]).permutation(12).tolist())


@pytest.mark.parametrize("options", [{}, *ENGINES[1::3]], ids=named)
def test_15_every_epoch_has_an_order_of_its_own(options):
    """Shuffled, distributed and user-defined samplers all advance without a call of set_epoch."""
    samplers = {
        "shuffle": {"shuffle": True, "seed": 3},
        "distributed": {"sampler": data.DistributedSampler(24, 1, 2, True, seed=3)},
        "user's": {"sampler": Remembers()},
    }
    for name, order in samplers.items():
        with data.DataLoader(range(24), 4, **order, **options) as loader:
            seen = [[i for b in loader for i in b.numpy().tolist()] for _ in range(4)]
        assert len({tuple(each) for each in seen}) == 4, name
        if name != "distributed":
            assert len({frozenset(each) for each in seen}) == 1, name
