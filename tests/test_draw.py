"""Test draw_graph: boxes with shapes, arrows, and the released part of a graph."""

import numpy as np
import pytest

import needle as ndl
from needle.errors import DTypeError


def example() -> tuple[ndl.Tensor, ndl.Tensor]:
    a = ndl.Tensor(np.ones((2, 3)), dtype="float32")
    return a, (a * a).exp().sum()


def test_mermaid_and_dot() -> None:
    _, y = example()
    graph = ndl.draw_graph(y)
    assert graph.mermaid.splitlines() == [
        "graph TD",
        '    n0("Tensor<br/>(2, 3)")',
        '    n1["EWiseMul<br/>(2, 3)"]',
        '    n2["Exp<br/>(2, 3)"]',
        f'    n3["Summation<br/>{y.shape}"]',
        "    n0 --> n1",
        "    n0 --> n1",
        "    n1 --> n2",
        "    n2 --> n3",
    ]
    assert '    n2 [shape=box, label="Exp\\n(2, 3)"];' in graph.dot
    assert graph.dot.startswith("digraph needle {") and "    n1 -> n2;" in graph.dot


def test_a_graph_displays_itself_in_a_notebook() -> None:
    graph = ndl.draw_graph(example()[1])
    bundle = graph._repr_mimebundle_()
    assert bundle["text/vnd.mermaid"] == graph.mermaid
    assert bundle["text/markdown"] == f"```mermaid\n{graph.mermaid}```"
    assert "&quot;Exp&lt;br/&gt;(2, 3)&quot;" in bundle["text/html"]


@pytest.mark.parametrize("retain_graph", [None, True])
def test_graphs_after_backward(retain_graph: bool | None) -> None:
    a, y = example()
    before = [node.title for node in ndl.draw_graph(y).nodes]
    y.backward(retain_graph=retain_graph)
    assert [node.title for node in ndl.draw_graph(y).nodes] == before
    titles = [node.title for node in ndl.draw_graph(a.grad).nodes]
    assert "Tensor" in titles and "Exp" in titles


def test_tuples_and_bad_input() -> None:
    a = ndl.Tensor(np.ones((2, 3)), dtype="float32")
    assert '"Split<br/>((2,), (2,), (2,))"' in ndl.draw_graph(ndl.split(a, 1)).mermaid
    assert ndl.draw_graph(a.detach()).nodes[0].title == "constant"
    with pytest.raises(DTypeError, match="draw_graph: the argument must be a Tensor, got list"):
        ndl.draw_graph([a])  # type: ignore[arg-type]
