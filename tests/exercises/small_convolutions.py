"""Convolution and pooling by their definitions on small cases, with drawings of their windows.

Used by the tests of part 7. Images are (N, H, W, C), weights (KH, KW, C/groups, O).
"""

import itertools
from collections.abc import Callable
from typing import Any

import drawn_windows as drawing
import numpy as np

from needle.accelerated.windows import Windows
from needle.shapes import Geometry

Array = np.ndarray[Any, Any]
Settings = tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]


PLAIN: Settings = ((1, 1), (0, 0), (1, 1), 1)
"""Stride, padding, dilation, groups."""


SMALL: list[tuple[str, tuple[int, ...], tuple[int, ...], Settings]] = [
    ("one image, one channel", (1, 3, 3, 1), (2, 2, 1, 1), PLAIN),
    ("a kernel of 1 x 2", (1, 2, 3, 1), (1, 2, 1, 1), PLAIN),
    ("two channels of x", (1, 2, 3, 2), (2, 2, 2, 1), PLAIN),
    ("two channels of the output", (1, 2, 3, 1), (2, 2, 1, 2), PLAIN),
    ("two images", (2, 2, 3, 1), (2, 2, 1, 1), PLAIN),
    ("stride (2, 1)", (1, 4, 3, 1), (2, 2, 1, 1), ((2, 1), (0, 0), (1, 1), 1)),
    ("padding (0, 1)", (1, 2, 2, 1), (2, 2, 1, 1), ((1, 1), (0, 1), (1, 1), 1)),
    ("dilation (1, 2)", (1, 2, 4, 1), (2, 2, 1, 1), ((1, 1), (0, 0), (1, 2), 1)),
    ("2 groups", (1, 2, 2, 2), (2, 2, 1, 2), ((1, 1), (0, 0), (1, 1), 2)),
    ("stride (2, 1), padding (1, 2)", (2, 5, 6, 4), (3, 2, 4, 6), ((2, 1), (1, 2), (1, 1), 1)),
    ("everything", (2, 5, 6, 4), (3, 2, 2, 6), ((1, 2), (2, 1), (2, 1), 2)),
]
"""Cases: what each adds to the first one, the shapes of x and of the weight, the settings."""


def convolved(
    x: Array, weight: Array, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Return the convolution by its definition: x (N, H, W, C), weight (KH, KW, C/groups, O)."""
    kh, kw, per_group, o = weight.shape
    x = padded(x, padding)
    rows = (x.shape[1] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (x.shape[2] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((len(x), rows, columns, o))
    for p, q, i, j in itertools.product(range(rows), range(columns), range(kh), range(kw)):
        pixel = x[:, p * stride[0] + i * dilation[0], q * stride[1] + j * dilation[1]]
        for g in range(groups):
            of = slice(g * o // groups, (g + 1) * o // groups)
            out[:, p, q, of] += pixel[:, g * per_group : (g + 1) * per_group] @ weight[i, j, :, of]
    return out


def padded(x: Array, padding: tuple[int, int], value: float = 0.0) -> Array:
    return np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)), constant_values=value)


def counted(shape: tuple[int, ...]) -> Array:
    """Return 1, 2, 3, ... in this shape; in large ones the numbers restart after 9."""
    count = np.arange(float(np.prod(shape)))
    return (count % 9 + 1 if count.size > 36 else count + 1).reshape(shape)


def settings_of(what: str, settings: Settings) -> dict[str, Any]:
    """Return the settings that a case shows: those that differ from the defaults."""
    names = ("stride", "padding", "dilation", "groups")
    other = {n: s for n, s, plain in zip(names, settings, PLAIN) if s != plain}
    return {"case": what, **other}


Reads = tuple[int, int, int, int]
"""An output (p, q) and a tap (i, j)."""


def reads(shape: tuple[int, ...], kernel: tuple[int, ...], settings: Settings) -> dict[Reads, Any]:
    """Return, for each output and tap, the pixel of the padded image that is read."""
    stride, _, dilation, _ = settings
    windows = Windows("conv2d", shape[1:3], kernel[:2], Geometry(*settings))  # type: ignore[arg-type]
    every = itertools.product(*map(range, (*windows.out, *kernel[:2])))
    return {
        (p, q, i, j): (p * stride[0] + i * dilation[0], q * stride[1] + j * dilation[1])
        for p, q, i, j in every
    }


def draw_output(x: Array, weight: Array, settings: Settings) -> Callable[[tuple[int, ...]], str]:
    """Return a function that draws an output element: its window next to the weights."""
    image, group = padded(x, settings[1]), weight.shape[2]
    where = reads(x.shape, weight.shape, settings)

    def drawn(index: tuple[int, ...]) -> str:
        n, p, q, o = index
        first = o // (weight.shape[3] // settings[3]) * group
        taps = {(i, j): place for (r, s, i, j), place in where.items() if (r, s) == (p, q)}
        planes, pairs = [], []
        for c in range(group):
            pixels = image[n, :, :, first + c]
            planes.append(
                drawing.beside(
                    (
                        f"x[{n}, :, :, {first + c}]",
                        drawing.plane(pixels, taps.values(), settings[1]),
                    ),
                    (f"weight[:, :, {c}, {o}]", drawing.plane(weight[:, :, c, o])),
                )
            )
            pairs += [(pixels[place], weight[(*tap, c, o)]) for tap, place in taps.items()]
        return shortened(planes, pairs)

    return drawn


def shortened(planes: list[str], pairs: list[tuple[Any, Any]]) -> str:
    """Return at most two planes and the sum of the products."""
    if len(planes) > 2 or len(pairs) > 12:
        return planes[0] + f"\nand {len(pairs)} products in all"
    return "\n".join([*planes, drawing.written_out(pairs)])


def rows_of(x: Array, kernel: tuple[int, ...], settings: Settings) -> Array:
    """Return the windows by their definition: (groups, N, OH, OW, KH, KW, C/groups)."""
    image, groups, where = padded(x, settings[1]), settings[3], reads(x.shape, kernel, settings)
    sizes = tuple(size + 1 for size in max(where))
    found = np.empty((len(x), *sizes, x.shape[3]))
    for place, (r, c) in where.items():
        found[(slice(None), *place)] = image[:, r, c]
    return np.moveaxis(found.reshape(*found.shape[:5], groups, -1), 5, 0)


def mistaken(x: Array, weight: Array, settings: Settings) -> dict[str, Array]:
    """Return the results of convolutions with common mistakes, by the mistake."""
    stride, _, dilation, groups = settings
    found = {
        "the kernel is not flipped in this convolution": (x, weight[::-1, ::-1], *settings),
        "the stride is not used": (x, weight, (1, 1), *settings[1:]),
        "the padding is not used": (x, weight, stride, (0, 0), dilation, groups),
    }
    if weight.shape[0] == weight.shape[1]:
        turned = weight.transpose(1, 0, 2, 3)
        found["rows and columns of the kernel are exchanged"] = (x, turned, *settings)
    fits = ((key, convolved(*each)) for key, each in found.items() if _fits(x, weight, each[2:]))
    return dict(fits)


def _fits(x: Array, weight: Array, settings: Any) -> bool:
    """Return True if at least one window fits."""
    sizes = zip(x.shape[1:3], weight.shape, settings[1], settings[2])
    return all(size + 2 * p > d * (kernel - 1) for size, kernel, p, d in sizes)


def adjoint(
    grad: Array, x: Array, weight: Array, settings: Any, of_weight: bool, function: Any = convolved
) -> Array:
    """Return the gradients of sum(grad * function(x, weight)), which is linear in both."""
    point = weight if of_weight else x
    found = np.zeros_like(point)
    for place in np.ndindex(*point.shape):
        unit = np.zeros_like(point)
        unit[place] = 1.0
        pair = (x, unit) if of_weight else (unit, weight)
        found[place] = (grad * function(*pair, *settings)).sum()
    return found


def draw_weight_grad(grad: Array, x: Array, kernel: tuple[int, ...], settings: Settings) -> Any:
    """Return a function that draws a weight's gradient: the pixels it meets, next to grad."""
    image, where = padded(x, settings[1]), reads(x.shape, kernel, settings)

    def drawn(index: tuple[int, ...]) -> str:
        i, j, c, o = index
        c += o // (kernel[3] // settings[3]) * kernel[2]
        met = {(p, q): place for (p, q, *tap), place in where.items() if tap == [i, j]}
        planes, pairs = [], []
        for n in range(len(x)):
            pixels, gains = image[n, :, :, c], grad[n, :, :, o]
            planes.append(
                drawing.beside(
                    (f"x[{n}, :, :, {c}]", drawing.plane(pixels, met.values(), settings[1])),
                    (f"grad[{n}, :, :, {o}]", drawing.plane(gains)),
                )
            )
            pairs += [(pixels[place], gains[window]) for window, place in met.items()]
        return shortened(planes, pairs)

    return drawn


def draw_input_grad(grad: Array, weight: Array, shape: tuple[int, ...], settings: Settings) -> Any:
    """Return a function that draws a pixel's gradient: the outputs that read it, and weights."""
    where, groups = reads(shape, weight.shape, settings), settings[3]

    def drawn(index: tuple[int, ...]) -> str:
        n, row, column, c = index
        pixel = row + settings[1][0], column + settings[1][1]
        by = [key for key, place in where.items() if place == pixel]
        group, inner = divmod(c, weight.shape[2])
        planes, pairs = [], []
        for o in range(weight.shape[3] // groups):
            o += group * (weight.shape[3] // groups)
            gains, taps = grad[n, :, :, o], weight[:, :, inner, o]
            planes.append(
                drawing.beside(
                    (f"grad[{n}, :, :, {o}]", drawing.plane(gains, [key[:2] for key in by])),
                    (f"weight[:, :, {inner}, {o}]", drawing.plane(taps, [key[2:] for key in by])),
                )
            )
            pairs += [(gains[key[:2]], taps[key[2:]]) for key in by]
        return f"pixel ({row}, {column}) is read by {len(by)} outputs\n" + (
            shortened(planes, pairs) if by else "its gradient is 0"
        )

    return drawn


def unordered(grad: Array, weight: Array, shape: Any, settings: Settings) -> Array:
    """Return the gradient of x if rows are reshaped to (taps, N, OH, OW, C) without a transpose."""
    groups, sizes = settings[3], (*grad.shape[:3], shape[3])
    gains = grad.reshape(*grad.shape[:3], groups, -1)
    taps = weight.reshape(-1, weight.shape[2], groups, gains.shape[4])
    parts = np.einsum("npqgo,tcgo->gnpqtc", gains, taps).reshape(len(taps), *sizes)
    found = np.zeros_like(padded(np.zeros(shape), settings[1]))
    for (p, q, i, j), (r, c) in reads(shape, weight.shape, settings).items():
        found[:, r, c] += parts[i * weight.shape[1] + j, :, p, q]
    (ph, pw), (_, height, width, _) = settings[1], shape
    return found[:, ph : ph + height, pw : pw + width]


def last_tap(x: Array, weight: Array, *settings: Any) -> Array:
    """Return the wrong convolution in which only the last tap reads each pixel."""
    where = reads(x.shape, weight.shape, settings)  # type: ignore[arg-type]
    last = {place: key[2:] for key, place in sorted(where.items(), key=lambda item: item[0][2:])}
    out = np.zeros_like(convolved(x, weight, *settings))
    for tap in set(last.values()):
        own = np.zeros_like(weight)
        own[tap] = weight[tap]
        seen = padded(x, settings[1])
        for place, by in last.items():
            if by != tap:
                seen[:, place[0], place[1]] = 0
        out += convolved(seen, own, settings[0], (0, 0), *settings[2:])
    return out


POOLS: list[tuple[str, tuple[int, ...], Any, Any, Any]] = [
    ("one image, one channel", (1, 2, 4, 1), (2, 2), (2, 2), (0, 0)),
    ("windows that overlap", (1, 2, 3, 1), (2, 2), (1, 1), (0, 0)),
    ("kernel (2, 3), stride (2, 1)", (1, 4, 4, 1), (2, 3), (2, 1), (0, 0)),
    ("padding, and all pixels below 0", (1, 2, 2, 1), (2, 2), (2, 2), (1, 1)),
    ("two channels and two images", (2, 2, 4, 2), (2, 2), (2, 2), (0, 0)),
    ("everything", (2, 5, 5, 2), (2, 3), (2, 1), (1, 1)),
]
"""Cases: what each adds to the first one, the shape of x, kernel, stride, padding."""


def draw_pooled(x: Array, where: dict[Reads, Any], padding: tuple[int, int]) -> Any:
    """Return a drawing of an element of a pooled image: its window."""
    image = padded(x, padding)

    def drawn(index: tuple[int, ...]) -> str:
        n, p, q, c = index
        marked = [place for key, place in where.items() if key[:2] == (p, q)]
        lines = drawing.plane(image[n, :, :, c], marked, padding)
        return drawing.beside((f"x[{n}, :, :, {c}], dots are padding", lines))

    return drawn
