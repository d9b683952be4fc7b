"""Public data of a job: the warm-up before the private phase, and the method that helps in each step of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.training.config import TrainingConfig
from privmix.training.models import Classifier
from privmix.training.parameters import FlatParameters
from privmix.training.public import PublicData, PublicGradients, build_method, plan_public_use, warm_up
from privmix.training.public.base import ExtendedMethod
from privmix.training.trained import ModelFacts, shaped
from privmix.training.views import ViewPipeline


class PublicPhase:
    """What a scenario does with public data; made of public data and settings alone.

    Args:
        config: settings.
        facts: public facts of the data.
        network: what is trained, on its device.
        views: of private records; public batches are augmented like them, one view each.
        public: real public records, as features.
        synthetic: synthetic ones.

    Raises:
        InvalidInput: the data don't fit the scenario, the facts or the network.
    """

    def __init__(
        self,
        config: TrainingConfig,
        facts: ModelFacts,
        network: Classifier,
        views: ViewPipeline,
        public: PublicData | None,
        synthetic: PublicData | None,
    ) -> None:
        self._config, self._facts, self._network, self._views = config, facts, network, views
        self._flat = FlatParameters(network)
        use = plan_public_use(config.scenario, public, synthetic, config.extended.method)
        self._before = None if use.warm_up is None else self._as_inputs(use.warm_up)
        self._during = None if use.private_phase is None else self._as_inputs(use.private_phase)

    @property
    def warms_up(self) -> bool:
        """Whether there is a warm-up."""
        return self._before is not None and self._config.warm_up.epochs > 0

    def warm_up(self, progress: Callable[[str, int, int], None]) -> None:
        """Train the network on public records, where the scenario does; progress shows their loss."""
        if self._before is None or not self.warms_up:
            return

        def show(done: int, total: int, loss: float) -> None:
            progress(f"warm-up (public loss {loss:.3f})", done, total)

        warm_up(self._network, self._before, self._config.warm_up, self._config.model_seed, show, self._augmentation)

    def method(self, steps: int) -> ExtendedMethod | None:
        """What helps in each of ``steps`` private steps, at its beginning, or None."""
        extended = self._config.extended
        if self._during is None:
            return None
        source = PublicGradients(
            self._network,
            self._flat,
            self._during,
            extended.batch_size,
            self._config.model_seed,
            self._augmentation,
            extended.max_norm,
        )
        return build_method(extended, source, steps)

    def _augmentation(self, x: Tensor, targets: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Public batches are augmented like private records, one view each."""
        config = self._config.views
        if not config.augmentations or self._views.layout is None:
            return x, targets
        pipeline = ViewPipeline(
            replace(config, k_base=1, k_self=0, k_diff=0, keep_first=False),
            self._views.layout,
            classes=targets.shape[1],
        )
        vectors = self._views.layout.to_vectors(x)
        views, _ = pipeline(vectors, torch.zeros(len(x), dtype=torch.int64, device=x.device), seeds.to(x.device))
        return views[:, 0], targets

    def _as_inputs(self, data: PublicData) -> PublicData:
        """Public features as the network takes them, on its device."""
        if data.x.dim() != 2 or data.x.shape[1] != self._facts.dim or data.classes != len(self._facts.classes):
            found = (*data.x.shape[1:], data.classes)
            wanted = f"{self._facts.dim} features and {len(self._facts.classes)} classes"
            raise InvalidInput("public data", found, wanted)
        device = self._flat.device
        return PublicData(shaped(data.x, self._network, self._facts).to(device).contiguous(), data.targets.to(device))
