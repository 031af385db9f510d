"""Run every study of the data module's benchmark."""

from typing import Any

import numpy as np
import pytest

from apps.bench.data import ours, peers, pictures
from apps.bench.data.__main__ import BENCHMARK
from apps.bench.data.epochs import Epochs
from apps.bench.harness import report
from apps.bench.harness.case import Case
from apps.bench.harness.settings import Settings
from apps.bench.harness.turns import Outcome, Result
from needle import data

pytestmark = pytest.mark.usefixtures("programs_find_us")
STUDIES = BENCHMARK.studies


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = str(tmp_path_factory.mktemp("bench"))
    return Settings(BENCHMARK.module, 0, 1, quick=True, folder=folder)


# ---- studies -------------------------------------------------------------------------------------


def runs_here(case: Case) -> bool:
    """Return True if a case can be opened in this process: no peer workers, all installed."""
    own = "torch" not in case.needs
    return not case.missing() and (own or ", 0 workers" in case.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_runs(name: str, quick: Settings) -> None:
    study = STUDIES[name]
    if hasattr(study, "prepare"):
        pytest.importorskip("simplejpeg")
        study.prepare(quick)
    cases = [case for case in study.cases(quick) if runs_here(case)]
    result = Result(name)
    for case in cases:
        subject = case.open(quick)
        try:
            outcome = result.outcomes[case.name] = Outcome(case.name)
            outcome.add(subject.run())
        finally:
            subject.close()
        assert outcome.values
    assert cases
    assert any("|" in line for line in report.tables_of(study, result))
    assert all(target.row().count("|") == 7 for target in study.targets(result))


def test_both_sides_normalise_small_pictures_alike(quick: Settings) -> None:
    images, labels = pictures.small_pictures(quick)
    small = data.ImageArrays(images, labels, dtype="uint8", layout="HWC")
    (batch,) = ours.loader(small, len(labels), transforms=ours.SMALL_TO_FLOATS)
    mine, generator = ours.tensors(batch)[0], np.random.default_rng(0)
    theirs = np.stack([peers.augment_small(image, generator) for image in images])
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    np.testing.assert_allclose(mine.mean((0, 2, 3)), theirs.mean((0, 2, 3)), atol=0.03)
    np.testing.assert_allclose(mine.std((0, 2, 3)), theirs.std((0, 2, 3)), rtol=0.03)


def test_batched_torch_crops_and_flips_as_it_should() -> None:
    torch = pytest.importorskip("torch")
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    loader = peers.BatchedSmallPictures(images, np.arange(6), 6)
    torch.manual_seed(0)
    made, labels = next(iter(loader))
    restored = (made * loader.std + loader.mean).mul(255).round().to(torch.uint8).numpy()
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    for picture, label in zip(restored, labels):
        windows = [
            window[:, ::step]
            for top in range(9)
            for left in range(9)
            for step in (1, -1)
            for window in [padded[label, top : top + 32, left : left + 32]]
        ]
        assert any(np.array_equal(picture.transpose(1, 2, 0), window) for window in windows)


def test_an_epoch_that_gives_less_is_seen(quick: Settings) -> None:
    images, labels = pictures.small_pictures(quick)

    class Shrinking:
        epochs = 0

        def __iter__(self) -> Any:
            self.epochs += 1
            yield images[self.epochs :], labels[self.epochs :]

    subject = Epochs(Shrinking, tuple, least=1e-9)
    with pytest.raises(RuntimeError, match="an epoch had"):
        subject.run()
