"""Test grading: only answers count, a bad submission stops no other, and no file stays behind."""

import csv
import json
import os
import re
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from apps.course import __main__ as course
from apps.course import grading, registry
from apps.course.blocks import blocks_in, fill
from apps.course.edition import EditionError, put_back, solutions_of, write_edition

ROOT = Path(__file__).resolve().parents[2]
TAGS = ("scalar-add", "scalar-multiply", "scalar-tanh")
FILE = "apps/scalar_autograd.py"


def submission(folder: Path, **answers: str) -> Path:
    """Write the reference file with replaced answers into a student's folder."""
    path = folder / FILE
    path.parent.mkdir(parents=True)
    path.write_text((ROOT / FILE).read_text())
    found = {block.tag for each in blocks_in(folder).values() for block in each}
    given = {tag.replace("_", "-"): [text] for tag, text in answers.items()}
    assert set(given) <= found
    fill(folder, given)
    return folder


def graded(tmp_path: Path, *submissions: Path, **rules: float) -> list[dict[str, str]]:
    out = tmp_path / "grades.csv"
    chosen = registry.select([*TAGS])
    grading.grade(ROOT, submissions, chosen, out, grading.Rules(**rules))  # type: ignore[arg-type]
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_line_for_each_submission_and_one_bad_one_stops_no_other(tmp_path: Path) -> None:
    good = submission(tmp_path / "good")
    wrong = submission(tmp_path / "wrong", scalar_tanh="        return self")
    unparsed = submission(tmp_path / "unparsed", scalar_add="        return (")
    empty = tmp_path / "=empty()"
    empty.mkdir()
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK, but no zip")
    zipped = tmp_path / "zipped.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.write(good / FILE, f"Anna's tree/{FILE}")
        archive.writestr("tests/exercises/test_exercises_scalar.py", "raise SystemExit")
        archive.writestr(f"__MACOSX/Anna's tree/{FILE}", "no text of Python")
    rows = graded(tmp_path, good, wrong, broken, empty, unparsed, zipped, jobs=2)
    assert [row["submission"] for row in rows] == [
        *("good", "wrong", "broken.zip", "'=empty()", "unparsed", "zipped.zip")
    ]
    assert [row["total"] for row in rows] == ["3", "2", "0", "0", "2", "3"]
    assert {row["of"] for row in rows} == {"3"}
    assert [row["scalar-tanh"] for row in rows[:3]] == ["passes", "fails", "not graded"]
    assert (rows[1]["scalar-tanh points"], rows[1]["scalar-add points"]) == ("0", "1")
    assert "BadZipFile" in rows[2]["note"] and "no source file" in rows[3]["note"]
    assert rows[4]["scalar-add"] == "open" and "was never closed" in rows[4]["note"]
    assert rows[0]["note"] == rows[5]["note"] == ""
    assert float(rows[0]["seconds"]) > 0


def test_a_submission_changes_nothing_but_its_answers_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the teacher")
    said = tmp_path / "said.txt"
    daemon = "import time; time.sleep(47.11)"
    answer = f"""
        import json, os, subprocess, sys
        root = os.getcwd()
        with open({str(said)!r}, "w") as file:
            tree = [os.path.isfile(name) for name in ("own.py", "README.md")]
            kept = json.load(open(".course/solutions.json"))
            home = os.path.samefile(os.environ["HOME"], os.environ["TMPDIR"])
            sources = os.path.isfile({str(ROOT / FILE)!r})
            open("/dev/shm/needle-of-a-submission", "w").close()
            json.dump([tree, kept, home, os.environ.get("SECRET"), sources, root], file)
        subprocess.Popen([sys.executable, "-c", {daemon!r}], start_new_session=True)
        os._exit(0)"""
    hostile = submission(tmp_path / "hostile", scalar_tanh=answer.lstrip("\n"))
    (hostile / "own.py").write_text("")
    (row,) = graded(tmp_path, hostile)
    assert (row["scalar-tanh"], row["scalar-add"], row["total"]) == ("fails", "passes", "2")
    tree, kept, home, secret, sources, root = json.loads(said.read_text())
    assert tree == [False, True]
    assert kept == {tag: [] for tag in sorted(TAGS)}
    assert home and secret is None and not Path(root).exists()
    shared = Path("/dev/shm/needle-of-a-submission")
    if grading._isolation():
        assert not sources and not shared.exists()
        time.sleep(0.2)
        processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        assert "47.11" not in processes
    shared.unlink(missing_ok=True)


ATTACKS = {
    "uncover the solutions": f"""
        for what in ({str(ROOT / "apps")!r}, {str(ROOT / "python")!r}, "/proc"):
            for command in ("umount", "umount -l", "mount --move", "unshare -Um umount"):
                call(f"{{command}} {{what}}" + " ." * command.endswith("--move"))
        call("mkdir over; mount --rbind / over; mount --bind {ROOT} over")
        found = call("cat {ROOT / FILE} over{ROOT / FILE} over/{FILE} /proc/1/root{ROOT / FILE}")
        found += call("git -C {ROOT} show HEAD:{FILE}")""",
    "change the next submission's tree": """
        found = []
        for folder, _, names in os.walk(os.path.dirname(os.getcwd())):
            for path in (os.path.join(folder, name) for name in names):
                if path.endswith("/scalar_autograd.py") and not path.startswith(os.getcwd()):
                    found.append(path)
                    open(path, "w").close()""",
    "use the network": """
        try:
            found = socket.create_connection(("127.0.0.1", PORT), 5) and "reached"
        except OSError:
            found = ''""",
    "leave many processes": """
        found = ''
        for _ in range(160):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(47.12)"],
                             start_new_session=True)""",
    "break the report": """
        found = ''
        report = sys.argv[sys.argv.index("--course-report") + 1]
        open(report, "wb").write(bytes(range(256)) * 1000)
        os._exit(0)""",
    "leave by SystemExit": """
        found = ''
        raise SystemExit(0)""",
    "print 200 megabytes": """
        found = ''
        for _ in range(200):
            os.write(1, b"x" * 10**6)""",
}


@pytest.mark.slow
@pytest.mark.skipif(not grading._isolation(), reason="needs user namespaces")
def test_no_attack_reaches_the_solutions_the_network_or_the_next_submission(
    tmp_path: Path,
) -> None:
    begin = """
        import os, socket, subprocess, sys
        def call(command):
            return subprocess.run(command, shell=True, capture_output=True, text=True).stdout"""
    hostile = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for number, (name, attack) in enumerate(ATTACKS.items()):
            said = tmp_path / f"said-{number}"
            tell = f"\n        open({str(said)!r}, 'w').write(str(found or 'nothing'))"
            answer = (begin + attack.replace("PORT", str(port)) + tell).lstrip("\n")
            hostile.append(submission(tmp_path / name, scalar_tanh=answer))
        rows = graded(tmp_path, *hostile, submission(tmp_path / "honest"))
    found = {p.read_text() for p in tmp_path.iterdir() if p.name.startswith("said-")}
    assert found == {"nothing"}
    assert {row["submission"]: row["scalar-tanh"] for row in rows}.pop("honest") == "passes"
    assert [row["total"] for row in rows if row["submission"] in (*[*ATTACKS][:4], "honest")] == [
        *("2", "2", "2", "2", "3")
    ]
    assert all(row["scalar-tanh"] != "passes" for row in rows[:-1])
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert "47.12" not in processes


def test_memory_and_time_are_limited(tmp_path: Path) -> None:
    large = submission(tmp_path / "large", scalar_add="        return bytearray(3 * 2**30)")
    (row,) = graded(tmp_path, large, memory=2)
    assert (row["scalar-add"], row["scalar-tanh"]) == ("fails", "passes")
    (row,) = graded(tmp_path, submission(tmp_path / "any"), minutes=0)
    assert (row["total"], row["scalar-tanh"]) == ("0", "fails")


def test_a_tree_without_solutions_cannot_solve(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write_edition(ROOT, tree, {"hooks"}, with_solutions=False)
    assert solutions_of(tree) == {"hooks": []}
    (block,) = (block for block in blocks_in(ROOT)["hooks"])
    lines = [line for line in block.text.split("\n") if len(line.strip()) > 30]
    found = [p for p in (tree / ".course").iterdir() if any(x in p.read_text() for x in lines)]
    assert lines and found == []
    with pytest.raises(EditionError, match="hooks: this tree has no solutions"):
        put_back(tree, ["hooks"])


@pytest.mark.slow
def test_the_commands_of_the_page_for_teachers_run(tmp_path: Path) -> None:
    page = (ROOT / "docs/teaching.md").read_text("utf-8")
    commands = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    assert commands.count("apps.course") == 2
    (tmp_path / "submissions").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    sources = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "PYTHONPATH": sources}
    graded = commands.replace("~/submissions/*", "~/submissions/*.zip")
    subprocess.run(
        [
            "sh",
            "-ec",
            f"cd {ROOT}\n{graded.replace('python -m apps', f'cd {ROOT}; python -m apps')}",
        ],
        env=environment,
        check=True,
    )
    (row,) = csv.DictReader((tmp_path / "grades.csv").open(newline=""))
    assert (row["submission"], row["total"], row["record"]) == ("anna.zip", "0", "open")


def test_the_command_says_what_cannot_be_graded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "grades.csv")
    assert (
        course.main(["grade", str(tmp_path / "absent"), "--parts", "scalar-add", "--out", out]) == 0
    )
    assert "absent: 0 points" in capsys.readouterr().out
