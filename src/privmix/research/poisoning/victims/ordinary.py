"""An ordinary, non-private training of an image classifier with batch norm: what poisoning is aimed at."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from privmix.devices import chosen_device
from privmix.errors import InvalidInput
from privmix.optimisers import Sgd
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.victims.config import VictimConfig
from privmix.research.poisoning.victims.networks.base import Network, build
from privmix.training.models.base import seeded

__all__ = ["TrainedNetwork", "Victim", "VictimConfig"]

_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network that classifies images."""

    network: Network = field(repr=False)

    @property
    def device(self) -> torch.device:
        """The device of its weights, and of its inputs; the methods below take and return NumPy arrays."""
        return self.network.head.weight.device

    def logits(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._run(self.network, pixels)

    def predict(self, pixels: NDArray[np.float32]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.logits(pixels).argmax(1).astype(np.int64)
        return found

    def features(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, C, H, W) -> (n, d): what the last layer sees."""
        return self._run(self.network.body, pixels)

    def _run(self, part: Any, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        self.network.eval()
        blocks = (torch.from_numpy(pixels[at : at + _BLOCK]) for at in range(0, len(pixels), _BLOCK))
        with torch.no_grad(), _repeatable(self.device):
            return torch.cat([part(block.to(self.device)).cpu() for block in blocks]).numpy()


class ChangesBatches(Protocol):
    """How training changes its batches: a :class:`privmix.research.poisoning.base.DefenceAugmentation`."""

    def loss(
        self, network: Any, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> Tensor:
        """Return the batch's mean loss."""

    def change_gradients(self, parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
        """Change its gradient in place."""


@dataclass(frozen=True, eq=False)
class Victim:
    """Trains networks from scratch, or the last layer on a frozen extractor of other, public records."""

    config: VictimConfig = field(default_factory=VictimConfig)
    extractor: TrainedNetwork | None = None
    device: str | None = None

    def fit(self, records: VictimImages, *, seed: int, augmentation: ChangesBatches | None = None) -> TrainedNetwork:
        """Train; the same seed, records and augmentation give the same weights on one machine."""
        if len(records) < 2:
            raise InvalidInput("records", len(records), "two or more: one alone has no batch statistics")
        device = chosen_device(self.device)
        with seeded(seed):
            network = build(self.config.network, records.shape, records.classes)
        x = torch.from_numpy(records.pixels)
        seen: nn.Module = network
        if self.extractor is not None:
            self._freeze(network)
            if augmentation is None and not self.config.flips and not self.config.crops:
                # The images never change: the last layer sees the same in every epoch.
                x, seen = torch.from_numpy(self.extractor.features(records.pixels)), network.head
        network.to(device)
        targets = functional.one_hot(torch.from_numpy(records.labels), records.classes).float().to(device)
        with _repeatable(device):
            self._train(seen, x.to(device), targets, torch.Generator(device).manual_seed(seed), augmentation)
        return TrainedNetwork(network.eval())

    def view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """(b, C, H, W) images as an epoch of ordinary training sees them; attackers can train through it."""
        return moved(pixels, generator, flips=self.config.flips, crops=self.config.crops)

    def _freeze(self, network: Network) -> None:
        """Give ``network`` the extractor's body, for good."""
        assert self.extractor is not None
        try:
            network.body.load_state_dict(self.extractor.network.body.state_dict())
        except RuntimeError:
            allowed = f"the body of a {self.config.network} for images as the records are"
            raise InvalidInput("extractor", "a network of another shape", allowed) from None
        network.body.requires_grad_(False)

    def _train(
        self,
        network: nn.Module,
        x: Tensor,
        targets: Tensor,
        generator: torch.Generator,
        augmentation: ChangesBatches | None,
    ) -> None:
        trained = [one for one in network.parameters() if one.requires_grad]
        optimiser = self._optimiser(trained)
        run = _at_precision(network, self.config.precision, x.device)
        batches = max(1, len(x) // self.config.batch)
        network.train(self.extractor is None)
        for epoch in range(self.config.epochs):
            order = torch.randperm(len(x), generator=generator, device=x.device)
            for step, chosen in enumerate(torch.tensor_split(order, batches)):
                # At the middle of the step, so that neither the first nor the last one has a rate of 0.
                middle = (epoch + (step + 0.5) / batches) / self.config.epochs
                optimiser.param_groups[0]["lr"] = self.config.rate(middle)
                progress = (epoch + step / batches) / self.config.epochs
                pixels = self.view(x[chosen], generator)
                if augmentation is None:
                    loss = functional.cross_entropy(run(pixels), targets[chosen])
                else:
                    loss = augmentation.loss(run, pixels, targets[chosen], generator, progress)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                if augmentation is not None:
                    augmentation.change_gradients(trained, generator)
                optimiser.step()

    def _optimiser(self, trained: list[nn.Parameter]) -> torch.optim.SGD:
        return Sgd(
            trained,
            self.config.learning_rate,
            self.config.momentum,
            weight_decay=self.config.weight_decay,
            nesterov=self.config.nesterov,
            # One pass over each weight; losses that leave some without a gradient are as welcome as ever.
            fused=True,
        )


def _at_precision(network: nn.Module, precision: str, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the function that training calls: pixels -> logits in float32."""
    if precision == "float32":
        return network

    def run(pixels: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits: Tensor = network(pixels)
        return logits.float()

    return run


def _repeatable(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which cuDNN uses algorithms that give the same bits every time."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)


def moved(pixels: Tensor, generator: torch.Generator, *, flips: bool, crops: int) -> Tensor:
    """Mirror each image (b, C, H, W) with probability 1/2, and move it by up to `crops` pixels; black comes in."""
    # Products with matrices of zeros and ones: the same pixels as slices give, on any device, and so is the
    # gradient.
    if not flips and not crops:
        return pixels
    rows, columns = (_shift(pixels, size, crops, generator) for size in pixels.shape[2:])
    if flips:
        chosen = torch.rand(len(pixels), 1, 1, generator=generator, device=pixels.device) < 0.5
        columns = torch.where(chosen, columns.flip(2), columns)
    changed: Tensor = rows[:, None] @ pixels @ columns[:, None].transpose(2, 3)
    return changed


def _shift(pixels: Tensor, size: int, crops: int, generator: torch.Generator) -> Tensor:
    """(b, size, size): row i of a matrix has its one in column i + d, if there is one; d is each image's own."""
    by = torch.randint(-crops, crops + 1, (len(pixels), 1, 1), generator=generator, device=pixels.device)
    at = torch.arange(size, device=pixels.device)
    return (at[:, None] + by == at).to(pixels.dtype)
