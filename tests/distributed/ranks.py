"""The program that every rank runs in these tests. Its first argument names a case."""

import json
import os
import signal
import sys
import time

import numpy as np

import needle
from needle import data, nn, optim
from needle.distributed import (
    DataParallel,
    communicator,
    gather,
    require_same,
    synchronise_batch_norm,
)
from tests.gpu import place as gpu

GROUP = communicator()


def sums(*_: str) -> None:
    """Call all methods of the communicator with every dtype that needle sends."""
    rank, size = GROUP.rank, GROUP.size
    for dtype in (np.float32, np.float64, np.int64, np.uint8):
        for ordered in (False, True):
            for length in (0, 1, 5, 1000):
                own = (np.arange(length) % 7 + rank).astype(dtype)
                expected = sum((np.arange(length) % 7 + r).astype(dtype) for r in range(size))
                GROUP.all_reduce(own, ordered)
                np.testing.assert_array_equal(own, expected)
    got = np.full(3, rank)
    GROUP.broadcast(got, size - 1)
    assert got.tolist() == [size - 1] * 3
    assert gather(GROUP, {"rank": rank, "text": "é" * rank}) == [
        {"rank": r, "text": "é" * r} for r in range(size)
    ]
    GROUP.barrier()


def small_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 300),
        nn.ReLU(),
        nn.Linear(300, 10),
    )


def train(
    out: str, slices: str = "0", captured: str = "1", samples: str = "22", device: str = "cpu"
) -> None:
    """Run six steps with momentum, clipping and a moving average; rank 0 saves the results."""
    if device == "gpu":
        needle.set_default_device(gpu.first().device)
    np.random.seed(GROUP.rank)  # rank 0's weights are broadcast
    model = small_model()
    parallel = DataParallel(model, GROUP, int(slices) or None, check_every=2)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    average = optim.ExponentialAverage(model, 0.5)
    loss_function = nn.SoftmaxLoss()

    def passes(x, y):
        loss = loss_function(model(x), y)
        loss.backward()
        return loss

    step = needle.capture(passes, state=model) if captured == "1" else passes
    random, totals = np.random.default_rng(0), []
    for _ in range(6):
        images = random.standard_normal((int(samples), 3, 6, 6)).astype(np.float32)
        labels = random.integers(0, 10, len(images))
        for i in parallel.slices:
            x, y = images[i :: parallel.count], labels[i :: parallel.count]
            with parallel.slice(len(y)) as numbers:
                loss = step(needle.Tensor(np.array(x), requires_grad=False), y) if len(y) else None
                numbers.append(float(loss.numpy()) * len(y) if len(y) else 0.0)
        totals.append(parallel.average().tolist())
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        average.update()
    if GROUP.rank == 0:
        arrays = {name: t.numpy() for name, t in model.state_dict().items()}
        averages = {f"average.{k}": v for k, v in average.state_dict()["arrays"].items()}
        np.savez(out, totals=totals, **arrays, **averages)


def synchronised(out: str, captured: str) -> None:
    """Run three float64 steps with statistics over unequal batches; rank 0 saves the results."""
    np.random.seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, dtype="float64"),
        nn.BatchNorm2d(6, dtype="float64"),
        nn.ReLU(),
        nn.Residual(
            nn.Sequential(
                nn.Conv2d(6, 6, 3, padding=1, dtype="float64"),
                nn.BatchNorm2d(6, momentum=None, affine=False, dtype="float64"),
            )
        ),
        nn.Flatten(),
        nn.Linear(6 * 16, 5, dtype="float64"),
        nn.BatchNorm1d(5, dtype="float64"),
    )
    synchronise_batch_norm(model, GROUP)
    parallel = DataParallel(model, GROUP)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()

    def passes(x, y):
        loss = loss_function(model(x), y)
        loss.backward()
        return loss

    step = needle.capture(passes, state=model) if captured == "1" else passes
    random, arrays = np.random.default_rng(0), {}
    for number in range(3):
        images, labels = random.standard_normal((11, 3, 6, 6)), random.integers(0, 5, 11)
        x, y = images[GROUP.rank :: GROUP.size], labels[GROUP.rank :: GROUP.size]
        with parallel.slice(len(y)) as numbers:
            loss = step(needle.Tensor(np.array(x), dtype="float64", requires_grad=False), y)
            numbers.append(float(loss.numpy()) * len(y))
        arrays[f"loss {number}"] = parallel.average()
        optimizer.step()
    if GROUP.rank == 0:
        np.savez(out, **arrays, **{name: t.numpy() for name, t in model.state_dict().items()})


def differ(*_: str) -> None:
    """Change a parameter on one rank; the check must detect the change and name the parameter."""
    model = nn.Linear(3, 2)
    parallel = DataParallel(model, GROUP)
    if GROUP.rank == 1:
        model.bias.data = model.bias.data + 1.0
    parallel.compare()


class Counted(data.Dataset):
    """Sixty samples; each read appends a line to the file that READS names."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        with open(os.environ["READS"], "a") as file:
            file.write(f"{index}\n")
        return np.full(4, index, np.float32), index

    def __len__(self) -> int:
        return 60


def folds(dies: str = "") -> None:
    """Run two epochs of a cross-validation, in which each rank leaves out a part of the samples."""
    fold = [i for i in range(60) if i % GROUP.size != GROUP.rank]
    task = f"fold {GROUP.rank}"
    with data.GlobalDataLoader(Counted(), 7, task=task, indices=fold, seed=GROUP.rank) as loader:
        pids = gather(GROUP, loader.server_status()["pid"])
        if GROUP.rank == 0:
            print(json.dumps(pids), flush=True)
        for _ in range(2):
            seen = []
            for images, indices in loader:
                np.testing.assert_array_equal(images.numpy()[:, 0], indices.numpy())
                seen += indices.numpy().tolist()
                if dies and GROUP.rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            assert sorted(seen) == fold
            GROUP.barrier()


def disagree(*_: str) -> None:
    require_same(GROUP, {"seed": 3 if GROUP.rank == 1 else 0, "data": "digits"})


def other_model(*_: str) -> None:
    DataParallel(nn.Linear(3, 2 + GROUP.rank), GROUP)


def fail(*_: str) -> None:
    if GROUP.rank == 1:
        raise ValueError("the reason")
    GROUP.barrier()


def die(*_: str) -> None:
    if GROUP.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    GROUP.barrier()


def hang(*_: str) -> None:
    if GROUP.rank == 1:
        time.sleep(60)
    GROUP.all_reduce(np.ones(3))


def idle(*_: str) -> None:
    """Print the processor time that a rank takes while it waits for two seconds."""
    if GROUP.rank == 1:
        time.sleep(2)
    before = time.process_time()
    GROUP.barrier()
    if GROUP.rank == 0:
        print(json.dumps(time.process_time() - before))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
