"""Run exports in onnxruntime, imports in needle, and onnx's own operator tests."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps.models import build_model, find_model
from needle import nn, ops
from needle.errors import ShapeError
from needle.onnx import convert, export, load, save
from needle.onnx.package import OnnxError

onnx = pytest.importorskip("onnx")


def run_elsewhere(proto: Any, x: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"input": x})[0]


def pixels(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def trained_a_little(name: str, channels: int) -> Any:
    """Return a model whose running statistics differ from 0 and 1."""
    np.random.seed(0)
    model = build_model(name, in_channels=channels, device=needle.cpu())
    for _, module in model.named_modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            mean = pixels(module.dim, seed=module.dim) * 0.1
            module.running_mean = needle.Tensor(mean, device=needle.cpu(), requires_grad=False)
            module.running_var = needle.Tensor(
                1.0 + np.abs(mean), device=needle.cpu(), requires_grad=False
            )
    return model.eval()


# ---- whole models --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["lenet5", "resnet9", "resnet20", "resnet18_imagenet", "mlp_resnet", "mobilenet"]
)
def test_exported_models_run_in_onnxruntime_and_come_back(name: str, tmp_path: Path) -> None:
    channels = 1 if name in ("lenet5", "mlp_resnet") else 3
    size = (32, 32) if "imagenet" in name else find_model(name).image_size
    model = trained_a_little(name, channels)
    save(model, tmp_path / "model.onnx", pixels(2, channels, *size))
    x = pixels(5, channels, *size, seed=1)  # a batch size other than the example's
    with needle.no_grad():
        expected = model(needle.Tensor(x, device=needle.cpu())).numpy()
        again = load(tmp_path / "model.onnx", needle.cpu())
        found = again(needle.Tensor(x, device=needle.cpu())).numpy()
    tolerance = {"rtol": 2e-5, "atol": 2e-5 * np.abs(expected).max()}
    np.testing.assert_allclose(found, expected, **tolerance)
    elsewhere = run_elsewhere(onnx.load(tmp_path / "model.onnx"), x)
    np.testing.assert_allclose(elsewhere, expected, **tolerance)


def test_names_of_parameters_survive_and_an_import_can_be_trained() -> None:
    model = build_model("lenet5", device=needle.cpu())
    again = convert(export(model, pixels(1, 1, 32, 32)), needle.cpu())
    names = {f"weights.{name}" for name, _ in model.named_parameters()}
    assert names <= {name for name, _ in again.named_parameters()}
    y = again(needle.Tensor(pixels(3, 1, 32, 32), device=needle.cpu()))
    nn.CrossEntropyLoss()(y, np.arange(3)).backward()
    for name, p in model.named_parameters():
        assert again.weights[name].grad is not None, p


def test_exporting_leaves_the_model_as_it_was() -> None:
    model = build_model("resnet9", device=needle.cpu())
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    export(model, pixels(2, 3, 32, 32))
    assert model.training
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


class Lambda(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(needle.Tensor(pixels(1, 3, 4, 4), device=needle.cpu()))

    def forward(self, x: Any) -> Any:
        return self.function(x + self.weight * 0.0)


def test_swapped_arguments_of_save_are_named(tmp_path: Path) -> None:
    for args in ((str(tmp_path / "m"), nn.Linear(2, 3)), (nn.Linear(2, 3), nn.ReLU())):
        with pytest.raises(TypeError, match=r"a Module, a path .* call save\(model, path, example"):
            save(*args, needle.zeros(1, 2))  # type: ignore[arg-type]


def test_a_shape_is_no_example() -> None:
    with pytest.raises(ShapeError, match=r"got \(1, 3, 32, 32\); pass an input such as"):
        needle.onnx.export(nn.Identity(), (1, 3, 32, 32))


def test_an_output_that_is_left_out_is_told() -> None:
    pool = nn.MaxPool2d(2, return_indices=True)
    with pytest.warns(UserWarning, match="1 of 2 outputs of MaxPool2d do not depend on the input"):
        assert len(export(pool, pixels(2, 3, 4, 4)).graph.output) == 1


def test_a_sequence_names_its_batch_axis() -> None:
    with pytest.raises(OnnxError, match=r"batch_axis=1 for sequences \(T, N"):
        export(nn.RNN(4, 3), pixels(5, 2, 4))
    export(nn.RNN(4, 3), pixels(5, 2, 4), batch_axis=1)


def test_bytes_are_no_path() -> None:
    content = export(nn.Identity(), pixels(2, 3)).SerializeToString()
    with pytest.raises(TypeError, match=r"onnx.load: the path must be .*, got bytes; call convert"):
        load(content)


# ---- refusals ----------------------------------------------------------------------------------


def test_an_op_without_operator_is_named() -> None:
    with pytest.raises(OnnxError, match=r"no ONNX operator for the op Dilate \(with inputs \(2"):
        export(Lambda(lambda x: ops.dilate(x, (3,), 1)), pixels(2, 3, 4, 4))


def test_value_dependent_forward_passes_are_refused() -> None:
    hidden = Lambda(lambda x: x * float(x.numpy().mean()))
    with pytest.raises(OnnxError, match="must be the same for every input and batch size"):
        export(hidden, pixels(2, 3, 4, 4))
    with pytest.raises(OnnxError, match="must be the same for every input and batch size"):
        export(Lambda(lambda x: x / x.shape[0]), pixels(2, 3, 4, 4))
    constant = Lambda(lambda x: needle.Tensor(np.ones((2, 3)), device=needle.cpu()))
    with pytest.raises(OnnxError, match="does not depend on its input"):
        export(constant, pixels(2, 3, 4, 4))


def one_node(kind: str, **attributes: Any) -> Any:
    node = onnx.helper.make_node(kind, ["input"], ["output"], name="the_node", **attributes)
    ends = [onnx.helper.make_tensor_value_info(n, 1, ["N", 3, 4, 4]) for n in ("input", "output")]
    graph = onnx.helper.make_graph([node], "g", [ends[0]], [ends[1]])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_an_operator_that_is_not_known_is_named_with_its_node() -> None:
    with pytest.raises(OnnxError, match=r"operator Tan of node 'the_node' \(inputs input\) is no"):
        convert(one_node("Tan"))
    with pytest.raises(OnnxError, match=r"MaxPool \(node 'the_node'\): kernel_shape must have one"):
        convert(one_node("MaxPool", kernel_shape=[2]))(pixels(1, 3, 4, 4))
    with pytest.raises(OnnxError, match=r"the model takes 1 inputs \(input\), got 2"):
        convert(one_node("Relu"))(1, 2)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(OnnxError, match="cannot read .*No such file"):
        load(path)
    for content in (b"", b"no model"):
        path.write_bytes(content)
        with pytest.raises(
            OnnxError, match=r"m\.onnx: it is not an ONNX file|violates ONNX's rules"
        ):
            load(path)


# ---- onnx's own tests ----------------------------------------------------------------------------


@pytest.mark.slow
def test_onnxs_own_tests_of_operators_pass_or_are_refused() -> None:
    """An operator gives the right result, or is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        from onnx.backend.test.runner import Runner

        passed, wrong = set(), []
        for case in collect_testcases(None):
            try:
                run = convert(case.model)
                for inputs, outputs in case.data_sets:
                    if any(isinstance(each, list) for each in inputs):
                        raise OnnxError("sequences are not supported")
                    with needle.no_grad():
                        found = run(*map(as_array, inputs))
                    results = found if isinstance(found, tuple) else (found,)
                    wanted = list(map(as_array, outputs))
                    arrays = [each.numpy() for each in results]
                    Runner.assert_similar_outputs(wanted, arrays, case.rtol, case.atol)
                passed.add(case.name)
            except OnnxError:
                pass
            except Exception as error:
                wrong.append(f"{case.name}: {error}")
    assert not wrong
    wanted_cases = """add_bcast averagepool_2d_same_upper averagepool_2d_ceil attention_4d_causal
        basic_conv_with_padding batchnorm_epsilon clip concat_2d_axis_1 constantofshape_int_zeros
        conv_with_strides_and_asymmetric_padding convtranspose_autopad_same cumsum_1d_exclusive div
        dropout_default_mask einsum_sum expand_dim_changed flatten_axis2 gather_1 gelu_tanh_1
        gemm_all_attributes gru_with_initial_bias group_normalization_epsilon lrn lstm_defaults
        layer_normalization_4d_axis2 logsoftmax_axis_1 matmul_4d max_example
        maxpool_with_argmax_2d_precomputed_pads mod_int64_fmod nonzero_example onehot_with_axis
        pow_bcast_array prelu_broadcast reduce_prod_keepdims_random reflect_pad
        reshape_reordered_all_dims resize_downsample_scales_cubic scatternd_add shape
        simple_rnn_defaults slice_neg_steps softmax_axis_0 split_variable_parts_2d squeeze
        tile top_k_smallest transpose_all_permutations_4 tril_neg unsqueeze_two_axes where_example
        """
    for name in wanted_cases.split():
        assert any(each.startswith(f"test_{name}") for each in passed), name
    assert len(passed) >= 1000


def as_array(value: Any) -> Any:
    is_proto = isinstance(value, onnx.TensorProto)
    return onnx.numpy_helper.to_array(value) if is_proto else value
