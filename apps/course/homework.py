"""The questions of the public course's homework, and their counterparts here.

``homework`` of an exercise names a question. ``python -m apps.course.homework`` writes the table of
all questions to docs/course.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from .edition import ROOT
from .registry import Exercise, exercises

QUESTIONS = {
    "hw0, question 1": ("a first test, and its submission", "[Exercises](#exercises)"),
    "hw0, question 2": ("loading MNIST", "`parse_mnist` in `apps/simple_ml.py`"),
    "hw0, question 3": ("softmax loss", "`softmax_loss` in `apps/simple_ml.py`"),
    "hw0, question 4": ("SGD for softmax regression", "`nn.Linear`, `optim.SGD`"),
    "hw0, question 5": ("SGD for a two-layer network", "`nn_epoch` in `apps/simple_ml.py`"),
    "hw0, question 6": ("softmax regression in C++", "the kernels of `src/cpu/`"),
    "hw1, question 1": ("the forward computation of ops", "`compute` in `ops/`"),
    "hw1, question 2": ("the gradients of ops", "`gradient` in `ops/`"),
    "hw1, question 3": ("topological sort", "`graph.py`"),
    "hw1, question 4": ("reverse mode differentiation", "`graph.py`, `tensor.py`"),
    "hw1, question 5": ("softmax loss", "`softmax_loss` in `apps/simple_ml.py`"),
    "hw1, question 6": ("SGD for a two-layer network", "`nn_epoch` in `apps/simple_ml.py`"),
    "hw2, question 1": ("initial values", "`init/`"),
    "hw2, question 2": ("layers and losses", "`nn/`"),
    "hw2, question 3": ("optimisers", "`optim/`, `accelerated/optimizer_steps.py`"),
    "hw2, question 4": ("transforms, datasets, the loader", "`data/`"),
    "hw2, question 5": ("an MLP with residual blocks", "`apps/mlp_resnet.py`"),
    "hw3, part 1": ("views: reshape, permute, broadcast, getitem", "`shapes.py`, `ndarray/`"),
    "hw3, part 2": ("compact and setitem in C++", "`src/cpu/copy.cc`"),
    "hw3, part 3": ("elementwise and scalar operations in C++", "`src/cpu/elementwise.cc`"),
    "hw3, part 4": ("reductions in C++", "`src/cpu/reduce.cc`"),
    "hw3, part 5": (
        "matrix multiplication in C++",
        "`src/cpu/matmul.cc`, `apps/bench/gemm_ladder/`",
    ),
    "hw3, part 6": ("compact and setitem in CUDA", "`src/cuda/`"),
    "hw3, part 7": ("elementwise and scalar operations in CUDA", "`src/cuda/`"),
    "hw3, part 8": ("reductions in CUDA", "`src/cuda/`"),
    "hw3, part 9": ("matrix multiplication in CUDA", "`src/cuda/`"),
    "hw4, part 1": ("ops on the NDArray: tanh, stack, split", "`ops/`"),
    "hw4, part 2": ("the CIFAR-10 dataset", "`data/datasets/cifar10.py`"),
    "hw4, part 3": ("convolution and ResNet9", "`ops/convolution.py`, `apps/models/small.py`"),
    "hw4, part 4": ("recurrent networks", "`nn/cells.py`, `nn/recurrent.py`"),
    "hw4, part 5": ("LSTM", "`nn/cells.py`, `nn/recurrent.py`"),
    "hw4, part 6": ("the Penn Treebank dataset", "`data/datasets/ptb.py`"),
    "hw4, part 7": ("a word-level language model", "`apps/models/language.py`"),
    "hw4 extension, part 1": ("attention", "`nn/attention.py`"),
    "hw4 extension, part 2": ("the attention layer", "`nn/attention.py`"),
    "hw4 extension, part 3": ("the Transformer layer", "`nn/transformer.py`"),
    "hw4 extension, part 4": ("the Transformer", "`nn/transformer.py`"),
}
"""For each question its subject and the place here where its answer stands."""

PAGE = ROOT / "docs" / "course.md"
HEAD = "| homework | subject | place | exercises |\n|---|---|---|---|\n"


def counterpart(exercise: Exercise) -> str:
    """Return the sentence that names an exercise's question; "" if it has none."""
    if not exercise.homework:
        return ""
    return f"In the public course: {exercise.homework} ({QUESTIONS[exercise.homework][0]})."


def table(known: Iterable[Exercise]) -> str:
    """Return the table of all questions, in Markdown."""
    tags: dict[str, list[str]] = {question: [] for question in QUESTIONS}
    for exercise in known:
        if exercise.homework:
            tags[exercise.homework].append(f"`{exercise.tag}`")
    rows = [
        f"| {question} | {subject} | {place} | {', '.join(tags[question])} |\n"
        for question, (subject, place) in QUESTIONS.items()
    ]
    return HEAD + "".join(rows)


def with_table(text: str) -> str:
    """Return the text of docs/course.md with the present table."""
    before, _, rest = text.partition(HEAD)
    lines = rest.split("\n")
    end = next(number for number, line in enumerate(lines) if not line.startswith("|"))
    return before + table(exercises().values()) + "\n".join(lines[end:])


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
