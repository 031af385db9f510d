"""Test the notebook's drawings: positions, windows, graphs, timelines."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import needle as ndl
from apps import pictures
from apps.pictures import computation, memory, sliding
from needle import backend_ndarray as nd
from needle.data import DataLoader


def texts(figure: pictures.Picture) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_picture_shows_itself_without_pyplot() -> None:
    shown = pictures.draw_curves({"a": range(100), "b": [1, 2]}, "loss")._repr_png_()
    assert shown.startswith(b"\x89PNG")


def test_a_memory_map_names_the_place_of_every_element() -> None:
    a = nd.array(np.arange(12).reshape(3, 4))
    views = {"a": a, "flipped": a[::-1, 1:3], "column": a[:, 1], "b": a.permute((1, 0))}
    for view in views.values():
        # Values of arange equal their positions.
        np.testing.assert_array_equal(memory.places(view), view.numpy())
    found = texts(pictures.draw_memory(views))
    assert "flipped: shape (3, 2), strides (-4, 1), offset 9" in found
    assert found.count("5") == 5 and found.count("4") == 3  # 4 is in three of five views
    with pytest.raises(ValueError, match="share one buffer"):
        pictures.draw_memory({"a": a, "other": a + 1})
    with pytest.raises(ValueError, match="at most"):
        pictures.draw_memory({"a": nd.array(np.arange(100))})


def test_a_broadcast_shows_the_repeated_places() -> None:
    column, row = nd.array(np.arange(3).reshape(3, 1)), nd.array(np.arange(4))
    left, right = pictures.draw_broadcast(column, row).axes
    assert left.get_title() == "a: shape (3, 4), strides (1, 0)"
    assert [t.get_text() for t in left.texts] == list("000011112222")
    assert [t.get_text() for t in right.texts] == list("0123" * 3)


def test_a_graph_leads_to_the_right_and_no_boxes_overlap() -> None:
    a, b = ndl.ones(2, 3, requires_grad=True), ndl.ones(3, 2, requires_grad=True)
    result = ((a @ b).exp() + (a * a).sum() * b.sum()).sum()
    graph = ndl.draw_graph(result)
    places = computation.layout(graph)
    assert all(places[source][0] < places[target][0] for source, target in graph.edges)
    assert len(set(places.values())) == len(graph.nodes) == len(places)
    found = texts(pictures.draw_computation(result))
    assert "MatMul\n(2, 2)" in found and found.count("Tensor\n(2, 3)") == 1
    assert len(pictures.draw_computation(a).axes) == 1


def test_the_window_slides_as_conv2d_does() -> None:
    rng = np.random.default_rng(0)
    image, kernel = rng.random((5, 6), np.float32), rng.random((3, 2), np.float32)
    result = sliding.convolved(image, kernel)
    by_hand = [[(image[i : i + 3, j : j + 2] * kernel).sum() for j in range(5)] for i in range(3)]
    np.testing.assert_allclose(result, by_hand, rtol=1e-5)
    axes = pictures.draw_sliding(image, kernel, step=6).axes  # step 6 is at row 1, column 1
    assert f"sum {result[1, 1]:.2f}" in axes[1].get_title()
    assert axes[2].get_title() == "the result so far, 7 of 15"
    assert int(np.isfinite(np.ma.filled(axes[2].images[0].get_array(), np.nan)).sum()) == 7
    assert "15 of 15" in pictures.draw_sliding(image, kernel, step=99).axes[2].get_title()


def test_a_timeline_has_a_row_a_worker_and_accounts_for_every_sample() -> None:
    data = pictures.Slow(count=12, seconds=0.002)
    with DataLoader(data, batch_size=3, num_workers=2, engine="threads", seed=0) as loader:
        spans = pictures.recorded(loader, computing=0.005)
    reading = [span for span in spans if span.kind == "reading"]
    assert len(reading) == 12 and {span.who for span in reading} == {"worker 1", "worker 2"}
    assert all(0.001 < span.end - span.start < 1 for span in reading)
    assert sum(span.kind == "computing" for span in spans) == 4
    axes = pictures.draw_timeline(spans, "two").axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["program", "worker 1", "worker 2"]
    assert {t.get_text() for t in axes.get_legend().get_texts()} == {
        "reading",
        "waiting",
        "computing",
    }
    alone = pictures.recorded(DataLoader(data, batch_size=3), computing=0)
    assert {span.who for span in alone} == {"program"}


def test_kernels_stand_at_their_intensity_and_rate() -> None:
    kernel = pictures.Kernel("matmul", operations=2e9, moved=1e8, seconds=0.5)
    assert (kernel.intensity, kernel.rate) == (20, 4)
    limits = {"gflops": 10.0, "gbs large": 1.0, "gbs small": 5.0}
    axes = pictures.draw_roofline(limits, [kernel]).axes[0]
    memory_roof = dict(zip(*axes.lines[0].get_data()))
    assert memory_roof[10] == 10 and max(memory_roof.values()) == 10
    names = {each.name for each in pictures.measured_kernels(ndl.cpu_numpy(), seconds=0)}
    assert {"a + b", "matmul 128", "conv2d 3x3"} <= names


def test_images_are_laid_out_with_their_titles() -> None:
    figure = pictures.draw_images(np.zeros((3, 4, 4)), ["a", "b", "c"], columns=2)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", ""]
    assert len(pictures.draw_images(np.zeros((0, 4, 4))).axes) == 1


def test_outside_a_notebook_a_slider_is_the_picture_at_the_middle() -> None:
    assert pictures.slider(lambda step: step, step=(0, 35)) == 17
