"""An ordinary, non-private training of an image classifier with batch norm: what poisoning is aimed at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from privmix.attacks.poisoning.scene import Images
from privmix.attacks.poisoning.victims.networks import Network, build
from privmix.errors import InvalidInput
from privmix.training.models.base import seeded

if TYPE_CHECKING:
    from privmix.attacks.poisoning.base import Augmentation

_BLOCK = 1024


@dataclass(frozen=True)
class VictimConfig:
    """How a victim trains.

    Attributes:
        network: ``cnn`` (small) or ``resnet18``.
        epochs, batch, learning_rate, momentum, weight_decay: of SGD.
        drops: shares of the training after each of which the learning rate is divided by ten.
    """

    network: str = "cnn"
    epochs: int = 12
    batch: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    drops: tuple[float, ...] = (0.375, 0.625, 0.875)


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network that classifies images."""

    network: Network = field(repr=False)

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
        with torch.no_grad():
            blocks = [part(torch.from_numpy(pixels[at : at + _BLOCK])) for at in range(0, len(pixels), _BLOCK)]
        return torch.cat(blocks).numpy()


@dataclass(frozen=True, eq=False)
class Victim:
    """Trains networks from scratch, or the last layer on a frozen extractor.

    Attributes:
        config: settings.
        extractor: the body of a network that was trained on other, public records; it stays as it is.
    """

    config: VictimConfig = VictimConfig()
    extractor: TrainedNetwork | None = None

    def fit(self, records: Images, *, seed: int, augmentation: Augmentation | None = None) -> TrainedNetwork:
        """Train; the same seed, records and augmentation give the same weights on one machine.

        Args:
            records: to train on.
            seed: of weights, order of records and augmentation.
            augmentation: changes every batch.
        """
        with seeded(seed):
            network = build(self.config.network, records.shape, records.classes)
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.from_numpy(records.pixels), torch.from_numpy(records.labels)
        seen: Any = network
        if self.extractor is not None:
            self._freeze(network)
            if augmentation is None:
                # Nothing changes the images: what the last layer sees is the same in every epoch.
                x, seen = torch.from_numpy(self.extractor.features(records.pixels)), network.head
        trained = [one for one in network.parameters() if one.requires_grad]
        steps = max(1, -(-len(records) // self.config.batch))
        optimiser = torch.optim.SGD(
            trained, self.config.learning_rate, self.config.momentum, weight_decay=self.config.weight_decay
        )
        total = steps * self.config.epochs
        for epoch in range(self.config.epochs):
            order = torch.randperm(len(records), generator=generator)
            for step in range(steps):
                progress = (epoch * steps + step) / total
                drops = sum(progress >= share for share in self.config.drops)
                for group in optimiser.param_groups:
                    group["lr"] = self.config.learning_rate / 10**drops
                chosen = order[step * self.config.batch : (step + 1) * self.config.batch]
                # One record alone has no batch statistics.
                if len(chosen) > 1:
                    targets = functional.one_hot(y[chosen], records.classes).float()
                    self._step(seen, optimiser, x[chosen], targets, generator, progress, augmentation)
        return TrainedNetwork(network.eval())

    def _freeze(self, network: Network) -> None:
        """Give ``network`` the extractor's body, for good."""
        assert self.extractor is not None
        try:
            network.body.load_state_dict(self.extractor.network.body.state_dict())
        except RuntimeError:
            allowed = f"the body of a {self.config.network} for images as the records are"
            raise InvalidInput("extractor", "a network of another shape", allowed) from None
        network.body.requires_grad_(False)

    def _step(
        self,
        network: Any,
        optimiser: torch.optim.Optimizer,
        pixels: Tensor,
        targets: Tensor,
        generator: torch.Generator,
        progress: float,
        augmentation: Augmentation | None,
    ) -> None:
        network.train(self.extractor is None)
        if augmentation is None:
            loss = functional.cross_entropy(network(pixels), targets)
        else:
            loss = augmentation.loss(network, pixels, targets, generator, progress)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
