"""Test the mapping of names and layouts to PyTorch's, without PyTorch: shapes, values, errors."""

import numpy as np
import pytest

from needle import nn
from needle.errors import CheckpointError
from needle.nn import torch_mapping


def model():
    return nn.Sequential(
        nn.Conv(3, 4, 5), nn.BatchNorm2d(4), nn.Residual(nn.Linear(2, 6)), nn.LayerNorm(6)
    )


SHAPES = {
    "0.weight": (4, 3, 5, 5),
    "0.bias": (4,),
    "1.weight": (4,),
    "1.bias": (4,),
    "1.running_mean": (4,),
    "1.running_var": (4,),
    "1.num_batches_tracked": (),
    "2.fn.weight": (6, 2),
    "2.fn.bias": (6,),
    "3.weight": (6,),
    "3.bias": (6,),
}


def test_names_and_shapes_equal_pytorchs():
    state = torch_mapping.to_torch_state_dict(model())
    assert {name: value.shape for name, value in state.items()} == SHAPES
    assert all(value.flags.c_contiguous for value in state.values())


def test_every_value_is_mapped_to_its_position():
    ours = model()
    rng = np.random.default_rng(0)
    state = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    assert torch_mapping.from_torch_state_dict(ours, state) == ([], [])
    conv, linear = ours[0].weight.numpy(), ours[2].fn.weight.numpy()
    for o, i, y, x in [(0, 0, 0, 0), (3, 2, 1, 4), (1, 0, 4, 2)]:
        assert conv[y, x, i, o] == np.float32(state["0.weight"][o, i, y, x])
    assert linear[1, 5] == np.float32(state["2.fn.weight"][5, 1])
    assert ours[2].fn.bias.shape == (1, 6)
    back = torch_mapping.to_torch_state_dict(ours)
    for name, value in state.items():
        if name != "1.num_batches_tracked":
            np.testing.assert_array_equal(back[name], value.astype("float32"), err_msg=name)


def test_shared_layers_have_all_of_their_names_in_pytorch():
    shared = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    ours = nn.Sequential(shared, nn.Linear(3, 2), shared)
    state = torch_mapping.to_torch_state_dict(ours)
    first, again = (
        {name[2:]: value for name, value in state.items() if name.startswith(at)}
        for at in ("0.", "2.")
    )
    assert first.keys() == again.keys() and first["0.weight"].shape == (3, 2)
    assert "1.num_batches_tracked" in again
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
    assert torch_mapping.from_torch_state_dict(ours, state) == ([], [])
    state["2.0.weight"] = np.zeros((3, 2))
    with pytest.raises(CheckpointError, match="differs"):
        torch_mapping.from_torch_state_dict(ours, state)


def test_a_state_of_another_model_is_refused():
    state = torch_mapping.to_torch_state_dict(model())
    with pytest.raises(CheckpointError, match=r"0\.weight must have 4 axes in PyTorch's layout"):
        torch_mapping.from_torch_state_dict(model(), {**state, "0.weight": np.zeros((4, 3))})
    del state["3.bias"]
    with pytest.raises(CheckpointError, match=r"missing 3\.bias"):
        torch_mapping.from_torch_state_dict(model(), state)
    assert torch_mapping.from_torch_state_dict(model(), state, strict=False) == (["3.bias"], [])
