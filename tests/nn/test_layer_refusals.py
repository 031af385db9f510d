"""Test that errors for rejected options and inputs name the layer, the rule and the value."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from needle import init, nn, ops
from needle.errors import ShapeError, UnknownNameError
from needle.nn.arguments import KINDS, OTHERS

zeros = init.zeros
STEPS, QUERY, KEY = zeros(4, 5, 2), zeros(1, 2, 3, 4), zeros(1, 2, 3, 5)

REFUSALS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    *[
        (lambda make=make, given=given: make(given), TypeError, f"{make.__name__}: .*{message}")
        for make in (nn.Sequential, nn.Residual)
        for given, message in (
            (nn.ReLU, r"ReLU is a class; write ReLU\(\)"),
            ([nn.ReLU()], "callable, got .ReLU"),
            (None, "callable, got None"),
            (zeros(2), "callable, got needle.Tensor"),
        )
    ],
    *[
        (
            lambda kind=kind: getattr(nn, kind)(reduction="average"),
            ValueError,
            rf"{kind}: reduction must be 'mean', .*'sum' or 'none', got 'average'",
        )
        for kind in (
            "BCELoss BCEWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss CTCLoss HuberLoss "
            "KLDivLoss L1Loss MSELoss NLLLoss SmoothL1Loss TripletMarginLoss"
        ).split()
    ],
    *[
        (
            lambda make=make, shape=shape: make(3)(zeros(*shape)),
            ShapeError,
            rf"{make.__name__}: training requires more than one value per channel, got shape \(1",
        )
        for make, shape in (
            (nn.BatchNorm1d, (1, 3)),
            (nn.BatchNorm1d, (1, 3, 1)),
            (nn.BatchNorm2d, (1, 3, 1, 1)),
        )
    ],
    (
        lambda: nn.BatchNorm1d(3, track_running_stats=False).eval()(zeros(1, 3)),
        ShapeError,
        "BatchNorm1d: training requires more than one value",
    ),
    (lambda: nn.BatchNorm1d(3)(zeros(2, 4)), ShapeError, r"BatchNorm1d: input must be \(N, C"),
    (lambda: nn.BatchNorm1d(3)(zeros(3)), ShapeError, r"BatchNorm1d: input must be \(N, C"),
    (lambda: nn.BatchNorm2d(3)(zeros(2, 3)), ShapeError, r"BatchNorm2d: input must be \(N, C"),
    (lambda: nn.BatchNorm1d(3)(zeros(0, 3)), ShapeError, "batch_norm: there must be at least one"),
    (lambda: nn.RNNCell(2, 3, nonlinearity="gelu"), UnknownNameError, "RNNCell: nonlinearity must"),
    (lambda: nn.LSTM(2, 3, 0), ShapeError, "LSTM: num_layers must be at least 1, got 0"),
    (lambda: nn.RNN(2, 0), ShapeError, "RNNCell: sizes must be at least 1, got input_size=2"),
    (lambda: nn.RNN(2, 3)(zeros(4, 2)), ShapeError, r"RNN: the input must be \(T, B, input_size\)"),
    (lambda: nn.RNN(2, 3)(zeros(0, 5, 2)), ShapeError, r"RNN: .* at least one step"),
    (lambda: nn.RNN(2, 3)(zeros(4, 5, 3)), ShapeError, r"RNNCell: the last axis must have"),
    (lambda: nn.RNN(2, 3)(STEPS, zeros(5, 3)), ShapeError, r"RNN: a state must have shape"),
    (lambda: nn.LSTM(2, 3)(STEPS, zeros(1, 5, 3)), ShapeError, "LSTM: the state must be a tuple"),
    (lambda: nn.LSTMCell(2, 3)(zeros(5, 2), (zeros(1, 3),) * 2), ShapeError, "LSTMCell: a state"),
    (lambda: nn.RNNCell(2, 3)(STEPS), ShapeError, r"RNNCell: the input must be \(B, input_size\)"),
    (
        lambda: nn.MultiHeadAttention()(QUERY, KEY, QUERY),
        ShapeError,
        "MultiHeadAttention: q, k and",
    ),
    (lambda: nn.MultiHeadAttention()(*[zeros(3, 4)] * 3), ShapeError, "MultiHeadAttention: .*got"),
    (lambda: nn.AttentionLayer(4, 1, 2)(zeros(3, 4)), ShapeError, r"AttentionLayer: .*\(B, T"),
    *[
        (
            lambda shape=shape: nn.Transformer(4, 4, 1, num_head=1, sequence_len=3)(zeros(*shape)),
            ShapeError,
            r"Transformer: the input must be \(T, B, E\) with",
        )
        for shape in ((5, 1, 4), (3, 1, 5), (3, 4))
    ],
    (lambda: nn.Conv2d(1, 2, (3, 0)), ShapeError, "channels and kernel_size must be at least 1"),
    (lambda: nn.Conv(3, 4, 3)(zeros(2, 4, 8, 8)), ShapeError, r"Conv: input must be .* with C=3"),
    (lambda: nn.Conv(3, 4, 3)(zeros(3, 8, 8)), ShapeError, "Conv: input must be"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ShapeError, "groups must divide"),
    (lambda: nn.Conv2d(3, 4, 5)(zeros(1, 3, 4, 4)), ShapeError, "conv2d: the window must fit"),
    (lambda: nn.LayerNorm((2, 3))(zeros(4, 3)), ShapeError, "LayerNorm: the last axes must be"),
    (lambda: nn.LayerNorm(3)(zeros()), ShapeError, r"LayerNorm: the last axis must have dim=3"),
    (lambda: nn.RMSNorm((2, 3))(zeros(3)), ShapeError, r"RMSNorm: the last axes must be \(2, 3\)"),
    (lambda: nn.GroupNorm(2, 3), ShapeError, "GroupNorm: num_groups must divide num_channels, got"),
    (lambda: nn.GroupNorm(0, 3), ShapeError, "GroupNorm: num_groups must divide num_channels"),
    (lambda: nn.GroupNorm(2, 4)(zeros(2, 3)), ShapeError, r"GroupNorm: input must be \(N, C"),
    (lambda: nn.GroupNorm(4, 4)(zeros(1, 4)), ShapeError, "GroupNorm: a group must have more than"),
    (lambda: nn.InstanceNorm2d(3)(zeros(2, 3, 1, 1)), ShapeError, "InstanceNorm2d: a channel"),
    (lambda: nn.InstanceNorm1d(3)(zeros(3)), ShapeError, r"InstanceNorm1d: input must be \(N, C"),
    *[
        (
            lambda make=make, options=options: make(2, 2, 3, **options),
            ShapeError,
            f"{make.__name__}: stride and dilation must be at least 1, got",
        )
        for make in (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
        for options in ({"stride": 0}, {"dilation": 0})
    ],
    (lambda: nn.Conv2d(2, 3, 3, stride=2, padding="same"), ShapeError, "Conv2d: padding='same'"),
    (
        lambda: nn.Conv2d(2, 3, 3, padding="half"),
        UnknownNameError,
        "Conv2d: padding must be an int",
    ),
    (lambda: nn.Conv1d(2, 3, 3, padding_mode="edge"), UnknownNameError, "Conv1d: padding_mode"),
    (
        lambda: nn.Conv2d(2, 3, 3, padding=4, padding_mode="reflect")(zeros(1, 2, 4, 4)),
        ShapeError,
        "pad: mode 'reflect' can add at most 3 elements to an axis of size 4, got widths",
    ),
    (
        lambda: nn.Conv1d(2, 3, (3, 3)),
        ShapeError,
        "Conv1d: kernel_size must be an int or a sequence of one int",
    ),
    (lambda: nn.Conv1d(2, 3, 3)(zeros(1, 2, 4, 4)), ShapeError, r"Conv1d: input must be \(N, C"),
    (lambda: nn.ConvTranspose2d(2, 3, 3, padding="same"), TypeError, "ConvTranspose2d: padding"),
    (lambda: nn.Dropout(0.5, True), TypeError, "Dropout: generator must be a needle.init.Gen"),
    (lambda: ops.pad(zeros(2, 3), 1), ShapeError, "pad: widths must be pairs for every axis, or"),
    (lambda: nn.Linear("2", 3), TypeError, "Linear: in_features must be a whole number, got '2'"),
    (lambda: nn.LSTM(nn.ReLU, 3), TypeError, "LSTM: input_size must be a whole number, got <class"),
    (lambda: nn.RNN(2, [3]), TypeError, "RNN: hidden_size must be a whole number"),
    (lambda: nn.InstanceNorm2d(None), TypeError, "InstanceNorm2d: num_features must be a whole"),
    (lambda: nn.InstanceNorm1d(-1), ShapeError, "InstanceNorm1d: num_features must not be neg"),
    (lambda: nn.Transformer(4, 4, -1), ShapeError, "Transformer: num_layers must not be negative"),
    (lambda: nn.MaxPool2d(2.5), TypeError, "MaxPool2d: kernel_size must be a whole number, or a"),
    (lambda: nn.Conv2d(2, 3, "3"), TypeError, "Conv2d: kernel_size must be a whole number, or a"),
    (lambda: nn.Conv1d(2, 3, 3, padding=-1), ShapeError, "Conv1d: padding must not be negative"),
    (lambda: nn.Conv2d(2, 3, 3, bias="no"), TypeError, "Conv2d: bias must be True or False, got"),
    (lambda: nn.GRU(2, 3, bidirectional=nn.ReLU), TypeError, "GRU: bidirectional must be True or"),
    (lambda: nn.LayerNorm(3, eps="x"), TypeError, "LayerNorm: eps must be a number, got 'x'"),
    (lambda: nn.RMSNorm(3, -1.0), ValueError, r"RMSNorm: eps must be in \[0, inf\], got -1.0"),
    (lambda: nn.BatchNorm1d(3, momentum=2), ValueError, r"BatchNorm1d: momentum must be in \[0, 1"),
    (lambda: nn.LSTM(2, 3, 2, dropout=-0.5), ValueError, r"LSTM: dropout must be in \[0, 1\]"),
    (lambda: nn.Hardtanh("a", "b"), TypeError, "Hardtanh: min_val must be a number, got 'a'"),
    (lambda: nn.MaxPool2d(-2), ShapeError, "MaxPool2d: kernel_size must not be negative, got -2"),
    (lambda: nn.Unfold(2, padding=(0, -1)), ShapeError, "Unfold: padding must not be negative"),
    (lambda: nn.Linear(True, 3), TypeError, r"in_features .*, got True; write int\(...\)"),
    (lambda: nn.Linear(2, 3, bias=2), TypeError, r"bias .*, got 2; write bool\(...\)"),
    (lambda: nn.LayerNorm(3, eps=[]), TypeError, r"eps .*, got \[\]; write float\(...\)"),
    (lambda: nn.Linear(np.ones(1, int), 3), TypeError, "Linear: in_features must be a whole"),
    (lambda: nn.MaxPool2d(np.ones(2)), TypeError, "MaxPool2d: kernel_size must be a whole number"),
    (lambda: nn.ReLU(True), TypeError, "ReLU: too many positional .*; leave out PyTorch's inplace"),
    (lambda: nn.LeakyReLU(0.1, True), TypeError, "LeakyReLU: .*; leave out PyTorch's inplace"),
    (lambda: nn.Softmax("x"), TypeError, "Softmax: dim must be a whole number, got 'x'"),
    (
        lambda: nn.ReLU(zeros(2)),
        TypeError,
        r"ReLU: too many positional arguments; create the layer .* call it: ReLU\(...\)\(x\)",
    ),
    (
        lambda: nn.AttentionLayer(4, 2, 2)(zeros(2, 3, 4), zeros(2, 4)),
        ShapeError,
        r"AttentionLayer: k must be \(B, T, 4\), got shape \(2, 4\)",
    ),
    (
        lambda: nn.ConvTranspose2d(2, 3, 3, output_padding=1)(zeros(1, 2, 4, 4)),
        ShapeError,
        "ConvTranspose2d: output_padding must be at least 0 and less than stride or dilation",
    ),
    (lambda: nn.ConvTranspose1d(2, 3, 3, groups=2), ShapeError, "ConvTranspose1d: groups must"),
    (lambda: nn.LSTM(2, 3, proj_size=3), ShapeError, "LSTM: proj_size must be at least 0 and less"),
    (lambda: nn.GRU(2, 3, 0), ShapeError, "GRU: num_layers must be at least 1, got 0"),
    (lambda: nn.GRU(2, 3, batch_first=True)(zeros(4, 2)), ShapeError, "GRU: the input must be"),
    (
        lambda: nn.GRU(2, 3, bidirectional=True)(zeros(4, 5, 2), zeros(1, 5, 3)),
        ShapeError,
        r"GRU: a state must have shape \(2, 5, 3\), got \(1, 5, 3\)",
    ),
    *[
        (
            lambda lengths=lengths: nn.RNN(2, 3)(zeros(4, 2, 2), lengths=lengths),
            ShapeError,
            "RNN: lengths must be 2 whole numbers from 1 to 4, got",
        )
        for lengths in ([4], [0, 4], [5, 1], [1.5, 2])
    ],
    (lambda: nn.MultiheadAttention(6, 4), ShapeError, "MultiheadAttention: num_heads must divide"),
    (
        lambda: nn.MultiheadAttention(4, 2)(zeros(3, 1, 4), zeros(3, 4), zeros(3, 4)),
        ShapeError,
        "MultiheadAttention: query, key and value must all have 3 axes, or 2",
    ),
    (
        lambda: nn.MultiheadAttention(4, 2)(*[zeros(3, 1, 4)] * 3, key_padding_mask=zeros(3, 1)),
        ShapeError,
        r"MultiheadAttention: key_padding_mask must be .*, of shape \(1, 3\) or \(3,\), got",
    ),
    (
        lambda: nn.MultiheadAttention(4, 2)(*[zeros(3, 1, 4)] * 3, attn_mask=zeros(3, 2)),
        ShapeError,
        r"MultiheadAttention: attn_mask must be .*, of shape \(2, 3, 3\) or \(3, 3\), got",
    ),
    (lambda: nn.PReLU(3)(zeros(2, 4)), ShapeError, "PReLU: the input must have 3 channels on"),
    (
        lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh"),
        UnknownNameError,
        "TransformerEncoderLayer: activation must be one of relu, gelu or a function, got 'tanh'",
    ),
    (
        lambda: nn.TransformerDecoderLayer(4, 2, activation=nn.GELU),
        TypeError,
        r"TransformerDecoderLayer: GELU is a class; write GELU\(\)",
    ),
    (lambda: nn.TransformerEncoderLayer(4, 3), ShapeError, "num_heads must divide embed_dim"),
    (lambda: nn.Hardtanh(1, 0), ValueError, "Hardtanh: min_val must be at most max_val, got 1"),
    (lambda: nn.CELU(0.0), ValueError, "CELU: alpha must be positive, got 0"),
    (lambda: nn.Softshrink(-1), ValueError, "Softshrink: lambd must be at least 0, got -1"),
    (lambda: nn.GLU(1)(zeros(2, 3)), ShapeError, "GLU: the size of axis 1 must be even, got"),
    *[
        (lambda make=make: make((1, 2)), ShapeError, f"{make.__name__}: padding must be an int or")
        for make in (nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d)
    ],
    (lambda: nn.ReflectionPad2d(1)(zeros(4, 4)), ShapeError, "ReflectionPad2d: the input must be"),
    (lambda: nn.PixelShuffle(2)(zeros(1, 6, 2, 2)), ShapeError, "PixelShuffle: .* with C"),
    (lambda: nn.PixelUnshuffle(2)(zeros(1, 4, 3)), ShapeError, "PixelUnshuffle: .* with H and W"),
    (lambda: nn.PixelShuffle(0), ShapeError, "PixelShuffle: the factor must be at least 1, got 0"),
    (lambda: nn.Unfold(3)(zeros(3, 4, 4)), ShapeError, r"Unfold: the input must be \(N, C, H, W\)"),
    (lambda: nn.Unfold(5)(zeros(1, 3, 4, 4)), ShapeError, "Unfold: the window must fit the padded"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS)
def test_a_layer_refuses(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv(3, 4, 5, dilation=(2, 1)), (1, 4, 8, 8)),
        (lambda: nn.Conv(3, 4, np.int64(3)), (1, 4, 8, 8)),
        (lambda: nn.Conv2d(3, 4, np.array([3, 3])), (1, 4, 6, 6)),
        (lambda: nn.MaxPool2d(2, np.array([2, 4])), (1, 3, 4, 2)),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(np.array(192), 3)), (1, 3)),
        (lambda: nn.LayerNorm(np.array([8, 8])), (1, 3, 8, 8)),
        (lambda: nn.LayerNorm(np.int64(8)), (1, 3, 8, 8)),
        (lambda: nn.ZeroPad2d(np.int64(-1)), (1, 3, 6, 6)),
        (lambda: nn.Upsample(np.array([4, 5])), (1, 3, 4, 5)),
        (lambda: nn.Linear(8, 2, bias=None), (1, 3, 8, 2)),  # type: ignore[arg-type]
        (lambda: nn.Linear(8, 2, bias=np.int64(0)), (1, 3, 8, 2)),
    ],
)
def test_arguments_that_stand_for_sizes_and_flags_are_accepted(
    make: Any, shape: tuple[int, ...]
) -> None:
    layer = make()
    assert layer(zeros(1, 3, 8, 8)).shape == shape and repr(layer)
    assert getattr(layer, "bias", None) is None or not isinstance(layer, nn.Linear)


def test_a_pool_of_signals_takes_a_tuple_of_one_size() -> None:
    assert nn.AvgPool1d((2,), (1,))(zeros(1, 3, 8)).shape == (1, 3, 7)  # type: ignore[arg-type]


def test_every_annotation_of_a_layer_is_checked_or_an_exception() -> None:
    unchecked = {"None", "Any", "Device", "Function", "Grid", "Module"}
    layers = [each for each in vars(nn).values() if inspect.isclass(each)]
    for layer in layers:
        if issubclass(layer, nn.Module):
            for name, parameter in inspect.signature(layer).parameters.items():
                kinds = {*str(parameter.annotation).split(" | ")}
                assert kinds <= {*KINDS, *OTHERS, *unchecked}, (layer, name)


def test_a_batch_of_one_is_normalised_in_evaluation() -> None:
    assert nn.BatchNorm1d(3).eval()(zeros(1, 3)).shape == (1, 3)
    assert nn.BatchNorm2d(3)(zeros(1, 3, 1, 2)).shape == (1, 3, 1, 2)
