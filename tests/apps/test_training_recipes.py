"""Test that every recipe builds its model and data, and that errors in a recipe are named."""

from pathlib import Path

import numpy as np
import pytest

import needle
from apps import train as program
from apps.models import find_model
from apps.training.recipes import FOLDER, augmentations, find_recipe, read_recipe, recipe_names
from apps.training.settings import build_optimizer, build_schedule
from apps.training.sources import SOURCES, find_source
from apps.training.step import Gradients
from needle import data, nn
from needle.backend_selection import BACKEND
from needle.errors import DataError, NeedleError, UnknownNameError


@pytest.mark.parametrize("name", recipe_names())
def test_each_recipe_makes_the_parts_of_a_run(name: str) -> None:
    recipe = find_recipe(name)
    settings = program.new_settings({}, recipe)
    assert find_model(settings.model) and find_source(settings.data)
    model = nn.Linear(2, 2)
    optimizer = build_optimizer(settings, model.parameters())
    schedule = build_schedule(settings, optimizer, 10)
    rates = []
    for _ in range(10 * settings.epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    assert max(rates) == pytest.approx(settings.lr) and rates[-1] < settings.lr / 9
    assert (recipe.accuracy is None) == (recipe.source == "")
    assert recipe.accuracy is None or 0.5 < recipe.accuracy < 1.0
    assert name.removesuffix("-short") == f"{settings.model}-{settings.data}"


def test_every_data_set_has_a_recipe() -> None:
    for name, source in SOURCES.items():
        assert find_recipe(source.recipe).options["data"] == name
    wanted = {f"resnet{n}-cifar10" for n in (9, 18, 20, 50)} | {"lenet5-mnist"}
    assert wanted <= set(recipe_names())


def test_the_schedule_of_the_paper() -> None:
    """Test the schedule of He et al. 2016: 0.1, divided by ten after 32 000 and 48 000 steps."""
    settings = program.new_settings({}, find_recipe("resnet20-cifar10"))
    schedule = build_schedule(
        settings, build_optimizer(settings, nn.Linear(2, 2).parameters()), 391
    )
    assert settings.epochs * 391 == pytest.approx(64_000, rel=0.003)
    falls = [s for s in range(1, 64_125) if schedule.rate(s, 0.1) < schedule.rate(s - 1, 0.1) / 2]
    assert falls == pytest.approx([32_000, 48_000], rel=0.003)
    assert schedule.rate(50_000, 0.1) == pytest.approx(0.001)


def test_a_warm_up_rises_to_the_schedule() -> None:
    recipe = find_recipe("resnet50-cifar10")
    settings = program.new_settings({"epochs": 10, "warmup": 2.0}, recipe)
    schedule = build_schedule(settings, build_optimizer(settings, nn.Linear(2, 2).parameters()), 5)
    seen = [schedule.rate(step, 0.1) for step in range(50)]
    assert seen[:11] == pytest.approx([i / 100 for i in range(11)])
    cosine = [0.05 * (1 + np.cos(np.pi * i / 40)) for i in range(40)]
    assert seen[10:] == pytest.approx(cosine)
    with pytest.raises(NeedleError, match="--warmup: must be shorter than the run of 10 epochs"):
        build_schedule(
            program.new_settings({"epochs": 10, "warmup": 10.0}, recipe), schedule.optimizer, 5
        )


def test_what_is_given_goes_before_the_recipe() -> None:
    settings = program.new_settings({"lr": 0.5, "seed": 3}, find_recipe("lenet5-mnist"))
    assert (settings.lr, settings.seed, settings.batch_size) == (0.5, 3, 64)


def test_augmentations_are_transforms_by_name() -> None:
    rows = [{"transform": "RandomCrop", "padding": 2}, {"transform": "Resize", "size": [8, 9]}]
    assert augmentations(rows) == [data.RandomCrop(2), data.Resize((8, 9))]
    with pytest.raises(UnknownNameError, match="unknown transform 'RandomCorp'.*'RandomCrop'"):
        augmentations([{"transform": "RandomCorp"}])
    with pytest.raises(DataError, match="RandomCrop does not accept {'pad': 4}"):
        augmentations([{"transform": "RandomCrop", "pad": 4}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = ", r"own\.toml: not a TOML file"),
        ('model = "lenet5"', r"needs model and data, .*missing \['data'\]"),
        ('model = "lenet5"\ndata = "mnist"\nepoch = 3', r"unknown \['epoch'\]"),
        ('model = "lenet5"\ndata = "mnist"\nepochs = "3"', "epochs must be int, got '3'"),
        ('model = "lenet5"\ndata = "mnist"\nepochs = true', "epochs must be int, got True"),
        ('model = "lenet5"\ndata = "mnist"\n[expected]\nacc = 1', r"unknown \['acc'\]"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        find_recipe(str(path))


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        (FOLDER / "lenet5-digits.toml").read_text().replace("epochs = 10", "epochs = 2")
    )
    assert read_recipe(path).options["epochs"] == 2
    with pytest.raises(UnknownNameError, match="unknown recipe 'lenet-mnist'.*'lenet5-mnist'"):
        find_recipe("lenet-mnist")
    with pytest.raises(DataError, match="there is no file"):
        find_recipe(str(tmp_path / "other.toml"))


@pytest.mark.parametrize("parts", [2, 3, 7, 20])
def test_parts_of_a_batch_add_up_to_its_gradient(parts: int) -> None:
    np.random.seed(0)
    place = {"device": needle.cpu(), "dtype": "float64"}
    model = nn.Sequential(nn.Linear(5, 6, **place), nn.ReLU(), nn.Linear(6, 3, **place))
    x = needle.Tensor(np.random.randn(10, 5), **place, requires_grad=False)
    y = needle.Tensor(np.arange(10) % 3, device=needle.cpu(), dtype="int64")
    loss_function = nn.CrossEntropyLoss(0.1)
    found = []
    for n in (1, parts):
        loss, logits = Gradients(model, loss_function, n)(x, y)
        found.append([loss, logits, *(p.grad.numpy() for p in model.parameters())])
    for whole, pieces in zip(*found, strict=True):
        np.testing.assert_allclose(pieces, whole, rtol=1e-12, atol=1e-15)


@pytest.mark.skipif(BACKEND != "nd", reason="plain NumPy has no kernels to record")
def test_batches_of_a_shape_are_recorded_once_and_replayed_to_the_same_bits() -> None:
    found, place = [], {"device": needle.cpu()}
    for replayed in (True, False):
        np.random.seed(0)
        model = nn.Sequential(nn.Linear(5, 6, **place), nn.BatchNorm1d(6, **place))
        optimizer = needle.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        step = Gradients(model, nn.CrossEntropyLoss())
        if replayed:
            captured = step.passes
        else:
            step.passes = step.passes.function
        for n in (8, 8, 3, 8, 3):
            x = needle.Tensor(np.random.randn(n, 5), **place, requires_grad=False)
            step(x, needle.Tensor(np.arange(n) % 3, **place, dtype="int64"))
            optimizer.step()
        found.append([p.numpy() for p in model.parameters()])
    for ours, eager in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, eager)
    assert (captured.recordings, captured.replays) == (2, 3)
