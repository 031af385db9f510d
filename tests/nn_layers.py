"""The layer table: how a layer is made, the shapes of its inputs, and the same layer in PyTorch.

``nn/test_layer_table`` and ``torch_parity/test_torch_layers`` generate the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from needle import nn

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class LayerRow:
    """One layer with its options."""

    case: str
    """The layer's name, and a suffix that distinguishes rows of the same layer."""
    make: Callable[..., Any]
    """Called with ``device`` and ``dtype``; returns the layer."""
    theirs: Callable[[Any], Any]
    """Called with ``torch.nn``; returns the same layer."""
    shapes: tuple[Shape, ...]
    """The shapes of the inputs; each letter is a size that a test draws."""
    empty: bool = True
    """True if the batch, the letter N, may be empty."""
    biased: bool = False
    """True if running_var is the biased variance, unlike PyTorch's."""
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs)
    """Called with either layer and its inputs."""
    tolerance: float = 1e-9
    """The tolerance of float64 compared with PyTorch."""

    def inputs(self, random: np.random.Generator, **given: int) -> list[Any]:
        """Return normally distributed inputs; sizes are drawn from 3 to 7 unless ``given``."""
        drawn = {letter: int(random.integers(3, 8)) for letter in "NCHWTL"} | given
        return [
            random.standard_normal([drawn[s] if isinstance(s, str) else s for s in shape])
            for shape in self.shapes
        ]


def row(
    name: str,
    args: tuple[Any, ...],
    *shapes: Shape,
    case: str = "",
    empty: bool = True,
    biased: bool = False,
    placed: bool = True,
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs),
    tolerance: float = 1e-9,
    **options: Any,
) -> LayerRow:
    """Return the row of a layer that takes the same arguments in both libraries.

    With ``placed``, needle's layer also takes ``device`` and ``dtype``.
    """

    def make(**place: Any) -> Any:
        return getattr(nn, name)(*args, **options, **(place if placed else {}))

    def theirs(torch_nn: Any) -> Any:
        return getattr(torch_nn, name)(*args, **options)

    return LayerRow(
        f"{name}-{case}" if case else name, make, theirs, shapes, empty, biased, call, tolerance
    )


IMAGES: Shape = ("N", 4, "H", "W")
SIGNALS: Shape = ("N", 4, "L")
PLAIN = {"case": "plain", "affine": False}

NORMS = [
    row("BatchNorm1d", (4,), ("N", 4), biased=True),
    row("BatchNorm1d", (4,), SIGNALS, case="NCL", biased=True),
    row("BatchNorm2d", (4,), IMAGES, biased=True),
    row("BatchNorm2d", (4,), IMAGES, eps=0.1, biased=True, **PLAIN),
    row("BatchNorm2d", (4,), IMAGES, case="unbiased", bias=False, biased=True),
    row("BatchNorm2d", (4,), IMAGES, case="average", momentum=None, biased=True),
    row("BatchNorm1d", (4,), ("N", 4), case="untracked", track_running_stats=False, empty=False),
    row("LayerNorm", (5,), ("N", "T", 5)),
    row("LayerNorm", (5,), (5,), case="vector"),
    row("LayerNorm", ((3, 5), 0.1), ("N", "T", 3, 5), case="axes"),
    row("LayerNorm", ([3, 5],), ("N", 3, 5), case="unbiased", bias=False),
    row("LayerNorm", (5,), ("N", 5), case="plain", elementwise_affine=False),
    row("GroupNorm", (2, 4), IMAGES),
    row("GroupNorm", (1, 4, 0.1), ("N", 4), **PLAIN),
    row("GroupNorm", (2, 4), IMAGES, case="unbiased", bias=False),
    row("InstanceNorm1d", (4,), SIGNALS),
    row("InstanceNorm2d", (4,), IMAGES, case="unbiased", affine=True, bias=False),
    row("InstanceNorm1d", (4, 0.1, 0.2, True, True), SIGNALS, case="tracked", empty=False),
    row("InstanceNorm2d", (4,), IMAGES, affine=True),
    row("InstanceNorm2d", (4,), (4, "H", "W"), case="image", affine=True),
    row("RMSNorm", (5,), ("N", "T", 5)),
    row("RMSNorm", ((3, 5), 0.1), ("N", 3, 5), case="axes"),
    row("RMSNorm", (5,), ("N", 5), case="plain", elementwise_affine=False),
]

CONVOLUTIONS = [
    row("Conv2d", (4, 6, 3), IMAGES),
    row("Conv2d", (4, 6, (2, 3)), IMAGES, case="same", padding="same"),
    row("Conv2d", (4, 6, (2, 3)), IMAGES, case="same dilated", padding="same", dilation=(1, 2)),
    row("Conv2d", (4, 6, 4), ("N", 4, 5, 6), case="valid", padding="valid", stride=2, groups=2),
    *[
        row(
            "Conv2d",
            (4, 3, 3),
            IMAGES,
            case=mode,
            padding_mode=mode,
            padding=(2, 1),
            stride=(1, 2),
            bias=False,
        )
        for mode in ("reflect", "replicate", "circular")
    ],
    row("Conv2d", (4, 3, 2), IMAGES, case="same mirrored", padding="same", padding_mode="reflect"),
    row("Conv1d", (4, 6, 3), SIGNALS),
    row("Conv1d", (4, 6, 2, 2, 1, 2, 2), SIGNALS, case="uneven", bias=False),
    row("Conv1d", (4, 6, 4), SIGNALS, case="same", padding="same"),
    row("Conv1d", (4, 6, 3), SIGNALS, case="wrapped", padding=2, padding_mode="circular"),
    row("ConvTranspose2d", (4, 6, 3), IMAGES),
    row("ConvTranspose2d", (4, 6, (2, 3), (2, 3), (0, 1), (1, 2)), IMAGES, case="uneven"),
    row("ConvTranspose2d", (4, 6, 2, 2, 1, 0, 2, False, 2), IMAGES, case="groups"),
    row("ConvTranspose2d", (4, 2, 2, 1, 0, (1, 2)), IMAGES, case="more rows", dilation=3),
    row("ConvTranspose1d", (4, 6, 3, 2, 1, 1), SIGNALS),
    row("ConvTranspose1d", (4, 6, 2, 3, 1, 0, 2, False, 2), SIGNALS, case="groups"),
    row("Upsample", (), IMAGES, scale_factor=2, placed=False),
    row("Upsample", ((9, 4),), IMAGES, case="bilinear", mode="bilinear", placed=False),
    row(
        "Upsample",
        (None, (1.5, 0.5)),
        IMAGES,
        case="cubic",
        mode="bicubic",
        align_corners=True,
        placed=False,
    ),
    row("Upsample", (7, None, "linear", True), SIGNALS, case="linear", placed=False),
]


def with_pair(layer: Any, x: Any, h: Any, c: Any) -> Any:
    return layer(x, (h, c))


SEQUENCES: Shape = ("T", "N", 3)
TWO_WAYS = {"bidirectional": True, "num_layers": 2}

RECURRENT = [
    row("RNNCell", (3, 5), ("N", 3), ("N", 5)),
    row("RNNCell", (3, 5), ("N", 3), case="relu", nonlinearity="relu", bias=False),
    row("LSTMCell", (3, 5), ("N", 3), ("N", 5), ("N", 5), call=with_pair),
    row("GRUCell", (3, 5), ("N", 3), ("N", 5)),
    row("GRUCell", (3, 5), ("N", 3), case="plain", bias=False),
    row("RNN", (3, 5, 3), SEQUENCES, (3, "N", 5)),
    row("RNN", (3, 5), SEQUENCES, case="two ways", nonlinearity="relu", **TWO_WAYS),
    row("LSTM", (3, 5, 2), SEQUENCES, (2, "N", 5), (2, "N", 5), call=with_pair),
    row("LSTM", (3, 5), ("N", "T", 3), case="two ways", batch_first=True, bias=False, **TWO_WAYS),
    row(
        "LSTM",
        (3, 5),
        SEQUENCES,
        (4, "N", 2),
        (4, "N", 5),
        case="projected",
        call=with_pair,
        proj_size=2,
        **TWO_WAYS,
    ),
    row("GRU", (3, 5), SEQUENCES),
    row("GRU", (3, 5), ("N", "T", 3), (4, "N", 5), case="two ways", batch_first=True, **TWO_WAYS),
]

SEEN: Shape = ("T", "N", 6)

ATTENTION = [
    row("MultiheadAttention", (6, 2), SEEN, case="self", call=lambda m, x: m(x, x, x)),
    row("MultiheadAttention", (6, 3), SEEN, ("L", "N", 6), ("L", "N", 6), case="cross"),
    row(
        "MultiheadAttention",
        (6, 2),
        ("N", "T", 6),
        ("N", "L", 4),
        ("N", "L", 5),
        case="sizes",
        kdim=4,
        vdim=5,
        batch_first=True,
        bias=False,
    ),
    row(
        "MultiheadAttention",
        (6, 2),
        ("T", 6),
        case="sequence",
        call=lambda m, x: m(x, x, x, average_attn_weights=False),
    ),
    row(
        "MultiheadAttention",
        (6, 2),
        SEEN,
        ("T", "N", 6),
        case="without weights",
        call=lambda m, q, k: m(q, k, k, need_weights=False),
    ),
    row("TransformerEncoderLayer", (6, 2, 5, 0.0), SEEN, case="post-norm"),
    row(
        "TransformerEncoderLayer",
        (6, 3, 5, 0.0, "gelu", 0.1, True, True, False),
        ("N", "T", 6),
        case="pre-norm",
    ),
    row("TransformerDecoderLayer", (6, 2, 5, 0.0, "gelu"), SEEN, ("L", "N", 6), case="post-norm"),
    row(
        "TransformerDecoderLayer",
        (6, 3, 5, 0.0),
        ("N", "T", 6),
        ("N", "L", 6),
        case="pre-norm",
        batch_first=True,
        norm_first=True,
        bias=False,
    ),
]

ACTIVATIONS = [
    *[
        row(name, (), ("N", "L"), placed=False)
        for name in (
            "ELU GELU Hardswish Hardtanh LeakyReLU LogSigmoid Mish ReLU ReLU6 SELU SiLU Sigmoid "
            " Softplus Softsign Tanh"
        ).split()
    ],
    row("Hardsigmoid", (), ("N", "L"), placed=False, tolerance=1e-7),  # 1/6 is a float32
    row("ELU", (0.3,), IMAGES, case="alpha", placed=False),
    row("GELU", ("tanh",), IMAGES, case="tanh", placed=False),
    row("Hardtanh", (-0.2, 0.7), IMAGES, case="limits", placed=False),
    row("Softplus", (2.0, 0.5), ("N", "L"), case="threshold", placed=False),
    row("PReLU", (), ("N", "L")),
    row("PReLU", (4, 0.1), IMAGES, case="channels"),
    row("Softmax", (1,), SIGNALS, placed=False),
    row("LogSoftmax", (1,), SIGNALS, placed=False),
    row("CELU", (0.5,), IMAGES, placed=False),  # PyTorch holds 1/alpha in float32
    row("Tanhshrink", (), SIGNALS, placed=False),
    row("Softshrink", (0.3,), SIGNALS, placed=False),
    row("Threshold", (0.2, -1.5), SIGNALS, placed=False),
    row("GLU", (), ("N", 4), placed=False),
    row("GLU", (1,), IMAGES, case="channels", placed=False),
]

PIXELS = [
    row("ZeroPad2d", (2,), IMAGES, placed=False),
    row("ZeroPad2d", ((1, -1, 0, 3),), (4, "H", "W"), case="image", placed=False),
    row("ReflectionPad2d", ((2, 1, 0, 2),), IMAGES, placed=False),
    row("ReplicationPad2d", (1,), IMAGES, placed=False),
    row("PixelShuffle", (2,), IMAGES, placed=False),
    row("PixelShuffle", (2,), (2, "N", 8, "H", "W"), case="stacks", placed=False),
    row("PixelUnshuffle", (2,), ("N", 3, 4, 6), placed=False),
    row("Unfold", (3,), IMAGES, placed=False),
    row("Unfold", ((2, 3), (2, 1), (1, 0), (1, 2)), IMAGES, case="uneven", placed=False),
]

POOLS = [
    row("MaxPool2d", (3, 2, 1), IMAGES, case="ceil", ceil_mode=True, placed=False),
    row("MaxPool2d", (2,), IMAGES, case="dilated", dilation=2, stride=1, placed=False),
    row("AvgPool2d", (3, 2, 1), IMAGES, ceil_mode=True, count_include_pad=False, placed=False),
    row("AvgPool2d", (2,), IMAGES, case="divisor", divisor_override=3, placed=False),
    row("AdaptiveAvgPool2d", ((3, None),), IMAGES, placed=False),
    row("AdaptiveMaxPool2d", ((None, 3),), IMAGES, placed=False),
    row("MaxPool1d", (3, 2, 1), SIGNALS, ceil_mode=True, placed=False),
    row("AvgPool1d", (3, 2, 1), SIGNALS, count_include_pad=False, placed=False),
    row("AdaptiveAvgPool1d", (3,), SIGNALS, placed=False),
]

LAYERS = [*ACTIVATIONS, *PIXELS, *POOLS, *NORMS, *CONVOLUTIONS, *RECURRENT, *ATTENTION]
