"""An ordinary, non-private training of an image classifier with batch norm: what poisoning is aimed at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput
from privmix.optimisers import Sgd
from privmix.research.poisoning.images import Images
from privmix.research.poisoning.victims.config import VictimConfig
from privmix.research.poisoning.victims.networks import Network, build
from privmix.research.poisoning.victims.views import moved
from privmix.training.models.base import seeded

__all__ = ["TrainedNetwork", "Victim", "VictimConfig"]

_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network that classifies images."""

    network: Network = field(repr=False)

    @property
    def device(self) -> torch.device:
        """Where its weights are, and what it is given must be; the methods below take and return NumPy arrays."""
        return self.network.head.weight.device

    def logits(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, C, H, W) -> (n, K)."""
        return self._run(self.network, pixels)

    def predict(self, pixels: NDArray[np.float32]) -> NDArray[np.int64]:
        """(n, C, H, W) -> (n,)."""
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
    """What a training lets change its batches: a :class:`privmix.research.poisoning.Augmentation`."""

    def loss(
        self, network: Any, pixels: Tensor, targets: Tensor, generator: torch.Generator, progress: float
    ) -> Tensor:
        """The batch's mean loss."""

    def change_gradients(self, parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
        """Change its gradient in place."""


@dataclass(frozen=True, eq=False)
class Victim:
    """Trains networks from scratch, or the last layer on a frozen extractor.

    Attributes:
        config: settings.
        extractor: the body of a network that was trained on other, public records; it stays as it is.
        device: as torch calls it; None: a GPU if there is one, and the CPU otherwise.

    Example:
        >>> records = Images.of(np.random.default_rng(0).random((40, 1, 8, 8)), np.arange(40) % 2, classes=2)
        >>> Victim(VictimConfig(epochs=1)).fit(records, seed=0).predict(records.pixels).shape
        (40,)
    """

    config: VictimConfig = field(default_factory=VictimConfig)
    extractor: TrainedNetwork | None = None
    device: str | None = None

    def fit(self, records: Images, *, seed: int, augmentation: ChangesBatches | None = None) -> TrainedNetwork:
        """Train; the same seed, records and augmentation give the same weights on one machine.

        Args:
            records: to train on, two or more.
            seed: of weights, order of records and augmentation.
            augmentation: changes every batch, after the flips and crops of an ordinary training.

        Raises:
            InvalidInput: fewer than two records, or an extractor of another shape.
        """
        if len(records) < 2:
            raise InvalidInput("records", len(records), "two or more: one alone has no batch statistics")
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with seeded(seed):
            network = build(self.config.network, records.shape, records.classes)
        x = torch.from_numpy(records.pixels)
        seen: nn.Module = network
        if self.extractor is not None:
            self._freeze(network)
            if augmentation is None and not self.config.flips and not self.config.crops:
                # Nothing changes the images: what the last layer sees is the same in every epoch.
                x, seen = torch.from_numpy(self.extractor.features(records.pixels)), network.head
        network.to(device)
        targets = functional.one_hot(torch.from_numpy(records.labels), records.classes).float().to(device)
        with _repeatable(device):
            self._train(seen, x.to(device), targets, torch.Generator(device).manual_seed(seed), augmentation)
        return TrainedNetwork(network.eval())

    def view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """(b, C, H, W) images as an epoch of ordinary training sees them; attackers can train through it.

        Args:
            pixels: in [0, 1].
            generator: on the device of the pixels.
        """
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
    """What training calls: pixels -> logits in float32."""
    if precision == "float32":
        return network

    def run(pixels: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            logits: Tensor = network(pixels)
        return logits.float()

    return run


def _repeatable(device: torch.device) -> AbstractContextManager[None]:
    """cuDNN with algorithms that give the same bits every time."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
