"""The engine without workers."""

import numpy as np
import pytest

from needle.data.engines import engine_names, make_engine, register_engine
from needle.data.engines.base import Request
from needle.data.engines.inline import InlineEngine
from needle.data.pipeline import Pipeline
from needle.errors import UnknownNameError


class Interrupted(list):
    """The first look at sample 1 is interrupted."""

    times = 1

    def __getitem__(self, index):
        if index == 1 and self.times:
            self.times = 0
            raise KeyboardInterrupt
        return super().__getitem__(index)


def request(serial, *indices):
    return Request(serial, None, 0, np.array(indices, np.int64))


def test_batches_are_made_when_they_are_collected_in_the_order_of_asking():
    engine = make_engine("inline", Pipeline([10, 20, 30]), workers=0, prefetch=2)
    assert isinstance(engine, InlineEngine) and engine.capacity == 1
    engine.submit(request(4, 2, 0))
    engine.submit(request(5, 1))
    answer = engine.collect()
    assert (answer.serial, answer.samples) == (4, 2) and answer.batch.tolist() == [30, 10]
    assert answer.seconds["read"] >= 0 and engine.collect().serial == 5
    engine.submit(request(6, 1))
    engine.cancel()
    engine.submit(request(7, 9))
    answer = engine.collect()
    assert answer.serial == 7 and isinstance(answer.error, IndexError)
    engine.close()


def test_an_interrupted_batch_is_still_asked_for():
    engine = make_engine("inline", Pipeline(Interrupted([10, 20])), workers=0, prefetch=2)
    engine.submit(request(0, 0, 1))
    with pytest.raises(KeyboardInterrupt):
        engine.collect()
    assert engine.collect().batch.tolist() == [10, 20]


def test_engines_by_name():
    assert engine_names() == ["inline", "processes", "threads"]
    with pytest.raises(UnknownNameError, match="unknown engine 'procesess'.*mean 'processes'"):
        make_engine("procesess", None, workers=1, prefetch=1)


def test_an_engine_of_somebody_else(monkeypatch):
    from needle.data import DataLoader, engines

    monkeypatch.setattr(engines, "_registered", {})
    made = []

    def make(pipeline, *, workers, prefetch):
        made.append((workers, prefetch))
        return InlineEngine(pipeline)

    register_engine("mine", make)
    with DataLoader([1, 2, 3], 2, engine="mine", num_workers=3, prefetch=4) as loader:
        assert [batch.numpy().tolist() for batch in loader] == [[1, 2], [3]]
    assert made == [(3, 4)]
