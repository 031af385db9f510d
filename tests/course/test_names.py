"""Test the names that course programs import, and the order of positional arguments."""

import inspect
from typing import Any

import pytest

import needle
from needle import data, nn, optim
from needle.backend_selection import BACKEND

EVERYWHERE = """
    BACKEND array_api NDArray Device all_devices cpu default_device Tensor TensorTuple ones
    zeros ones_like zeros_like ops init nn optim data autograd backend_selection""".split()
LAYERS = """
    Parameter Module Identity Flatten ReLU Sequential Residual Linear SoftmaxLoss BatchNorm1d
    BatchNorm2d LayerNorm1d Dropout Conv Sigmoid RNNCell LSTMCell RNN LSTM Embedding
    MultiHeadAttention AttentionLayer TransformerLayer Transformer""".split()
DATA = """
    Dataset DataLoader RandomFlipHorizontal RandomCrop MNISTDataset NDArrayDataset
    CIFAR10Dataset Corpus Dictionary batchify get_batch""".split()
AUTOGRAD = "LAZY_MODE TENSOR_COUNTER NDArray array_api Op Value topo_sort_dfs".split()
POSITIONS: dict[Any, str] = {
    nn.Linear: "in_features out_features bias device dtype",
    nn.Conv: "in_channels out_channels kernel_size stride bias device dtype",
    nn.BatchNorm1d: "dim eps momentum device dtype",
    nn.LayerNorm1d: "dim eps device dtype",
    nn.Dropout: "p",
    nn.RNNCell: "input_size hidden_size bias nonlinearity device dtype",
    nn.LSTMCell: "input_size hidden_size bias device dtype",
    nn.RNN: "input_size hidden_size num_layers bias nonlinearity device dtype",
    nn.LSTM: "input_size hidden_size num_layers bias device dtype",
    nn.Embedding: "num_embeddings embedding_dim device dtype",
    nn.MultiHeadAttention: "dropout causal device dtype",
    nn.AttentionLayer: "q_features num_head dim_head k_features v_features out_features dropout",
    nn.TransformerLayer: "q_features num_head dim_head hidden_size dropout causal device dtype",
    nn.Transformer: "embedding_size hidden_size num_layers num_head dim_head dropout causal",
    optim.SGD: "params lr momentum weight_decay",
    optim.Adam: "params lr beta1 beta2 eps weight_decay",
    data.DataLoader: "dataset batch_size shuffle",
    data.Corpus: "base_dir max_lines",
    data.batchify: "data batch_size device dtype",
    data.get_batch: "batches i bptt device dtype",
}


@pytest.mark.parametrize(
    ("where", "names"),
    [(needle, EVERYWHERE), (needle.autograd, AUTOGRAD), (nn, LAYERS), (data, DATA)],
    ids=lambda x: "",
)
def test_names(where: Any, names: list[str]) -> None:
    assert [name for name in names if not hasattr(where, name)] == []


def test_names_of_the_mode() -> None:
    for name in ("cuda", "cpu_numpy"):
        assert hasattr(needle, name) == (BACKEND == "nd")
        assert hasattr(needle.backend_selection, name) == (BACKEND == "nd")


@pytest.mark.parametrize("called", POSITIONS, ids=lambda called: called.__name__)
def test_arguments(called: Any) -> None:
    expected = POSITIONS[called].split()
    assert list(inspect.signature(called).parameters)[: len(expected)] == expected
