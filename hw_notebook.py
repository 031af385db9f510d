# %% [markdown]
# # A first walk through needle
#
# From a tensor to a trained network, in the order of the course, and then under the hood. You need
# some Python and the chain rule. Run the cells from top to bottom; all of it takes a minute or two.
# Every picture is drawn from what was just computed.
#
# The next cell makes needle importable: from this folder if it was built here (`make build`),
# else by pip. In a hosted notebook set `SOURCE` to the address of needle's repository first.

# %%
import importlib.util
import subprocess
import sys
from pathlib import Path

SOURCE = ""  # an address that git clones, where this notebook was opened without needle's folder

here = Path.cwd()
folders = [here, *here.parents, here / "needle-source"]
if SOURCE and not any((folder / "apps" / "pictures").is_dir() for folder in folders):
    subprocess.run(["git", "clone", "--depth=1", SOURCE, "needle-source"], check=True)
root = next((folder for folder in folders if (folder / "apps" / "pictures").is_dir()), None)
if root is not None:
    sys.path.insert(0, str(root))
    if any((root / "python/needle/backend_ndarray").glob("*.so")):
        sys.path.insert(0, str(root / "python"))
    elif importlib.util.find_spec("needle") is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", f"{root}[train]"], check=True)
        importlib.invalidate_caches()

# %% [markdown]
# `watch` does two things while you learn. Modules that you edit are read again before the next
# cell, and objects that you have stay instances of their classes. And a variable that holds on to
# ever more of the graph is warned of.
#
# Each chapter names its exercises where it meets them. `python -m apps.course student DIR` writes a
# tree in which they are open; there `python -m apps.course show TAG` explains one, `check TAG` says
# whether yours is right, and this notebook shows how far you are.

# %%
import numpy as np

import needle as ndl
from apps import pictures
from apps.notebook import exercises, watch
from needle import nn
from needle.testing import check_gradients, conformance

watch("needle", "apps")
device = ndl.cpu()  # needle's C++ kernels; ndl.cpu_numpy() does the same with NumPy

# %% [markdown]
# ## 1 Tensors and gradients
#
# A `Tensor` is an array that remembers how it was computed. It lives on a device, and both
# operands of an operation must live on the same one: hence `device=device` throughout.

# %%
x = ndl.Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
y = ndl.exp(x / 10) @ x.transpose()
print(y)
print(y.shape, y.dtype, y.device)

# %% tags=["remove-input"]
exercises("record")

# %% [markdown]
# NumPy counts in float64, needle in float32 unless it is told otherwise. An array that is *asked*
# to stay float64 makes everything after it float64, at half the speed: look at `dtype` when a
# program is slower than it should be.

# %%
host = np.linspace(0, 1, 3)  # float64
print(ndl.Tensor(host).dtype, ndl.Tensor(host, dtype="float64").dtype)
print((x * ndl.Tensor(host, dtype="float64", device=device)).dtype, "after one float64 operand")

# %% [markdown]
# How does the error f(w) = Σᵢ (xᵢ · w − tᵢ)² change with w? The chain rule gives
# ∇f = 2 Xᵀ(Xw − t), which is one line of NumPy. needle finds the same from `f`
# alone: `f.backward()` goes from `f` back to what it was computed from and leaves each gradient
# in `.grad`.

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
# This is the graph that `backward` walked, from right to left. Rounded boxes are tensors that we
# made, the others are ops. Each op knows its own gradient only; the chain rule does the rest.

# %%
pictures.draw_computation(f)

# %% tags=["remove-input"]
exercises(
    "topo-sort", "pass-on", "reverse-pass", "backward", "hooks", "gradients-of", "grad-function"
)

# %% [markdown]
# ### A forgotten detach
#
# `total = total + loss` looks harmless, but `total` is a Tensor and remembers: every step's graph
# stays in memory. `watch` warns of it below the cell, with the line. What was meant is a number:
# `loss.item()`.

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
# ## 2 An op of your own
#
# An op says two things: what it computes from arrays, and how the gradient of its result becomes
# the gradients of its inputs. Take silu(a) = a σ(a), with
# silu′(a) = σ(a) + a σ(a) (1 − σ(a)).
#
# `check_gradients` compares a gradient with differences of the function along a random direction.
# Ours passes, also for second derivatives, which come free because `gradient` is made of ops.
# Then we forget a term, to see what that looks like.

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
# A module is a plain object: its attributes are parameters and other modules, its `forward`
# computes. Here is a linear layer from scratch; given the same weights, `nn.Linear` gives the
# same numbers.


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
# Three optimisers on the same small network from the same weights, two epochs of real digits
# (8x8, they come with needle). A step is four lines: the loss, the old gradients away, the new
# ones, a step against them.

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
# A Tensor holds an array, and an array is a *view*: a shape, strides and an offset over a buffer.
# Strides say how far the next element of each axis is. So a transpose or a slice costs nothing:
# other numbers over the same memory. Colours and numbers below are places in the buffer.

# %%
a = ndl.backend_ndarray.array(np.arange(12).reshape(3, 4), device=device)
views = {"a": a, "a.permute((1, 0))": a.permute((1, 0)), "a[::-1, 1:3]": a[::-1, 1:3]}
pictures.draw_memory(views)

# %% [markdown]
# Which places does a slice take? (With ipywidgets: two sliders.)

# %%
pictures.slider(
    lambda start, step: pictures.draw_memory({f"a[:, {start}::{step}]": a[:, start::step]}),
    start=(0, 3),
    step=(1, 3),
)

# %% tags=["remove-input"]
exercises("compact-strides", "row-major", "slice-view")

# %% [markdown]
# Broadcasting is stride 0: the column below has three places in memory and is read four times,
# the row four places, read three times. Nothing is copied before the kernel adds them.

# %%
column = ndl.backend_ndarray.array(np.arange(3).reshape(3, 1), device=device)
row = ndl.backend_ndarray.array(np.arange(4).reshape(1, 4), device=device)
pictures.draw_broadcast(column, row)

# %% tags=["remove-input"]
exercises("broadcast-view")

# %% [markdown]
# The order of axes matters to those who read it. Images are (N, C, H, W); files often have (H, W,
# C). A permutation makes one of the other, again without a copy.

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
# A Python loop over elements makes an array for each of them. One operation on the whole array
# does the same work in C++:

# %%
from time import perf_counter

numbers = ndl.backend_ndarray.array(np.arange(1000), device=device)
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
# A backend computes on views. It must have ten functions; the optional ones have a definition in
# `needle.accelerated`, in plain array operations, and a backend may bring a faster kernel. Below
# is the list of the kernels of `cpu`, and one of them next to its definition: the same numbers,
# in another time.

# %%
from needle import accelerated
from needle.backends.base import OPTIONAL, REQUIRED, provides

backend = device.backend
print("instruction set:", backend.module.isa, "of", *backend.module.available_isas())
print("required:", *REQUIRED)
print("kernels:", *(name for name in OPTIONAL if provides(backend, name)))

maps = ndl.init.randn(16, 32, 32, 16, device=device).realize_cached_data()  # N, H, W, C
weight = ndl.init.randn(3, 3, 16, 16, device=device).realize_cached_data()
geometry = ((1, 1), (1, 1), (1, 1), 1)  # stride, padding, dilation, groups
results = []
for function in (accelerated.conv2d, accelerated.conv2d.definition):
    start = perf_counter()
    results.append(function(maps, weight, *geometry).numpy())
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
# How fast *could* a kernel be? Nothing computes quicker than the machine multiplies and adds, or
# than its memory delivers. Both limits of one core are measured here, by a small C++ program, and
# drawn as a roof; a kernel far below it wastes something, one that touches it cannot be improved
# but by moving fewer bytes. (A convolution may even stand above the peak: Winograd's algorithm
# multiplies less than is counted.) `make ladder` climbs from plain loops to these kernels.

# %%
from apps.bench import limits

threads = backend.module.num_threads()
backend.module.set_num_threads(1)  # one core's kernels under one core's roof
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
# The judge of kernels is the conformance suite. This backend is NumPy with a softmax written as
# in the textbook, and the suite finds what is wrong with it. Exercise: mend it (subtract each
# row's maximum before `exp`; the suite will then ask about empty rows too) until `report.ok`.

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
# On a GPU threads take the place of loops. To learn its kernels none is needed, as docs/course.md
# says:

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
# ## 7 Convolution, and LeNet-5 reads handwriting
#
# A convolution slides a small kernel over the image; at each place it multiplies what it covers
# and adds up. This kernel answers to edges from light to dark. (With ipywidgets the step is a
# slider.)

# %%
image = ndl.data.Digits(train=False)[3][0][0]  # (8, 8)
edge = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], dtype="float32")  # Sobel's
pictures.slider(lambda step: pictures.draw_sliding(image, edge, step), step=(0, 35))

# %% tags=["remove-input"]
exercises(
    "windows", "im2col", "conv2d", "conv2d-weight-grad", "conv2d-input-grad", "conv2d-op-grad"
)

# %% [markdown]
# LeNet-5 (LeCun et al. 1998) learns its kernels: convolutions that look for strokes, pooling that
# forgives small shifts, linear layers that decide. The digits are 8x8, and LeNet wants 32x32. With
# MNIST in `data/` or `NEEDLE_DATA_DIR` (`python apps/train.py --data mnist --download` puts it
# there) set `DATA = "mnist"`: it takes a minute instead of seconds.

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
# What has it learned? The six filters of the first layer, and what each of them sees in a digit:

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
# Does it read digits that it has never seen? Those that it gets wrong are shown, each with what the
# network took it for.

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
# Here reading a sample takes 4 ms, and the program computes for 25 ms on each batch of 8. Alone,
# it does one after the other; with two workers the next batches are prepared while it computes.
# `recorded` notes who did what when.

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
    "batch-sampler",
    "distributed-sampler",
    "collate",
    "text-columns",
    "claim",
    "ring-layout",
    "ring-lend",
)

# %% [markdown]
# Random augmentation is a function of (seed, epoch, sample): the same with any number of workers.
# Eight looks at one digit:

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
exercises("philox", "shuffled-order", "crop-window", "augment-rows", "augment-colour")

# %% [markdown]
# Several trainings on one data set can share a loader, which reads each sample once for all of them
# (docs/shared_loader.md). Which samples it keeps, and who gets which:

# %% tags=["remove-input"]
exercises("cache-evict", "shared-draw")

# %% [markdown]
# ## 9 A backend of your own
#
# `python -m needle.testing.new_backend mine` writes a package with the ten functions empty, in
# Python, C++ or CUDA; `python -m needle.testing.conformance mine` shows it fill up, and
# `apps/train.py --device mine` trains LeNet on it as soon as the ten pass. docs/backend.md says in
# formulas what each computes. This is what the suite says of the ten of `cpu`:

# %%
print(conformance.run("cpu", only="matmul").table())

# %% [markdown]
# The ten can be learnt one by one, first with a Python list for a buffer and one number at a time,
# then as a C++ library whose loops threads share:

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
# ## What next
#
# * `python apps/train.py --help`: this on MNIST, and ResNet9 on CIFAR-10, with a report.
# * docs/glossary.md: what is the same as in PyTorch and in the course, and what is not.
# * ARCHITECTURE.md shows where each op, its gradient and its kernel live, and has the recipes for
#   adding your own. Its table "Where is ..." is the map to take along.
