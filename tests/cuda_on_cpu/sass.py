"""The machine code of kernels for sm_90, read from object files without a disassembler.

An instruction of sm_70 and later has 16 bytes; its lowest 12 bits are the opcode.
"""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CUDA, SM_90 = 190, 90
HMMA, HGMMA, BRANCH = 0x23C, 0x9F0, 0x947
ASYNC_COPIES, LOADS = (0xFAE,), (0x381, 0x981)
_WORDS = {4: 4, 5: 8, 6: 16}
"""Bytes moved, indexed by the size field of a load or a copy."""


class Loop(NamedTuple):
    """A kernel's loop with tensor cores.

    It has the number of instructions, the number of tensor core instructions (for a warpgroup, a
    warp's share) and the bytes of the widest copy from global memory.
    """

    kernel: str
    instructions: int
    hmma: int
    widest: int


def loops(path: Path) -> Iterator[Loop]:
    """Yield, for each kernel of an object file that uses tensor cores, the loop around them."""
    data = path.read_bytes()
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        machine, flags = struct.unpack_from("<18xH28xI", data, at)
        if machine == CUDA and flags >> 8 & 0xFF == SM_90:
            for name, text in _sections(data, at):
                code = [int.from_bytes(text[i : i + 16], "little") for i in range(0, len(text), 16)]
                yield from _loop(name.removeprefix(".text."), code)
        at = data.find(b"\x7fELF", at + 4)


def _sections(data: bytes, elf: int) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the code sections."""
    first, count, names = struct.unpack_from("<40xQ12xHH", data, elf)
    rows = [struct.unpack_from("<I20xQQ", data, elf + first + 64 * i) for i in range(count)]
    for name, offset, size in rows:
        begin = elf + rows[names][1] + name
        text = data[begin : data.index(b"\0", begin)].decode()
        if text.startswith(".text."):
            yield text, data[elf + offset : elf + offset + size]


def _loop(kernel: str, code: list[int]) -> Iterator[Loop]:
    """Yield the shortest loop with tensor cores, if there is one."""
    found = []
    for end, word in enumerate(code):
        begin = end + 1 + _distance(word) // 4 if word & 0xFFF == BRANCH else end
        body = code[max(begin, 0) : end + 1]
        if begin < end and any(each & 0xFFF in (HMMA, HGMMA) for each in body):
            found.append(body)
    if found:
        body = min(found, key=len)
        hmma = sum(each & 0xFFF == HMMA for each in body)
        if tile := re.search(r"WarpgroupTileI.*?Li\d+ELi(\d+)E", kernel):
            hmma = sum(each & 0xFFF == HGMMA for each in body) * int(tile[1]) // 8
        yield Loop(kernel, len(body), hmma, max(map(_bytes, body)))


def _distance(branch: int) -> int:
    """Return the distance of a branch from the next instruction, in words of 4 bytes."""
    field = (branch >> 34 & (1 << 48) - 1) << 8 | branch >> 16 & 0xFF
    return field - (1 << 56) if field >> 55 else field


def _bytes(word: int) -> int:
    """Return the bytes that a load or copy from global memory moves, 0 for other instructions."""
    moves = word & 0xFFF in (*ASYNC_COPIES, *LOADS)
    return _WORDS.get(word >> 73 & 7, 0) if moves else 0


# ---- the table in the repository: python -m tests.cuda_on_cpu.resources writes it ----

KEPT = Path(__file__).parent / "loops.csv"
PRECISIONS, LOADED = ("float32", "tf32", "bf16", "fp16"), ("scalar", "MN-major", "K-major")
_TILE = re.compile(r"(Tensor|Swizzled|Warpgroup)TileILNS0_9PrecisionE(\d)E((?:Li\d+E)+)")
WARPGROUPS, STORED = " by warpgroups", " stored"
_LOAD = re.compile(r"(?:4LoadE|S\d+_)(\d)E")
REGISTERS, SHARED, RESERVED = 65536, 227 << 10, 1 << 10
"""Per multiprocessor of sm_90; CUDA itself takes RESERVED bytes of SHARED for each block."""
PROCESSORS, CLOCK = 132, 1.755e9
"""Number of multiprocessors of an H100 SXM, and its clock in Hz."""
TMA_STAGES = 4
"""kTmaStages of src/cuda/sm90/tma_tile.h."""


class Row(NamedTuple):
    """A kernel with tensor cores on sm_90.

    It says how operands are loaded, how many instructions the loop has and how many of them use
    tensor cores, the bytes of its widest copy, the blocks that fit on a multiprocessor, and the
    TFLOP/s that its instructions permit on an H100.
    """

    kernel: str
    precision: str
    tile: str
    operands: str
    instructions: int
    hmma: int
    widest: int
    blocks: int
    ceiling: int


def ceiling(precision: str, instructions: int, hmma: int) -> int:
    """Return a loop's TFLOP/s on an H100 whose schedulers issue an instruction every cycle.

    A multiprocessor issues four instructions per cycle and completes at most one of tensor cores,
    with 16 x 8 x 16 multiply-adds, or 16 x 8 x 8 in TF32.
    """
    flops = 2 * 16 * 8 * (8 if precision == "tf32" else 16)
    return round(PROCESSORS * CLOCK * min(1.0, 4 * hmma / instructions) * flops / 1e12)


def row(kernel: str, loop: Loop, registers: int, shared: int) -> Row:
    """Return the row of a kernel of this name (``kernel`` without its parameters)."""
    found = _TILE.search(loop.kernel)
    assert found is not None, loop.kernel
    name, precision, sizes = found.groups()
    m, n, *others = map(int, re.findall(r"\d+", sizes))
    if name == "Warpgroup":
        k, threads = 32, others[0]
    else:
        k, warp_m, warp_n = others
        threads = (m // warp_m) * (n // warp_n) * 32
    tile = f"{m} x {n} x {k}" + WARPGROUPS * (name == "Warpgroup")
    if kernel.endswith("_tma_kernel"):
        # dynamic, requested at launch, so ptxas does not count it
        shared += TMA_STAGES * (m + n) * k * 2
    fitting = REGISTERS // (-(-registers // 8) * 8 * threads)
    blocks = min(fitting, SHARED // (shared + RESERVED), 2048 // threads)
    by = ", ".join(LOADED[int(each)] for each in _LOAD.findall(loop.kernel[found.end() :]))
    stored = STORED * ("BFloat16" in loop.kernel or kernel.endswith("_tma_kernel"))
    limit = ceiling(PRECISIONS[int(precision)], loop.instructions, loop.hmma)
    return Row(kernel, PRECISIONS[int(precision)] + stored, tile, by, *loop[1:], blocks, limit)


def kept() -> dict[tuple[str, ...], Row]:
    """Return the rows in the repository, by the fields that identify a kernel."""
    with KEPT.open() as lines:
        rows = [Row(*each[:4], *map(int, each[4:])) for each in list(csv.reader(lines))[1:]]
    return {each[:4]: each for each in rows}
