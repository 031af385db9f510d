"""Test the ladders' tables and plots; their C++ programs compare the steps (check)."""

import stat
from pathlib import Path

import pytest

from apps.bench import ladder
from apps.bench.conv_ladder import __main__ as conv_ladder
from apps.bench.gemm_ladder import __main__ as gemm_ladder

PROGRAM = """#!/bin/sh
echo '{"peak": 4e9, "memory": 1e9}'
echo '{"step": "00 naive", "threads": 1, "seconds": 0.002, "intensity": 0.25}'
echo '{"step": "08 threads", "threads": 2, "seconds": 0.00025, "intensity": 2}'
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "ladder"
    file.write_text(PROGRAM)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_rates_and_shares_of_the_peak_of_all_threads(program: Path) -> None:
    limits, rows = ladder.run(program, 100, 2, gemm_ladder.flops(100))
    assert limits == {"peak": 4.0, "memory": 1.0}
    assert ladder.table(rows)[2:] == [
        "| 00 naive | 2 | 1 | 1 | 25% |",
        "| 08 threads | 0.25 | 8 | 8 | 100% |",
    ]


def test_what_the_program_says_is_the_last_word(program: Path) -> None:
    program.write_text("#!/bin/sh\necho 'no ladder on the GPU: no driver' >&2\nexit 1\n")
    with pytest.raises(SystemExit, match="^ladder: no ladder on the GPU: no driver$"):
        ladder.climb("gemm_ladder", ("n", 8, ""), gemm_ladder.flops, ["--program", str(program)])


def test_the_roofline_is_drawn(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "roofline.png"
    given = ["--program", str(program), "--out", str(picture)]
    ladder.climb("conv_ladder", ("channels", 16, "of the images"), conv_ladder.flops, given)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in capsys.readouterr().out
