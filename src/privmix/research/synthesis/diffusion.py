"""Training a diffusion model on public images.

A step's randomness is a function of (seed, step), so a checkpoint is weights, their moving average, Adam's moments and
the number of steps. A resumed run makes the same model as one that was never killed.
"""

import hashlib
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from privmix.errors import InvalidInput, StorageError, check_integer
from privmix.fields import Checked, Choice, Count, Positive, Proportion, Whole
from privmix.folders import HeldFolder, held
from privmix.optimisers import Adam
from privmix.progress import Progress
from privmix.research.synthesis.augment import NonLeaking
from privmix.research.synthesis.denoising import Denoiser, NoiseProcess, denoising_loss
from privmix.research.synthesis.edm import EdmConfig
from privmix.research.synthesis.model import DiffusionModel, cast, told_classes
from privmix.research.synthesis.networks import Condition, UNet
from privmix.world import World

PRECISIONS: Final = ("float32", "bfloat16")
_FILE: Final = "diffusion.safetensors"
_PARTS: Final = ("weights", "average", "first", "second")


@dataclass(frozen=True)
class DiffusionConfig(Checked):
    """Settings of a diffusion model."""

    # `ramp_up`: images over which the learning rate rises. `half_life`: images after which an image's influence on
    # the moving average has halved, at most `ema_ramp` of the images seen (Karras et al.: 500,000 and 0.05).
    network: str = "small"
    steps: Count = 5000
    batch_size: Count = 64
    learning_rate: Positive = 1e-3
    ramp_up: Count = 10_000
    half_life: Count = 50_000
    ema_ramp: Positive = 0.05
    augment_probability: Proportion = 0.12
    mirror: bool = False
    precision: Annotated[str, Choice(*PRECISIONS)] = "float32"
    seed: Annotated[int, Whole(0, 2**32 - 1)] = 0
    process: NoiseProcess = field(default_factory=EdmConfig)

    def rate(self, step: int) -> float:
        return self.learning_rate * min(1.0, (step + 1) * self.batch_size / self.ramp_up)

    def decay(self, step: int) -> float:
        """Return the share of the moving average that a step keeps, from 0."""
        seen = (step + 1) * self.batch_size
        return float(0.5 ** (self.batch_size / max(min(self.half_life, seen * self.ema_ramp), 1e-8)))


def train_diffusion(
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: int,
    config: DiffusionConfig,
    *,
    minutes: float | None = None,
    checkpoint: Path | HeldFolder | None = None,
    progress: Progress | None = None,
    device: str = "cpu",
    save_every: float = 60.0,
    world: World | None = None,
) -> DiffusionModel:
    """Train on PUBLIC images (n, C, H, W) in [0, 1]; no privacy guarantee holds for them."""
    # Each of several processes takes its share of every batch; gradients are summed. Without dropout the model is
    # that of one process but for rounding. `checkpoint` keeps the state; a run of the same settings and images
    # resumes.
    world = world or World()
    run = _Training(images, labels, classes, config, torch.device(device), world)
    done, ended = (0, False) if checkpoint is None else run.restore(checkpoint)
    state = f"{done} {ended}".encode()
    if world.share(state) != state:
        raise StorageError("the checkpoint's folder is not the same folder for every process")
    began = saved = time.monotonic()
    while done < config.steps and not ended:
        run.step(done)
        done += 1
        now = time.monotonic()
        if progress is not None and (done % 10 == 0 or done == config.steps):
            progress(f"diffusion model (loss {run.loss:.3f})", done, config.steps)
        ended = minutes is not None and world.share(bytes([now - began > 60 * minutes])) == b"\x01"
        if checkpoint is not None and world.is_head and now - saved > save_every:
            run.save(checkpoint, done)
            saved = now
    if checkpoint is not None and world.is_head:
        run.save(checkpoint, done, ended=ended)
    return run.model(done)


class _Training:
    """Weights, their moving average and Adam's moments, a step at a time."""

    def __init__(
        self,
        images: NDArray[np.float32],
        labels: NDArray[np.int64],
        classes: int,
        config: DiffusionConfig,
        device: torch.device,
        world: World,
    ) -> None:
        if images.ndim != 4 or len(images) != len(labels) or not len(labels):
            raise InvalidInput("images", images.shape, "images (n, channels, height, width), with a label each")
        if labels.min() < 0 or labels.max() >= classes:
            raise InvalidInput("labels", "values outside", f"numbers in [0, {classes})")
        check_integer("batch_size", config.batch_size, low=world.size)
        self._config, self._device, self._classes, self._world = config, device, classes, world
        self._told_classes = classes if config.process.conditional else 1
        self._shape = tuple(images.shape[1:])
        self._images = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32)) * 2 - 1
        self._labels = torch.from_numpy(np.asarray(labels, dtype=np.int64))
        told = json.dumps([asdict(config) | {"steps": 0}, classes, self._shape], sort_keys=True).encode()
        hashed = hashlib.sha256(told)
        hashed.update(self._images.numpy().tobytes())
        hashed.update(self._labels.numpy().tobytes())
        self._fingerprint = hashed.hexdigest()
        self._network = self._fresh()
        self._average = self._fresh()
        self._weights = list(self._network.parameters())
        self._adam = Adam(self._weights, lr=config.learning_rate)
        self._augment = NonLeaking(config.augment_probability, config.mirror)
        self.loss = 1.0

    def _fresh(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._config.seed)
            return UNet(self._config.network, self._shape, self._told_classes).to(self._device)

    def step(self, number: int) -> None:
        config = self._config
        generator = _generator(config.seed, number)
        rows = torch.randint(len(self._labels), (config.batch_size,), generator=generator)
        images, changes = self._augment(self._images[rows], generator)
        labels = told_classes(self._labels[rows], config.process)
        part = slice(*self._world.shard(config.batch_size))
        condition = Condition(labels[part].to(self._device), changes[part].to(self._device))
        # Dropout draws from torch's own generator.
        with torch.random.fork_rng(devices=[]), cast(config.precision, self._device):
            torch.default_generator.manual_seed(self._world.rank + int(torch.randint(2**62, (), generator=generator)))
            self._network.train()
            denoiser = Denoiser(self._network, config.process)
            loss = denoising_loss(denoiser, images.to(self._device), condition, config.process, generator, part)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        loss = self._summed(loss)
        for weight in self._weights:
            if weight.grad is not None:
                torch.nan_to_num(weight.grad, nan=0.0, posinf=1e5, neginf=-1e5, out=weight.grad)
        for group in self._adam.param_groups:
            group["lr"] = config.rate(number)
        self._adam.step()
        decay = config.decay(number)
        with torch.no_grad():
            for slow, fast in zip(self._average.parameters(), self._weights, strict=True):
                slow.lerp_(fast, 1 - decay)
        self.loss += 0.02 * (float(loss.detach()) - self.loss)

    def _summed(self, loss: Tensor) -> Tensor:
        """Return the loss and gradients of the whole batch, of those of this process's part."""
        if self._world.size == 1:
            return loss
        parts = [loss.detach(), *(weight.grad for weight in self._weights if weight.grad is not None)]
        total = self._world.sum(torch.cat([part.flatten() for part in parts]))
        for part, summed in zip(parts, torch.split(total, [part.numel() for part in parts]), strict=True):
            part.copy_(summed.view_as(part))
        return parts[0]

    def model(self, steps: int) -> DiffusionModel:
        shape: Any = self._shape
        denoiser = Denoiser(self._average.eval(), self._config.process)
        return DiffusionModel(denoiser, shape, self._classes, steps, float(self.loss), self._config.precision)

    def save(self, place: Path | HeldFolder, done: int, *, ended: bool = False) -> None:
        """Write the state next to its place and rename it there."""
        state = self._adam.state_dict()["state"]
        zero = [torch.zeros_like(weight) for weight in self._weights]
        moments = [[state[i][name] for i in state] if state else zero for name in ("exp_avg", "exp_avg_sq")]
        tensors: dict[str, Tensor] = {}
        for part, values in zip(_PARTS, [self._weights, list(self._average.parameters()), *moments], strict=True):
            tensors |= {f"{part}.{i}": value.detach().cpu().contiguous() for i, value in enumerate(values)}
        told = {
            "fingerprint": self._fingerprint,
            "done": str(done),
            "loss": repr(float(self.loss)),
            "ended": str(ended),
        }
        try:
            if isinstance(place, Path):
                place.mkdir(parents=True, exist_ok=True)
            with held(place) as folder:
                folder.write(_FILE, dump_tensors(tensors, metadata=told), shared=True)
        except OSError as error:
            where = place if isinstance(place, Path) else place.path
            raise StorageError(f"cannot write the checkpoint {where}: {error.strerror}") from None

    def restore(self, folder: Path | HeldFolder) -> tuple[int, bool]:
        """Load what :meth:`save` wrote; returns the steps done, 0 where there is nothing, and whether time was up."""
        path = (folder if isinstance(folder, Path) else folder.path) / _FILE
        if not path.exists():
            return 0, False
        try:
            with safe_open(path, framework="pt") as opened:
                told = opened.metadata() or {}
            tensors = load_file(path)
        except (OSError, SafetensorError):
            raise StorageError(f"{path} cannot be read as a checkpoint") from None
        if told.get("fingerprint") != self._fingerprint:
            raise StorageError(f"{path} is the checkpoint of other images or settings; name another folder")
        found = [[tensors[f"{part}.{i}"] for i in range(len(self._weights))] for part in _PARTS]
        done = int(told["done"])
        with torch.no_grad():
            for place, values in ((self._weights, found[0]), (list(self._average.parameters()), found[1])):
                for weight, value in zip(place, values, strict=True):
                    weight.copy_(value)
        state = self._adam.state_dict()
        state["state"] = {
            i: {"step": torch.tensor(float(done)), "exp_avg": first, "exp_avg_sq": second}
            for i, (first, second) in enumerate(zip(found[2], found[3], strict=True))
        }
        self._adam.load_state_dict(state)
        self.loss = float(told["loss"])
        return done, told.get("ended") == "True"


def _generator(seed: int, step: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed} {step}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 2)
