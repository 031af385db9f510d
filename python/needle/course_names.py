"""The course's module paths and names for objects of needle, such as ``needle.nn.nn_basic``.

A leaf: the packages ``needle``, ``data`` and ``backend_ndarray`` call ``add_to`` if it exists. The
paths are those of the semesters 2023 to 2025; each name refers to the same object as in the real
module.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec

OPS = """
    BroadcastTo Conv Dilate DivScalar EWiseAdd AddScalar EWiseDiv EWiseMul EWisePow Exp Flip Log
    MatMul MulScalar Negate PowerScalar ReLU Reshape Split Stack Summation Tanh Transpose UnDilate
    add add_scalar broadcast_to conv dilate divide divide_scalar exp flip log matmul mul_scalar
    multiply negate power power_scalar relu reshape split stack summation tanh transpose undilate
"""

MODULES: dict[str, tuple[str, str]] = {
    "needle.ops.ops_mathematic": ("needle.ops", OPS),
    "needle.ops.ops_logarithmic": ("needle.ops", "LogSoftmax LogSumExp logsoftmax logsumexp"),
    "needle.ops.ops_tuple": (
        "needle.ops",
        "FusedAddScalars MakeTensorTuple TupleGetItem fused_add_scalars make_tuple tuple_get_item",
    ),
    "needle.nn.nn_basic": (
        "needle.nn",
        "Parameter Module Identity Linear Flatten ReLU Sequential SoftmaxLoss BatchNorm1d "
        "BatchNorm2d LayerNorm1d Dropout Residual",
    ),
    "needle.nn.nn_conv": ("needle.nn", "Conv"),
    "needle.nn.nn_sequence": ("needle.nn", "Sigmoid RNNCell RNN LSTMCell LSTM Embedding"),
    "needle.nn.nn_transformer": (
        "needle.nn",
        "MultiHeadAttention AttentionLayer TransformerLayer Transformer",
    ),
    "needle.init.init_basic": (
        "needle.init",
        "rand randn constant ones zeros randb one_hot zeros_like ones_like",
    ),
    "needle.init.init_initializers": (
        "needle.init",
        "xavier_uniform xavier_normal kaiming_uniform kaiming_normal",
    ),
    "needle.data.data_basic": ("needle.data", "Dataset DataLoader"),
    "needle.data.data_transforms": ("needle.data", "Transform RandomFlipHorizontal RandomCrop"),
    "needle.data.datasets.mnist_dataset": ("needle.data", "MNISTDataset"),
    "needle.data.datasets.cifar10_dataset": ("needle.data", "CIFAR10Dataset"),
    "needle.data.datasets.ndarray_dataset": ("needle.data", "NDArrayDataset"),
    "needle.data.datasets.ptb_dataset": ("needle.data", "Dictionary Corpus batchify get_batch"),
    "needle.backend_ndarray.ndarray_backend_numpy": ("needle.backend_ndarray", "cpu_numpy"),
}
"""The real module of each path, and the names that ``from PATH import *`` gives.

A path's module also has the other public names of the real one as attributes.
"""

BASES = "Op Tensor TensorOp TensorTuple TensorTupleOp Value"

NAMES: dict[str, dict[str, str]] = {
    "needle": {"needle.autograd": BASES},
    "needle.autograd": {"needle.backend_selection": "all_devices cpu default_device"},
    "needle.ops": {
        "needle.autograd": BASES,
        "needle.backend_selection": "BACKEND NDArray array_api",
    },
    "needle.nn": {"needle": "Tensor init ops"},
    "needle.data": {"needle": "Tensor"},
}
"""By package: the names that the course's star imports put there, keyed by their real module."""


def add_to(package: str) -> None:
    """Add the course's names and modules to a loaded package and its loaded subpackages."""
    for place, sources in NAMES.items():
        if _is_loaded(place, package):
            for home, names in sources.items():
                for name in names.split():
                    setattr(sys.modules[place], name, getattr(sys.modules[home], name))
    for path, (home, names) in MODULES.items():
        parent, _, last = path.rpartition(".")
        if _is_loaded(parent, package):
            module = module_from_spec(ModuleSpec(path, None))
            module.__doc__ = f"The course's module of names that are in {home}."
            real = vars(sys.modules[home])
            vars(module).update({n: real[n] for n in real if not n.startswith("_")})
            vars(module)["__all__"] = " ".join([names, *NAMES.get(home, {}).values()]).split()
            sys.modules[path] = module
            for place in {parent, home}:
                setattr(sys.modules[place], last, module)


def _is_loaded(module: str, package: str) -> bool:
    return module in sys.modules and f"{module}.".startswith(f"{package}.")
