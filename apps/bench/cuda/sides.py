"""needle and PyTorch on a GPU, with the interface of apps/bench/against/sides.py.

``wait`` returns when the device has finished all work. work.py defines the measured work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from apps.bench.against.sides import Needle, Side, Step, Torch
from apps.training.evaluation import logits_of
from needle import config, data
from needle.data import transforms as T
from needle.data.samples.ticket import Ticket
from needle.data.transforms.compile import Chain, placed

PAD, MEAN, STD = 4, (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
BYTE_MEAN, BYTE_STD = (tuple(255 * value for value in values) for values in (MEAN, STD))


class GpuSide(Side, Protocol):
    """A side whose calls return before their work is finished."""

    def wait(self) -> None: ...

    def operand(self, array: Any) -> Any:
        """Return a factor of a product, in the type that is fastest in the chosen precision."""

    def augment(self, images: Any, resident: bool) -> Step:
        """Return a call that crops, mirrors and normalises uint8 (N, H, W, C).

        The result is float32 (N, C, H, W). resident: the images are on the device already.
        """

    def fed_step(self, model: Any, images: Any, labels: Any, batch: int) -> Step:
        """Return a training step on the loader's next batch, cropped, mirrored and normalised."""


def _stored(operand: Any) -> Any:
    return operand.astype("bfloat16") if config.matmul_precision.get() == "bf16" else operand


class NeedleOn(Needle):
    """needle on a device; in bf16 activations are stored as bfloat16."""

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Return False in bf16, where replays may round otherwise, as in apps/training/step.py."""
        return config.matmul_precision.get() != "bf16"

    def wait(self) -> None:
        self.device.synchronize()

    def release(self) -> None:
        self.device.empty_cache()

    def operand(self, array: Any) -> Any:
        return _stored(self.tensor(array))

    def conv2d(self, what: str, x: Any, weight: Any, grad: Any, **geometry: int) -> Step:
        return super().conv2d(what, *map(_stored, (x, weight, grad)), **geometry)

    def logits(self, model: Any, images: Any) -> Any:
        return logits_of(model, images)

    def augment(self, images: Any, resident: bool) -> Step:
        chain = Chain(
            placed(
                [
                    T.RandomCrop(PAD),
                    T.RandomFlipHorizontal(),
                    T.Normalize(BYTE_MEAN, BYTE_STD),
                    T.ToCHW(),
                ]
            )
        )
        ticket = Ticket(0, 0, 0, np.arange(len(images)))
        if not resident:
            return lambda: chain.on_device(images, ticket, self.device.name)
        held = self.needle.backend_ndarray.array(images, device=self.device)
        out = chain.on_device(images, ticket, self.device.name)
        random = np.random.default_rng(0)
        corners = random.integers(-PAD, PAD + 1, (len(images), 2)).astype(float)
        flips = np.stack([random.integers(0, 2, len(images)), np.zeros(len(images))], 1)
        height, width, channels = images.shape[1:]
        numbers = (float(channels), *BYTE_MEAN, *BYTE_STD)
        steps = [
            ("crop", (float(height), float(width), 0.0)),
            ("flip", ()),
            ("normalize", numbers),
            ("to_chw", ()),
        ]
        none = np.zeros((len(images), 0))
        rows = [corners, flips.astype(float), none, none]
        return lambda: self.device.run_images(steps, rows, held.view, None, out.view)

    def fed_step(self, model: Any, images: Any, labels: Any, batch: int) -> Step:
        chain = [
            T.RandomCrop(PAD),
            T.RandomFlipHorizontal(),
            T.Normalize(BYTE_MEAN, BYTE_STD),
            T.ToCHW(),
        ]
        loader = data.DataLoader(
            data.ArrayDataset(images, labels),
            batch,
            shuffle=True,
            seed=0,
            transforms=chain,
            augment="device",
            device=self.device,
            num_workers=2,
            drop_last=True,
        )

        def batches() -> Iterator[Any]:
            while True:
                yield from loader

        source = batches()
        taken = self.step_of(model)
        return lambda: taken(*next(source))


class TorchOn(Torch):
    """PyTorch on a device, with matrix products in the precision of needle's (config)."""

    def __init__(self, mode: str, device: str = "cuda") -> None:
        super().__init__(mode, 1)
        self.place = device
        precision = config.matmul_precision.get()
        self.torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        self.torch.backends.cudnn.allow_tf32 = precision == "tf32"
        self.torch.backends.cudnn.benchmark = True  # the fastest algorithm of those for the sizes
        self.short = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}.get(precision)
        if self.short is not None:
            self.torch.set_autocast_dtype(device, self.short)
            self.torch.set_autocast_cache_enabled(False)  # weights change at every step
        self.torch.set_autocast_enabled(device, self.short is not None)

    def wait(self) -> None:
        if self.place == "cuda":
            self.torch.cuda.synchronize()

    def tensor(self, array: Any, gradient: bool = False) -> Any:
        return super().tensor(array).to(self.place).requires_grad_(gradient)

    def norm(self, channels: int) -> Any:
        return super().norm(channels).to(self.place)

    def operand(self, array: Any) -> Any:
        return self.tensor(array).to(self.short or self.torch.float32)

    def conv2d(self, what: str, x: Any, weight: Any, grad: Any, **geometry: int) -> Step:
        """Return a call on tensors of the precision's type; autocast does not reach gradients."""
        short = self.short or self.torch.float32
        return super().conv2d(what, *(each.to(short) for each in (x, weight, grad)), **geometry)

    def model(self, name: str) -> Any:
        return super().model(name).to(self.place)

    def fed_step(self, model: Any, images: Any, labels: Any, batch: int) -> Step:
        raise NotImplementedError

    def augment(self, images: Any, resident: bool) -> Step:
        torch, place = self.torch, self.place
        mean, std = (torch.tensor(v, device=place).reshape(1, 3, 1, 1) for v in (MEAN, STD))
        host = torch.from_numpy(images)
        held = host.to(place)
        if place == "cuda":
            host = host.pin_memory()
        n, height, width = images.shape[:3]
        rows, columns = torch.arange(height, device=place), torch.arange(width, device=place)
        number = torch.arange(n, device=place)[:, None, None]

        def step() -> Any:
            x = held if resident else host.to(place, non_blocking=True)
            x = torch.nn.functional.pad(x, (0, 0, PAD, PAD, PAD, PAD))
            corner = torch.randint(0, 2 * PAD + 1, (2, n, 1), device=place)
            flipped = torch.rand(n, 1, device=place) < 0.5
            across = torch.where(flipped, columns.flip(0), columns) + corner[1]
            x = x[number, (rows + corner[0])[:, :, None], across[:, None]].permute(0, 3, 1, 2)
            return (x / 255 - mean) / std

        return step


class TorchGraph(TorchOn):
    """PyTorch whose training steps are replayed as one CUDA graph, as "needle, captured" does."""

    def training_step(self, model: Any, images: Any, labels: Any) -> Step:
        step = super().training_step(model, images, labels)
        if self.place == "cpu":
            return step
        torch = self.torch
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # algorithms are chosen and memory is taken before
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()

        def replay() -> Any:
            graph.replay()
            return loss

        return replay


Make = Callable[[str], GpuSide]
SIDES: dict[str, Make] = {
    "needle": lambda device: NeedleOn(device),
    "needle, captured": lambda device: NeedleOn(device, captured=True),
    "PyTorch": lambda device: TorchOn("eager", torch_device(device)),
    "PyTorch, channels last": lambda device: TorchOn("channels last", torch_device(device)),
    "PyTorch, CUDA graph": lambda device: TorchGraph("channels last", torch_device(device)),
}


def torch_device(device: str) -> str:
    """Return PyTorch's name of a device; the emulated one is compared with its CPU."""
    return device if device.startswith("cuda") and "emulated" not in device else "cpu"


def best(times: dict[str, float], names: Sequence[str]) -> float:
    """Return the smallest time of these sides; nan if none ran."""
    return min((times[name] for name in names if name in times), default=float("nan"))
