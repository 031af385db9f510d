"""The rooms of data/: allowed imports, names, types, and the files that a batch passes through.

docs/internals/data.md describes the rooms.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from source_tree import IMPORTS, MODULES, PACKAGE

DATA_ROOMS = (
    "samples",
    "formats",
    "transforms",
    "sampling",
    "datasets",
    "batching",
    "workers",
    "loader",
)
"""The rooms of data/, lowest first."""
TYPED_PARAMETERS = frozenset({"loader", "pipeline", "engine", "epoch", "session"})
MOST_FILES_OF_A_TICKET, MOST_WITH_A_PLAN = 16, 19
"""The files that a worker's first ticket passes through, when it compiles the transforms."""
NOT_YET: tuple[str, ...] = ()
"""Known violations of the tests of data/ below; entries may only be removed."""
DATA_FILES = {
    module: path
    for module, path in MODULES.items()
    if module.startswith(tuple(f"needle.data.{name}." for name in DATA_ROOMS))
    and path.name != "__init__.py"
}


def data_floor(module: str) -> int:
    """Return the floor of a module of data/; files beside the rooms belong to the roof."""
    name = (module.split(".") + [""])[2]
    return DATA_ROOMS.index(name) if name in DATA_ROOMS else len(DATA_ROOMS)


def test_every_folder_of_data_is_a_room() -> None:
    folders = {path.parent.name for path in (PACKAGE / "data").glob("*/__init__.py")}
    assert folders == set(DATA_ROOMS)


def test_data_imports_go_down() -> None:
    upward = {
        f"{found.source} imports {found.target}"
        for found in IMPORTS
        if found.source.startswith("needle.data.")
        and found.target.startswith("needle.data")
        and data_floor(found.target) > data_floor(found.source)
    }
    assert sorted(upward - set(NOT_YET)) == []


def test_no_two_files_of_data_have_one_name() -> None:
    names = Counter(path.stem for path in DATA_FILES.values() if path.stem != "__main__")
    twice = {f"two files named {name}" for name, number in names.items() if number > 1}
    assert sorted(twice - set(NOT_YET)) == []


def test_no_two_classes_of_data_have_one_name() -> None:
    names = Counter(
        node.name
        for path in DATA_FILES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    twice = {f"two classes named {name}" for name, number in names.items() if number > 1}
    assert sorted(twice - set(NOT_YET)) == []


def test_carriers_are_typed_in_data() -> None:
    untyped = {
        f"{module}.{function.name}({argument.arg}: Any)"
        for module, path in DATA_FILES.items()
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for argument in (
            *function.args.posonlyargs,
            *function.args.args,
            *function.args.kwonlyargs,
        )
        if argument.arg in TYPED_PARAMETERS
        and argument.annotation is not None
        and re.search(r"\bAny\b", ast.unparse(argument.annotation))
    }
    assert sorted(untyped - set(NOT_YET)) == []


TICKET_TRACE = """
import json, os, sys
import numpy as np
from needle import data
from needle.data.sampling.epoch_order import EpochTickets
from needle.data.workers.work_queue import WorkQueue
from needle.data.workers.worker import Worker

root = os.path.dirname(data.__file__) + os.sep
files = set()  # those that the ticket under way has crossed
next_ticket, put, prepare = EpochTickets.next, WorkQueue.put, Worker._prepare

def profile(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root):
        files.add(name[len(root):])

def from_order(tickets):
    files.clear()
    sys.setprofile(profile)
    ticket = next_ticket(tickets)
    if ticket is None:
        sys.setprofile(None)
    return ticket

def to_queue(queue, record, entry):
    put(queue, record, entry)
    sys.setprofile(None)
    print(json.dumps(["parent", *files]), file=open(os.environ["TRACE"], "a"))

def in_worker(worker, *arguments):
    files.clear()
    sys.setprofile(profile)
    part = prepare(worker, *arguments)
    sys.setprofile(None)
    print(json.dumps(["worker", *files]), file=open(os.environ["TRACE"], "a"))
    return part

class Traced(data.ImageArrays):
    def __setstate__(self, state):
        self.__dict__.update(state)
        Worker._prepare = in_worker  # unpickled in the worker

EpochTickets.next, WorkQueue.put = from_order, to_queue
images = Traced(np.zeros((64, 8, 8, 3), np.uint8), np.zeros(64, int), layout="HWC", dtype="uint8")
transforms = [data.RandomCrop(2), data.ToFloat()]
with data.DataLoader(images, 16, seed=1, transforms=transforms, num_workers=1) as loader:
    assert sum(1 for batch in loader) == 4
first, last = {}, {}
for line in open(os.environ["TRACE"]):
    side, *crossed = json.loads(line)
    first.setdefault(side, crossed)
    last[side] = crossed
print(json.dumps([sorted({*last["parent"], *side["worker"]}) for side in (first, last)]))
"""


def test_a_ticket_crosses_few_files_of_data(tmp_path: Path) -> None:
    one_thread = dict.fromkeys(
        ("NEEDLE_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
    )
    trace = subprocess.run(
        [sys.executable, "-c", TICKET_TRACE],
        env={
            **os.environ,
            **one_thread,
            "PYTHONPATH": str(PACKAGE.parent),
            "TRACE": str(tmp_path / "crossed"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert trace.returncode == 0, trace.stderr
    with_plan, crossed = json.loads(trace.stdout)
    assert {"sampling/epoch_order.py", "workers/worker.py"} <= set(crossed)
    assert "transforms/base.py" in with_plan and set(crossed) < set(with_plan)
    assert len(crossed) <= MOST_FILES_OF_A_TICKET, "\n".join(crossed)
    assert len(with_plan) <= MOST_WITH_A_PLAN, "\n".join(with_plan)
