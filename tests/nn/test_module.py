"""Test Module: contents and their order, modes, moving, saving, copying, repr."""

import copy
import math
import pickle
from collections import UserDict, UserList, deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle.errors import CheckpointError, DTypeError
from tests.nn_devices import DEVICES, close


class Net(nn.Module):
    """A model with modules and Parameters in attributes, lists, dicts, and a shared Parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 3)
        self.blocks = [nn.Linear(3, 3, bias=False), nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())]
        self.extra = {"scale": nn.Parameter(ndl.init.ones(3)), "none": None}
        self.tied = self.head.weight
        self.note = "not a module"

    def forward(self, x):
        return self.blocks[1](self.blocks[0](self.head(x)))


NAMES = [
    "head.weight",
    "head.bias",
    "blocks.0.weight",
    "blocks.1.0.weight",
    "blocks.1.0.bias",
    "blocks.1.0.running_mean",
    "blocks.1.0.running_var",
    "extra.scale",
]


def test_named_modules_and_children():
    net = Net()
    assert [name for name, _ in net.named_modules()] == [
        "",
        "head",
        "blocks.0",
        "blocks.1",
        "blocks.1.0",
        "blocks.1.1",
    ]
    assert net._children() == [module for _, module in net.named_modules()][1:]


@pytest.mark.parametrize(
    "kind",
    [
        *(set, frozenset, deque, UserList),
        lambda items: dict(enumerate(items)).values(),
        lambda items: dict.fromkeys(items).keys(),
        lambda items: UserDict(enumerate(items)),
        lambda items: MappingProxyType(dict(enumerate(items))),
    ],
)
def test_modules_in_other_collections_are_not_found_and_that_is_said(kind: Any):
    model = ndl.nn.Sequential(ndl.nn.Linear(2, 2))
    layers = [ndl.nn.Linear(2, 2)]
    model.more = kind(layers)
    model.numbers = {1, 2}
    found = f"got the {type(model.more).__name__} more; make it one of them"
    with pytest.warns(UserWarning, match=f"modules .* lists, tuples and dicts.*{found}"):
        assert len(model.parameters()) == 2
    model.more = layers
    assert len(model.parameters()) == 4


class ClosedFile(Mapping[str, Any]):
    """A mapping that cannot be read, such as a closed shelf."""

    def __getitem__(self, name: str) -> Any:
        raise ValueError(name)

    __iter__ = __len__ = __getitem__  # type: ignore[assignment]


class ChangingDeque(deque[int]):
    """A deque to which another thread appends during every iteration."""

    def __iter__(self) -> Iterator[int]:
        for item in super().__iter__():
            self.append(item)
            yield item


def test_members_that_may_be_files_or_buffers_are_not_searched(recwarn: pytest.WarningsRecorder):
    model = nn.Linear(2, 2)
    members = [ClosedFile(), ChangingDeque([1, 2]), deque(range(10**6)), map(str, [1]), zip([1])]
    for i, member in enumerate([*members, (item for item in [1, 2])]):
        setattr(model, f"member{i}", member)
    assert len(model.parameters()) == 2 and not recwarn.list
    assert [*model.member5] == [1, 2]


@pytest.mark.parametrize(
    ("value", "remedy"),
    [(3, "write needle.Tensor"), (np.ones(2), "write needle.Tensor"), (None, "self.count = None")],
)
def test_a_buffer_is_a_tensor(value: Any, remedy: str):
    model = nn.Linear(2, 2)
    message = f"Linear.register_buffer: count must be a Tensor, got .*{remedy}"
    with pytest.raises(TypeError, match=message):
        model.register_buffer("count", value)
    assert list(model.state_dict()) == ["weight", "bias"]


def test_train_eval_apply_reach_all_modules():
    net = Net()
    assert net.training
    assert net.eval() is net
    assert not any(module.training for _, module in net.named_modules())
    net.train()
    assert all(module.training for _, module in net.named_modules())
    order = []
    net.apply(lambda module: order.append(type(module).__name__))
    assert sorted(order) == ["BatchNorm1d", "Linear", "Linear", "Net", "ReLU", "Sequential"]
    assert order[-1] == "Net"


def test_a_module_without_super_init_has_a_mode():
    class Bare(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(ndl.init.ones(2))

        def forward(self, x, *, factor=1):
            return x * factor

    module = Bare()
    assert module.training and len(module.parameters()) == 1
    assert module(3, factor=2) == 6
    with pytest.raises(NotImplementedError, match="define forward"):
        nn.Module()(1)


def test_zero_grad_drops_gradients():
    layer = nn.Linear(2, 2)
    layer(ndl.init.ones(3, 2)).sum().backward()
    assert layer.weight.grad is not None
    layer.zero_grad()
    assert layer.weight.grad is None


def test_to_dtype_keeps_objects_and_integers():
    net = Net()
    counter = ndl.Tensor(np.array([1, 2]), dtype="int64", requires_grad=False)
    net.register_buffer("counter", counter)
    weight = net.head.weight
    before = weight.numpy().copy()
    assert net.to("float64") is net
    assert net.head.weight is weight and weight.dtype == "float64"
    assert net.buffers()[0].dtype == "int64"
    close(weight, before)
    assert (
        net(ndl.Tensor(np.ones((4, 2)), dtype="float64", device=weight.device)).dtype == "float64"
    )
    assert net.to(dtype="float32").head.weight.dtype == "float32"


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_to_keeps_parameters_floating(dtype: str):
    layer = nn.Linear(2, 3)
    with pytest.raises(DTypeError, match=f"Module.to: the dtype of parameters .*, got {dtype}"):
        layer.to(dtype=dtype)
    assert layer.weight.dtype == "float32"


@pytest.mark.skipif(len(DEVICES) < 2, reason="only one device here")
def test_to_device_moves_parameters_and_buffers():
    net = Net().to(DEVICES[0])
    assert {str(t.device) for t in [*net.parameters(), *net.buffers()]} == {str(DEVICES[0])}
    values = net.head.weight.numpy().copy()
    net.to(str(DEVICES[1]).removesuffix("()"))
    assert {str(t.device) for t in [*net.parameters(), *net.buffers()]} == {str(DEVICES[1])}
    close(net.head.weight, values, rtol=0, atol=0)


def test_a_state_dict_is_a_snapshot():
    layer = nn.Linear(2, 2)
    state = layer.state_dict()
    before = state["weight"].numpy().copy()
    layer(ndl.init.ones(1, 2)).sum().backward()
    ndl.optim.SGD(layer.parameters(), lr=1.0).step()
    close(state["weight"], before, rtol=0, atol=0)
    assert np.abs(layer.weight.numpy() - before).max() > 0.5
    assert not state["weight"].requires_grad


def test_load_takes_arrays_of_any_kind_and_copies():
    layer = nn.Linear(2, 1)
    weight = np.array([[1.0], [2.0]])
    layer.load_state_dict({"weight": weight, "bias": [[0.5]]})
    weight[:] = 9
    close(layer.weight, [[1], [2]])
    assert layer.weight.dtype == "float32"
    layer.load_state_dict({"weight": layer.weight.realize_cached_data(), "bias": layer.bias})


@pytest.mark.parametrize("value", [1.5, float("nan"), 2.0**40, -1])
def test_numbers_that_a_buffer_cannot_hold_are_refused_and_change_nothing(value):
    layer = nn.Linear(1, 1)
    layer.register_buffer("count", ndl.Tensor([3], dtype="uint8", requires_grad=False))
    state = {**layer.state_dict(), "bias": np.full((1, 1), 9.0), "count": np.array([value])}
    before = layer.bias.numpy().copy()
    with pytest.raises(CheckpointError, match="count has values that uint8 cannot hold"):
        layer.load_state_dict(state)
    np.testing.assert_array_equal(layer.bias.numpy(), before)
    layer.load_state_dict({**state, "count": np.array([4.0])})
    assert layer.count.item() == 4 and layer.bias.item() == 9


def test_a_finite_number_that_would_be_infinite_is_refused_and_changes_nothing():
    layer = nn.Linear(1, 1)
    before = layer.weight.item()
    with pytest.raises(CheckpointError, match="weight has values that float32 cannot hold"):
        layer.load_state_dict({"weight": np.array([[1e300]]), "bias": layer.bias})
    assert layer.weight.item() == before
    layer.load_state_dict({"weight": np.array([[-np.inf]]), "bias": np.array([[np.nan]])})
    assert layer.weight.item() == -math.inf and math.isnan(layer.bias.item())


def test_an_array_of_text_changes_nothing():
    layer = nn.Linear(1, 1)
    before = layer.weight.numpy().copy()
    with pytest.raises(DTypeError):
        layer.load_state_dict({"weight": np.full((1, 1), 9.0), "bias": np.array([["1.5"]])})
    np.testing.assert_array_equal(layer.weight.numpy(), before)


def test_errors_name_every_mismatch_and_change_nothing():
    layer = nn.Linear(2, 3)
    before = layer.weight.numpy().copy()
    state = {"weight": np.zeros((3, 2)), "scale": np.zeros(1)}
    with pytest.raises(CheckpointError) as caught:
        layer.load_state_dict(state)
    message = str(caught.value)
    assert "weight has shape (3, 2), expected (2, 3)" in message
    assert "missing bias" in message and "unexpected scale" in message
    with pytest.raises(CheckpointError, match=r"expected \(2, 3\)"):
        layer.load_state_dict(state, strict=False)
    close(layer.weight, before, rtol=0, atol=0)
    good = {"weight": np.ones((2, 3)), "scale": np.zeros(1)}
    assert layer.load_state_dict(good, strict=False) == (["bias"], ["scale"])
    close(layer.weight, np.ones((2, 3)))


class Tied(nn.Module):
    """A model with a shared weight, a layer under two names, and a module that contains itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.norms = [nn.BatchNorm1d(2)] * 2
        self.first.parent = self.itself = self


ONE, TWO = np.ones((2, 2)), np.full((2, 2), 2.0)
NORM = {"weight": [1, 2], "bias": [3, 4], "running_mean": [5, 6], "running_var": [7, 8]}


@pytest.mark.parametrize("names", [["first"], ["second"], ["first", "second"]])
@pytest.mark.parametrize("places", [[0], [1], [1, 0]])
def test_a_shared_tensor_loads_by_any_of_its_names(names, places):
    model = Tied()
    assert list(model.state_dict()) == ["first.weight", *(f"norms.0.{name}" for name in NORM)]
    state = {f"{name}.weight": TWO for name in names}
    state.update({f"norms.{i}.{name}": value for i in places for name, value in NORM.items()})
    assert model.load_state_dict(state) == ([], [])
    close(model.second.weight, TWO)
    for name, value in NORM.items():
        close(getattr(model.norms[1], name), value)


def test_names_of_a_shared_tensor_that_disagree_change_nothing():
    model = Tied()
    before = model.first.weight.numpy().copy()
    for strict in (True, False):
        with pytest.raises(CheckpointError, match="second.weight differs from another name"):
            state = {**model.state_dict(), "first.weight": ONE, "second.weight": TWO}
            model.load_state_dict(state, strict=strict)
    close(model.first.weight, before, rtol=0, atol=0)
    nan = np.full((2, 2), np.nan)
    assert model.load_state_dict({"first.weight": nan, "second.weight": nan}, strict=False)


@pytest.mark.parametrize("keys", [(1, "1"), ("a.b", "a"), (None, "None")])
def test_two_tensors_of_one_name_are_refused(keys):
    model = nn.Module()
    inner = {"b": nn.Parameter([2.0])} if keys[1] == "a" else nn.Parameter([2.0])
    model.table = {keys[0]: nn.Parameter([1.0]), keys[1]: inner}
    for use in (model.state_dict, model.parameters, lambda: model.load_state_dict({})):
        with pytest.raises(ValueError, match="two named 'table"):
            use()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_copies_are_equal_and_independent(copied, device):
    net = Net().to(device)
    net(ndl.init.ones(3, 2, device=device)).sum().backward()
    twin = copied(net)
    assert list(twin.state_dict()) == NAMES
    assert twin.tied is twin.head.weight and isinstance(twin.tied, nn.Parameter)
    x = ndl.init.randn(4, 2, device=device)
    net.eval(), twin.eval()
    close(twin(x), net(x).numpy(), rtol=0, atol=0)
    net.head.weight.data = ndl.init.zeros(2, 3, device=device)
    assert np.abs(twin.head.weight.numpy()).max() > 0
    assert all(p.requires_grad for p in twin.parameters())


def test_shallow_copy_shares_parameters():
    layer = nn.Linear(2, 2)
    assert copy.copy(layer).weight is layer.weight


def test_repr_is_a_tree_with_parameter_counts():
    model = nn.Sequential(
        nn.Conv(1, 6, 5, stride=2),
        nn.Residual(nn.Sequential(nn.BatchNorm2d(6), nn.ReLU())),
        nn.Flatten(),
        nn.Linear(100, 10, bias=False),
    )
    assert repr(model) == (
        "Sequential(\n"
        "  (0): Conv(1, 6, kernel_size=(5, 5), stride=(2, 2), padding=(2, 2), bias=True)"
        "  # 156 parameters\n"
        "  (1): Residual(\n"
        "    (fn): Sequential(\n"
        "      (0): BatchNorm2d(6, eps=1e-05, momentum=0.1)  # 12 parameters\n"
        "      (1): ReLU()\n"
        "    )  # 12 parameters\n"
        "  )  # 12 parameters\n"
        "  (2): Flatten()\n"
        "  (3): Linear(in_features=100, out_features=10, bias=False)  # 1,000 parameters\n"
        ")  # 1,168 parameters"
    )
    assert repr(nn.Dropout(0.1)) == "Dropout(p=0.1)"
    assert repr(nn.InstanceNorm2d(3, affine=True)).startswith(
        "InstanceNorm2d(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=False)"
    )


def test_sequential_is_a_sequence():
    model = nn.Sequential(nn.ReLU(), nn.Identity(), nn.Tanh())
    assert len(model) == 3 and model[1] is model.modules[1]
    assert [type(m).__name__ for m in model[1:]] == ["Identity", "Tanh"]
    assert isinstance(model.modules, tuple)
