# %% [markdown]
# # A first walk through needle
#
# This notebook goes from a tensor to a trained network, in the order of the course, and shows how
# each part works inside. You need some Python and the chain rule. Run the cells from top to bottom;
# all of them take a minute or two. Every picture is drawn from values that were just computed.
#
# The next cell takes needle from the folder that this notebook lies in, built or not, and says how
# much of it is open. In a hosted notebook, run `!git clone` with the address of needle's repository
# and `%cd` into its folder first.

# %%
import sys
from pathlib import Path

here = Path.cwd()
sys.path[:0] = [str(folder) for folder in (here, *here.parents) if (folder / "apps").is_dir()]
from apps.course.tree import use_tree

use_tree()

# %% [markdown]
# `watch` does two things. It reloads modules that you have edited before the next cell runs, and
# existing objects stay instances of their classes. It also warns about a variable that keeps a
# growing part of the graph alive.
#
# Each chapter lists its exercises. `python -m apps.course student DIR` writes a tree in which they
# are open, with a notebook for each part in which you answer them. There this notebook shows your
# progress, and a cell that needs an open exercise names it.

# %%
import numpy as np

import needle as ndl
from apps import pictures
from apps.notebook import exercises, kernels_of, own_arrays, start, watch
from examples.ring_all_reduce import in_threads
from needle import nn
from needle.testing import check_gradients, conformance

start()
watch("needle", "apps")
device = ndl.default_device()  # needle's C++ kernels if they are built, else NumPy

# %% [markdown]
# ## 1 Tensors and gradients
#
# A `Tensor` is an array that records how it was computed. It lies on a device, and both operands
# of an operation must be on the same device; therefore this notebook passes `device=device`.
#
# Part 0 of the exercises writes the same for single numbers: 60 lines that train a small network.

# %% tags=["remove-input"]
exercises(
    "scalar-add",
    "scalar-multiply",
    "scalar-tanh",
    "scalar-order",
    "scalar-backward",
    "scalar-network",
    "scalar-step",
)

# %%
x = ndl.Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
y = ndl.exp(x / 10) @ x.transpose()
print(y)
print(y.shape, y.dtype, y.device)

# %% tags=["remove-input"]
exercises("record")

# %% [markdown]
# NumPy uses float64 by default, needle float32. A Tensor with an explicit dtype of float64 makes
# all results that depend on it float64, at half the speed: check `dtype` when a program is slower
# than expected.

# %%
host = np.linspace(0, 1, 3)  # float64
print(ndl.Tensor(host).dtype, ndl.Tensor(host, dtype="float64").dtype)
print((x * ndl.Tensor(host, dtype="float64", device=device)).dtype, "after one float64 operand")

# %% [markdown]
# How does the error f(w) = Σᵢ (xᵢ · w − tᵢ)² change with w? The chain rule gives
# ∇f = 2 Xᵀ(Xw − t), which is one line of NumPy. needle computes the same from `f` alone:
# `f.backward()` follows the recorded operations backwards and stores each gradient in `.grad`.

# %%
rng = np.random.default_rng(0)
X = rng.standard_normal((5, 3)).astype("float32")
t = rng.standard_normal((5, 1)).astype("float32")
w = rng.standard_normal((3, 1)).astype("float32")

by_hand = 2 * X.T @ (X @ w - t)

W = ndl.Tensor(w, device=device)
error = ndl.Tensor(X, device=device) @ W - ndl.Tensor(t, device=device)
f = (error**2).sum()
f.backward()

print(np.hstack([by_hand, W.grad.numpy()]))
assert np.allclose(by_hand, W.grad.numpy(), rtol=1e-4)

# %% [markdown]
# This is the graph that `backward` followed, from right to left. Rounded boxes are tensors that
# the program created, the others are ops. Each op only knows its own gradient; the chain rule
# combines them.

# %%
pictures.draw_computation(f)

# %% tags=["remove-input"]
exercises(
    "topo-sort", "pass-on", "reverse-pass", "backward", "hooks", "gradients-of", "grad-function"
)

# %% [markdown]
# ### A forgotten detach
#
# `total = total + loss` looks harmless, but `total` is a Tensor, so it keeps the graph of every
# step in memory. `watch` warns about this below the cell and names the line. The program should add
# a number instead: `loss.item()`.

# %%
total, sum_of_losses = ndl.Tensor(0.0, device=device), 0.0
for _ in range(20):
    loss = ((ndl.Tensor(X, device=device) @ W) ** 2).sum()
    loss.backward()
    total = total + loss
    sum_of_losses += loss.item()

# %% tags=["remove-input"]
exercises("no-grad")

# %% [markdown]
# ## 2 Writing an op
#
# An op defines two things: what it computes from arrays, and how the gradient of its result is
# converted to the gradients of its inputs. The example is silu(a) = a σ(a), with
# silu′(a) = σ(a) + a σ(a) (1 − σ(a)).
#
# `check_gradients` compares a gradient with finite differences along a random direction. This op
# passes, also for second derivatives, which need no further code because `gradient` consists of
# ops. The second class omits a term, to show the error.

# %%
from needle.array_namespace import array_api as xp  # needle's functions on arrays


class SiLU(ndl.autograd.TensorOp):
    def compute(self, a):  # arrays in, an array out
        return a / (1 + xp.exp(-a))

    def gradient(self, out_grad, node):  # Tensors in, Tensors out
        a = node.inputs[0]
        s = a.sigmoid()
        return out_grad * (s + a * s * (1 - s))


class Forgetful(SiLU):
    def gradient(self, out_grad, node):
        return out_grad * node.inputs[0].sigmoid()


points = np.linspace(-3, 3, 12).reshape(3, 4)
check_gradients(lambda a: SiLU()(a), points, order=2)
try:
    check_gradients(lambda a: Forgetful()(a), points)
except AssertionError as complaint:
    print(complaint)

# %% tags=["remove-input"]
exercises(
    "unbroadcast",
    "multiply-grad",
    "divide-grad",
    "power-grad",
    "curve-grads",
    "relu-grad",
    "sum-grad",
    "max-grad",
    "matmul-grad",
    "permute-grad",
    "stack-grad",
    "dilate",
    "softmax",
    "softmax-grad",
    "logsumexp",
    "cross-entropy",
    "replay",
)

# %% [markdown]
# ## 3 Layers, initialisation, optimisers
#
# A module is a plain object: its attributes are parameters and other modules, and its `forward`
# computes the result. This is a linear layer from scratch; with the same weights, `nn.Linear`
# returns the same numbers.


# %%
class Affine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(ndl.init.kaiming_uniform(inputs, outputs, device=device))
        self.bias = nn.Parameter(ndl.init.zeros(1, outputs, device=device))

    def forward(self, x):
        return x @ self.weight + self.bias


mine, theirs = Affine(3, 2), nn.Linear(3, 2, device=device)
theirs.load_state_dict(mine.state_dict())
batch = ndl.Tensor(X, device=device)
assert np.allclose(mine(batch).numpy(), theirs(batch).numpy(), rtol=1e-5)
theirs

# %% tags=["remove-input"]
exercises("kaiming", "module-walk", "linear", "compose", "dropout", "normalise", "normalise-grad")

# %% [markdown]
# Three optimisers train the same small network from the same weights for two epochs on real digits
# (8x8 pixels, part of needle). A step has four lines: compute the loss, clear the old gradients,
# compute the new ones, update the parameters.

# %%
digits = ndl.data.Digits(train=True)


def losses_of(make_optimizer):
    np.random.seed(0)
    model = nn.Sequential(nn.Flatten(), Affine(64, 32), nn.ReLU(), Affine(32, 10))
    optimizer = make_optimizer(model.parameters())
    losses = []
    for _ in range(2):
        loader = ndl.data.DataLoader(digits, 32, shuffle=True, seed=0, device=device)
        for images, labels in loader:
            loss = nn.SoftmaxLoss()(model(images), labels)
            optimizer.reset_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


curves = {
    "SGD": losses_of(lambda p: ndl.optim.SGD(p, lr=0.1)),
    "SGD, momentum": losses_of(lambda p: ndl.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.0)),
    "Adam": losses_of(lambda p: ndl.optim.Adam(p, lr=0.005)),
}
pictures.draw_curves(curves, "loss")

# %% tags=["remove-input"]
exercises("sgd", "adam", "clip-grad-norm", "schedules", "train-epoch")

# %% [markdown]
# ## 4 Strides and views
#
# A Tensor holds an array, and an array is a *view*: a shape, strides and an offset into a buffer.
# The stride of an axis is the distance to its next element. A transpose or a slice therefore costs
# nothing: it uses other strides for the same memory. Colours and numbers below are positions in the
# buffer.

# %%
a = own_arrays().array(np.arange(12).reshape(3, 4), device=device)
views = {"a": a, "a.permute((1, 0))": a.permute((1, 0)), "a[::-1, 1:3]": a[::-1, 1:3]}
pictures.draw_memory(views)

# %% [markdown]
# Which positions does a slice select? (With ipywidgets: two sliders.)

# %%
pictures.slider(
    lambda start, step: pictures.draw_memory({f"a[:, {start}::{step}]": a[:, start::step]}),
    start=(0, 3),
    step=(1, 3),
)

# %% tags=["remove-input"]
exercises("compact-strides", "row-major", "slice-view")

# %% [markdown]
# Broadcasting is stride 0: the column below has three elements in memory, which are read four
# times; the row has four, which are read three times. Nothing is copied before the kernel adds
# them.

# %%
column = own_arrays().array(np.arange(3).reshape(3, 1), device=device)
row = own_arrays().array(np.arange(4).reshape(1, 4), device=device)
pictures.draw_broadcast(column, row)

# %% tags=["remove-input"]
exercises("broadcast-view")

# %% [markdown]
# Layers expect a certain order of axes. Images are (N, C, H, W); files often have (H, W, C). A
# permutation converts between them, again without a copy.

# %%
pixels = ndl.Tensor(rng.random((2, 8, 8, 3)), device=device)  # N, H, W, C
layer = nn.Conv2d(3, 4, 3, device=device)
try:
    layer(pixels)
except ndl.errors.ShapeError as complaint:
    print(complaint)
print(layer(pixels.permute((0, 3, 1, 2))).shape)

# %% tags=["remove-input"]
exercises("permute-view")

# %% [markdown]
# A Python loop over elements creates an array for each of them. One operation on the whole array
# does the same work in C++:

# %%
from time import perf_counter

numbers = own_arrays().array(np.arange(1000), device=device)
start = perf_counter()
slow = sum(numbers[i].item() for i in range(1000))
middle = perf_counter()
fast = numbers.sum().item()
end = perf_counter()
assert slow == fast
print(f"loop {1e3 * (middle - start):.2f} ms, one operation {1e3 * (end - middle):.3f} ms")

# %% tags=["remove-input"]
exercises("reshape-view", "keep-order")

# %% [markdown]
# ## 5 and 6 Kernels
#
# A backend computes on views. It needs ten functions. Each optional function has a definition in
# `needle.accelerated`, written with array operations, and a backend may provide a faster kernel.
# The next cell lists the kernels of `cpu` and compares one of them with its definition: the numbers
# agree, the times differ.

# %%
from needle import accelerated
from needle.backends.base import OPTIONAL, REQUIRED, provides
from needle.shapes import Geometry

backend = kernels_of(device)
print("instruction set:", backend.module.isa, "of", *backend.module.available_isas())
print("required:", *REQUIRED)
print("kernels:", *(name for name in OPTIONAL if provides(backend, name)))

maps = ndl.init.randn(16, 32, 32, 16, device=device).realize_cached_data()  # N, H, W, C
weight = ndl.init.randn(3, 3, 16, 16, device=device).realize_cached_data()
geometry = Geometry(stride=(1, 1), padding=(1, 1))
results = []
for function in (accelerated.conv2d, accelerated.conv2d.definition):
    start = perf_counter()
    results.append(function(maps, weight, geometry).numpy())
    print(f"conv2d: {(perf_counter() - start) * 1e3:.1f} ms")
assert np.allclose(*results, atol=1e-3)

# %% tags=["remove-input"]
exercises(
    "kernel-one-hot",
    "kernel-unary",
    "kernel-sgd",
    "kernel-fold",
    "kernel-argmax",
    "kernel-softmax",
)

# %% [markdown]
# How fast *could* a kernel be? The machine's multiply-adds per second and the bandwidth of its
# memory are the limits. A small C++ program measures both for one core; the picture draws them as a
# roof. A kernel far below the roof can be improved; one that reaches it can only get faster by
# moving fewer bytes. (A convolution may lie above the peak: Winograd's algorithm does fewer
# multiplications than are counted.) `make ladder` shows the steps from plain loops to these
# kernels.

# %%
from apps.profiling import limits

threads = backend.module.num_threads()
backend.module.set_num_threads(1)  # compare one core's kernels with one core's roof
try:
    roofs = limits.measure(threads=1, seconds=0.02)
    roofline = pictures.draw_roofline(roofs, pictures.measured_kernels(device))
except RuntimeError as reason:  # no compiler on this machine
    roofline = reason
finally:
    backend.module.set_num_threads(threads)
roofline

# %% tags=["remove-input"]
exercises(
    "gemm-loop-order",
    "gemm-cache-blocks",
    "gemm-vectors",
    "gemm-register-tile",
    "gemm-packed-b",
    "gemm-packed-both",
    "conv-loop-order",
    "conv-registers",
    "conv-pixel-tile",
    "conv-packed-weights",
)

# %% [markdown]
# The conformance suite tests kernels. This backend is NumPy with a softmax as in a textbook, and
# the suite finds its error. Exercise: correct it until `report.ok` is true. (Subtract the maximum
# of each row before `exp`; the suite then also tests empty rows.)

# %%
from needle.backends.numpy_backend import NumpyBackend, array_of


class MyBackend(NumpyBackend):
    name = "mine"

    def softmax(self, a, out, axis):
        e = np.exp(array_of(a))
        array_of(out)[...] = e / e.sum(axis, keepdims=True)


with np.errstate(all="ignore"):
    report = conformance.run(MyBackend(), only="softmax")
print(report.table())
assert not report.ok

# %% [markdown]
# On a GPU threads replace loops. The exercises on CUDA kernels need no GPU (docs/course.md):

# %% tags=["remove-input"]
exercises(
    "cuda-one-hot",
    "cuda-locate",
    "cuda-gather",
    "cuda-transpose",
    "cuda-sgd",
    "cuda-row-fold",
    "cuda-layer-norm",
    "cuda-gemm-tile",
)

# %% [markdown]
# WGSL kernels run on the GPU of any laptop, also on Apple's, and on a software driver without one
# (docs/own_webgpu_kernel.md). Three steps of a matrix product:

# %% tags=["remove-input"]
exercises("wgsl-naive", "wgsl-tiles", "wgsl-registers")

# %% [markdown]
# ## 7 Convolution, and LeNet-5 on handwritten digits
#
# A convolution moves a small kernel over the image. At each position it multiplies the kernel with
# the pixels below it and sums the products. This kernel detects edges from light to dark. (With
# ipywidgets the step is a slider.)

# %%
image = ndl.data.Digits(train=False)[3][0][0]  # (8, 8)
edge = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], dtype="float32")  # Sobel's
pictures.slider(lambda step: pictures.draw_sliding(image, edge, step), step=(0, 35))

# %% tags=["remove-input"]
exercises(
    "windows", "im2col", "conv2d", "conv2d-weight-grad", "conv2d-input-grad", "conv2d-op-grad"
)

# %% [markdown]
# LeNet-5 (LeCun et al. 1998) learns its kernels: convolutions detect strokes, pooling tolerates
# small shifts, linear layers classify. The digits have 8x8 pixels and are resized to the 32x32 that
# LeNet expects. With MNIST in `data/` or `NEEDLE_DATA_DIR` (`python apps/train.py --data mnist
# --download` downloads it) set `DATA = "mnist"`; this takes a minute instead of seconds.

# %%
DATA = "digits"


def split(train):
    kind = ndl.data.MNIST if DATA == "mnist" else ndl.data.Digits
    return kind(train=train, transforms=[ndl.data.Resize(32)])


train, test = split(True), split(False)
epochs, batch_size = (2, 128) if DATA == "mnist" else (8, 32)
loader = ndl.data.DataLoader(train, batch_size, shuffle=True, seed=0, device=device)

# %%
np.random.seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 6, 5),  # (N, 1, 32, 32) -> (N, 6, 28, 28)
    nn.ReLU(),
    nn.MaxPool2d(2),  # -> (N, 6, 14, 14)
    nn.Conv2d(6, 16, 5),  # -> (N, 16, 10, 10)
    nn.ReLU(),
    nn.MaxPool2d(2),  # -> (N, 16, 5, 5)
    nn.Flatten(),  # -> (N, 400)
    nn.Linear(400, 120),
    nn.ReLU(),
    nn.Linear(120, 84),
    nn.ReLU(),
    nn.Linear(84, 10),  # -> (N, 10), a score for each digit
)
optimizer = ndl.optim.Adam(model.parameters(), lr=0.002)
loss_function = nn.SoftmaxLoss()
losses = []
for epoch in range(epochs):
    for images, labels in loader:
        loss = loss_function(model(images), labels)
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch + 1}: mean loss {np.mean(losses[-len(loader) :]):.3f}")

# %%
pictures.draw_curves({"LeNet-5": losses}, "loss", log=True)

# %% tags=["remove-input"]
exercises(
    "max-pool",
    "max-pool-grad",
    "kernel-max-pool",
    "kernel-max-pool-grad",
    "running-statistics",
    "lenet5",
    "basic-block",
)

# %% [markdown]
# The six filters of the first layer, and the response of each of them to a digit:

# %%
filters = model.modules[0].weight.numpy()[:, :, 0].transpose(2, 0, 1)  # (6, 5, 5)
pictures.draw_images(filters, [f"filter {i}" for i in range(6)])

# %%
images, labels = test[:]
model.eval()
with ndl.no_grad():
    seen = nn.Sequential(*model.modules[:2])(ndl.Tensor(images[:1], device=device)).numpy()[0]
pictures.draw_images(
    np.concatenate([images[0][:, 2:30, 2:30], seen]), ["the digit", *map(str, range(6))]
)

# %% [markdown]
# The accuracy on digits that the network was not trained on. The pictures show its mistakes, with
# the predicted and the true digit.

# %%
with ndl.no_grad():
    predicted = model(ndl.Tensor(images, device=device)).numpy().argmax(axis=1)
accuracy = (predicted == labels).mean()
print(f"test accuracy {accuracy:.1%}")
assert accuracy > 0.95

wrong = np.flatnonzero(predicted != labels)[:8]
pictures.draw_images(images[wrong, 0], [f"{predicted[i]}, not {labels[i]}" for i in wrong])

# %% [markdown]
# ## 8 Data
#
# In this example reading a sample takes 4 ms, and the program computes for 25 ms on each batch of
# 8. Without workers it does one after the other; two workers prepare the next batches while it
# computes. `recorded` measures the activity of the program and of each worker.

# %%
slow_data = pictures.Slow(count=64, seconds=0.004)
spans = pictures.recorded(ndl.data.DataLoader(slow_data, batch_size=8), computing=0.025)
pictures.draw_timeline(spans, "no workers")

# %%
with ndl.data.DataLoader(slow_data, batch_size=8, num_workers=2, seed=0) as with_workers:
    list(with_workers)  # an epoch to start the workers
    spans = pictures.recorded(with_workers, computing=0.025)
pictures.draw_timeline(spans, "two worker processes")

# %% tags=["remove-input"]
exercises(
    "idx-header",
    "array-dataset",
    "batch-sampler",
    "distributed-sampler",
    "epoch-batches",
    "collate",
    "loader-loop",
    "text-columns",
    "claim",
    "ring-layout",
    "ring-lend",
)

# %% [markdown]
# Random augmentation is a function of (seed, epoch, sample), independent of the number of workers.
# One digit in eight epochs:

# %%
looks = [ndl.data.RandomRotation(25), ndl.data.RandomCrop(padding=1)]
raw = ndl.data.Digits(dtype="uint8", layout="HWC")
copies = ndl.data.DataLoader(raw, batch_size=8, sampler=[5] * 8, seed=0, transforms=looks)
shown = []
for epoch in range(8):
    copies.set_epoch(epoch)
    shown.append(next(iter(copies))[0].numpy()[0, :, :, 0])
pictures.draw_images(np.stack(shown), [f"epoch {epoch}" for epoch in range(8)])

# %% tags=["remove-input"]
exercises(
    "philox",
    "shuffled-order",
    "flip",
    "random-crop",
    "crop-window",
    "augment-rows",
    "augment-colour",
)

# %% [markdown]
# Several training programs on one data set can share a loader, which reads each sample once for all
# of them (docs/shared_loader.md). Exercises: which samples it keeps, and which task gets which:

# %% tags=["remove-input"]
exercises("cache-evict", "shared-draw")

# %% [markdown]
# ## 9 Writing a backend
#
# `python -m needle.testing.new_backend mine` writes a package with ten empty functions, in Python,
# C++ or CUDA. `python -m needle.testing.conformance mine` shows which of them pass, and
# `apps/train.py --device mine` trains LeNet on it once all ten pass. docs/backend.md defines them
# in formulas. The suite's report on a function of `cpu`:

# %%
print(conformance.run(kernels_of(device), only="matmul").table())

# %% [markdown]
# The exercises write the ten functions one by one: first with a Python array as buffer and one
# number at a time, then as a C++ library with multithreaded loops:

# %% tags=["remove-input"]
exercises(
    "lists-places",
    "lists-convert",
    "lists-memory",
    "lists-copy",
    "lists-unary",
    "lists-division",
    "lists-binary",
    "lists-where",
    "lists-reduce",
    "lists-matmul",
)

# %% tags=["remove-input"]
exercises(
    "openmp-map", "openmp-fill", "openmp-binary", "openmp-where", "openmp-reduce", "openmp-matmul"
)

# %% [markdown]
# ## 10 Sequences
#
# A recurrent network reads a sequence step by step and keeps a state. Attention lets each step look
# at all steps before it: row i below has the weights of step i, and the zeros are the future. Each
# row sums to 1.

# %%
words = ndl.Tensor(rng.standard_normal((1, 1, 4, 8)), device=device)
_, weights = ndl.nn.MultiHeadAttention(causal=True)(words, words, words)
print(weights.numpy()[0, 0].round(2))

# %% tags=["remove-input"]
exercises("rnn-cell", "recurrent-steps", "lstm-cell", "attention", "attention-layer")

# %% [markdown]
# ## 11 Compiler passes, and many processes
#
# `needle.capture` records the kernel calls of a step. Passes rewrite the list before it is
# replayed: the first one removes the calls whose results nobody reads, here the exponentials and
# their sum.


# %%
@ndl.capture
def captured(x):
    x.exp().sum()
    return (x * 2 + 1).relu()


captured(ndl.ones(1000, device=device))
print(captured.explain())

# %% [markdown]
# Several processes share the work of a step by adding their gradients; docs/many_machines.md says
# how to start them. Four threads add eight numbers each around a ring:

# %%
arrays = [np.arange(8, dtype=np.float32) * 10**rank for rank in range(4)]
sent = in_threads(arrays)
print("the sum:", arrays[0])
print("numbers that each thread sent:", [sum(each) for each in sent])

# %% tags=["remove-input"]
exercises("dead-calls", "tree-sum", "ring-all-reduce")

# %% [markdown]
# ## Next steps
#
# * `python apps/train.py --help`: LeNet-5 on MNIST and ResNet9 on CIFAR-10, with a report.
# * docs/glossary.md: the differences to PyTorch and to the course.
# * ARCHITECTURE.md: where each op, its gradient and its kernel are defined (table "Where is ..."),
#   and recipes for adding your own.
