"""Sources of kernels: .wgsl files, and functions generated from the rows of elementwise.wgsl.

Called by ``required`` and ``optional``; tests compare the rows with those of C++ and validate every
text.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...dtypes import DType

FOLDER = Path(__file__).parent
_ROW = re.compile(r"^// +ROW\((\w+), (\w+), (\w+), (.+)\)$", re.MULTILINE)
_MATH = {"float32": "float32", "int32": "int32", "int64": "int32", "uint8": "uint8", "bool": "bool"}
_COMBINE = {
    "sum": "x + y",
    "prod": "x * y",
    "max": "math_maximum(x, y)",
    "min": "math_minimum(x, y)",
    "any": "x | y",
    "all": "x & y",
}


class Row(NamedTuple):
    """A row of elementwise.wgsl: an operation, its dtypes, its result's dtype, and its formula."""

    name: str
    domain: str
    result: str
    formula: str


@cache
def text(name: str) -> str:
    """Return the source text of a .wgsl file."""
    return (FOLDER / f"{name}.wgsl").read_text(encoding="utf-8")


@cache
def rows() -> dict[str, Row]:
    """Return the elementwise operations by name."""
    found = (Row(*match) for match in _ROW.findall(text("elementwise")))
    return {row.name: row for row in found if row.name != "name"}


def math(dtype: DType) -> str:
    """Return the functions of a dtype: the type T, load, store and math_*."""
    return text(f"scalar_math_{_MATH[dtype.name]}")


@cache
def operation(name: str, dtype: DType) -> str:
    """Return the kernel of a unary or binary operation on a dtype."""
    row = rows()[name]
    result = "store(r)" if row.result == "kSame" else "select(0u, 1u, r)"
    body = f"let x = load(a); let y = load(b); let r = {row.formula}; return {result};"
    return _elementwise(math(dtype), body)


@cache
def conversion(source: DType, target: DType) -> str:
    """Return the kernel of copy from one dtype to another."""
    return _elementwise("", f"return {_converted(source.name, target.name)};")


def _converted(source: str, target: str) -> str:
    """Return the expression that converts word ``a``; out-of-range floats saturate, as in C++."""
    if source == target or (source == "bool" and target != "float32"):
        return "a"
    if target == "bool":
        return "float_to_bool(a)" if source == "float32" else "to_bool(a)"
    if target == "float32":
        signed = source in ("int32", "int64")
        return "bitcast<u32>(f32(bitcast<i32>(a)))" if signed else "bitcast<u32>(f32(a))"
    whole = "bitcast<u32>(float_to_int32(bitcast<f32>(a)))" if source == "float32" else "a"
    return f"{whole} & 255u" if target == "uint8" else whole


@cache
def selection() -> str:
    """Return the kernel of where."""
    return _elementwise("", "return select(c, b, a != 0u);")


@cache
def biased_relu() -> str:
    """Return the kernel of apply_epilogue with a bias and relu, on float32."""
    body = "return store(math_maximum(load(a) + load(b), 0.0));"
    return _elementwise(text("scalar_math_float32"), body)


@cache
def relu_grad() -> str:
    """Return the kernel of relu_grad on float32: a where b > 0, b where it is NaN, else 0."""
    body = "if (math_is_nan(load(b))) { return b; } return select(0u, a, load(b) > 0.0);"
    return _elementwise(text("scalar_math_float32"), body)


def _elementwise(functions: str, body: str) -> str:
    compute = f"fn compute(a: u32, b: u32, c: u32) -> u32 {{ {body} }}\n"
    return "\n".join([functions or text("storage"), compute, text("elementwise")])


@cache
def reduction(name: str, dtype: DType) -> str:
    """Return the kernel of a reduction of a dtype."""
    part = "alias Part = T;\nfn part_of(bits: u32) -> T { return load(bits); }\n"
    part += "fn word_of(x: T) -> u32 { return store(x); }\n"
    combine = f"fn combine(x: T, y: T) -> T {{ return {_COMBINE[name]}; }}\n"
    return "\n".join([math(dtype), part + combine, text("reduce")])


@cache
def positions(reduction: str, dtype: DType) -> str:
    """Return the argmax or argmin kernel for a dtype: the positions of ``max`` or ``min``."""
    combine = f"fn combine(x: T, y: T) -> T {{ return {_COMBINE[reduction]}; }}\n"
    return "\n".join([math(dtype), combine, *map(text, ("threads", "each", "rows", "arg_reduce"))])


@cache
def step(rule: str, moments: int, in_place: bool, count: int) -> str:
    """Return the kernel of an optimiser's rule for ``count`` parameters.

    The bindings of each parameter are p, g, its moments (m and v, or fewer), and out; in place, out
    is p.
    """
    names = ["p", "g", *"mv"[:moments], *([] if in_place else ["out"])]
    head, cases = ["@group(0) @binding(0) var<storage, read> P: array<vec4<i32>>;"], []
    for k in range(count):
        for i, name in enumerate(names, 1 + k * len(names)):
            head.append(f"@group(0) @binding({i}) var<storage, read_write> {name}{k}: array<f32>;")
        old = [f"{name}{k}[b.{axis}]" if name in names else "0.0" for name, axis in ("mx", "vy")]
        out = f"p{k}[a.x]" if in_place else f"out{k}[b.z]"
        store = [f"{old[j]} = r.{'yz'[j]};" for j in range(moments)]
        body = f"let r = stepped(p{k}[a.x], g{k}[a.y], {', '.join(old)}); {out} = r.x;"
        cases.append(f"case {k}: {{ {' '.join([body, *store])} }}")
    choice = "\n".join(["switch (which) {", *cases, "default: {}", "}"])
    function = f"fn step(which: i32, a: vec2<i32>, b: vec3<i32>) {{\n{choice}\n}}\n"
    return "\n".join([*head, text(rule), function, text("step_all")])


@cache
def tiles(dtype: DType, columns: int, *names: str) -> tuple[str, int]:
    """Return the tiled kernel in these files, and its tile width for this many columns."""
    across = 1 if columns <= 16 else 4
    return f"const ACROSS = {across};\n" + kernel(dtype, *names, "tile"), 16 * across


@cache
def kernel(dtype: DType, *names: str) -> str:
    """Return the kernel in these files, together with the functions of a dtype."""
    return "\n".join([math(dtype), *map(text, names)])
