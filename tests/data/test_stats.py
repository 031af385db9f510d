"""Test a loader's statistics by stage, and the doctor that reads them."""

import time

import numpy as np
import pytest

from needle import data
from needle.data.loader.doctor import _judge


class Slow(data.Dataset):
    """A data set in which reading a sample takes some milliseconds."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        time.sleep(0.002)
        return np.zeros((4, 4, 1), np.float32), index


class SlowTransform(data.Transform):
    """A transform that takes 2 ms per image."""

    def __call__(self, x):
        time.sleep(0.002)
        return x


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "engine": "threads"}])
def test_seconds_and_samples_by_stage(options):
    with data.DataLoader(Slow(), 4, transforms=[SlowTransform()], **options) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        stats = loader.stats(reset=True)
        assert (stats.samples, stats.batches) == (48, 12)
        for stage in ("read", "augment"):
            assert stats.seconds[stage] >= 48 * 0.002
            assert 0 < stats.samples_per_second(stage) <= 500
            assert stats.samples_per_second(stage) == stats.samples / stats.seconds[stage]
        assert ("wait_data" in stats.seconds) == bool(options)
        assert "48 samples in 12 batches" in str(stats) and "transforms" in str(stats)
        assert loader.stats().samples == 0 and stats.samples == 48
        assert loader.stats().samples_per_second("read") == float("inf")


@pytest.mark.parametrize(
    "dataset, transforms, limit",
    [(Slow(), None, "read"), (data.Digits(layout="HWC"), [SlowTransform()], "augment")],
)
def test_the_doctor_names_the_stage_that_limits(dataset, transforms, limit):
    loader = data.DataLoader(dataset, 4, shuffle=True, transforms=transforms)
    np.random.seed(0)
    want = np.random.rand()
    np.random.seed(0)
    found = data.doctor(loader, 3)
    assert np.random.rand() == want and loader.epoch == 0
    assert found.limit == limit and found.samples == 12
    assert found.rates["full"] == found.rates["prepare only"]
    text = str(found)
    assert f"limit: {limit}" in text and "###" in text and "num_workers" in text


def test_the_doctor_of_workers_and_streams():
    with data.DataLoader(Slow(), 4, num_workers=2, engine="threads") as loader:
        next(iter(loader))
        state = loader.state_dict()
        found = data.doctor(loader, 6)
        assert loader.state_dict() == state
        assert set(found.rates) == {"fetch only", "prepare only", "full"}

    class Lines(data.IterableDataset):
        def __iter__(self):
            return iter(range(9))

    assert data.doctor(data.DataLoader(Lines(), 3)).samples == 9
    with pytest.raises(ValueError, match="at least one batch"):
        data.doctor(data.DataLoader([]))


def test_the_doctor_says_when_processes_cost_more_than_they_bring():
    """Test the doctor's advice on figures measured with arrays in memory and two cores."""
    images = data.ArrayDataset(np.zeros((64, 4, 4, 3), np.uint8))
    rates = {"fetch only": 900e3, "prepare only": 850e3, "full": 290e3}
    with data.DataLoader(images, 8, num_workers=2) as loader:
        _, advice = _judge(loader, rates, {"collate": 1.0})
        assert advice[0] == (
            "2 processes prepare 290,000 samples/s, one thread alone 850,000: they cost more than "
            "they bring; try num_workers=0, or 'auto'"
        )
        _, advice = _judge(loader, {**rates, "full": 1700e3}, {"collate": 1.0})
        assert not any("cost more" in line for line in advice)
