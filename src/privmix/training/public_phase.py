"""Public data of a job: the warm-up before the private phase, and the methods that help in each step."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.progress import Progress
from privmix.training.config import TrainingConfig
from privmix.training.examples import ImageLayout, ModelFacts, PublicData
from privmix.training.gradients.parameters import FlatParameters, SideInformation
from privmix.training.models.base import Classifier
from privmix.training.public.base import METHODS, ExtendedMethod, PublicGradients, parse_method
from privmix.training.public.config import ExtendedConfig, Scenario
from privmix.training.public.warmup import warm_up
from privmix.training.trained import shaped
from privmix.training.views.augmentation import Augmentation, RecordRandom, augment
from privmix.training.views.pipeline import Mixing, ViewPipeline, check_images


def build_method(config: ExtendedConfig, source: PublicGradients, steps: int) -> ExtendedMethod | None:
    methods = []
    for name in parse_method(config.method):
        given: dict[str, Any] = {**vars(config), "steps": steps, **config.own(name)}
        make: Callable[..., ExtendedMethod] = METHODS[name]
        methods.append(make(source, **{field: given[field] for field in METHODS[name].settings}))
    if not methods:
        return None
    return methods[0] if len(methods) == 1 else Combined(methods)


class Combined(ExtendedMethod):
    """Two methods in one step: one that perturbs weights, and one that directs, as ``parse_method`` allows."""

    # A centre, scale or other direction is designed for the gradients that clipping sees: two would invalidate each
    # other.

    name: ClassVar[str] = "combined"

    def __init__(self, methods: Sequence[ExtendedMethod]) -> None:
        self.methods: Final = tuple(methods)

    def prepare(self, step: int) -> SideInformation:
        sides = [vars(method.prepare(step)) for method in self.methods]
        return SideInformation(**{name: value for side in sides for name, value in side.items() if value is not None})

    def combine(self, mean: Tensor, step: int) -> Tensor:
        for method in self.methods:
            mean = method.combine(mean, step)
        return mean

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{method.name}.{key}": value for method in self.methods for key, value in method.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        for method in self.methods:
            prefix = method.name + "."
            method.load_state_dict({key[len(prefix) :]: state[key] for key in state if key.startswith(prefix)})


def plan_public_use(
    scenario: str, public: PublicData | None = None, synthetic: PublicData | None = None, method: str = "none"
) -> tuple[PublicData | None, PublicData | None]:
    """Return the records that a scenario uses in the warm-up and in private steps; raise for missing or unused data."""
    chosen = Scenario(scenario)
    given: dict[str, Any] = {"public": public, "synthetic": synthetic}
    needed, refused = _NEEDS[chosen]
    for name in needed:
        if given[name] is None:
            raise InvalidInput(name, None, f"records, as scenario {chosen} needs them")
    for name in refused:
        if given[name] is not None:
            raise InvalidInput(name, "records", f"none in scenario {chosen}, which does not use them")
    if (chosen is Scenario.EXTENDED) != (method != "none"):
        allowed = "a method that uses public data" if chosen is Scenario.EXTENDED else "none"
        raise InvalidInput("public_method", method, f"{allowed} in scenario {chosen}")
    records = public.join(synthetic) if public is not None and synthetic is not None else public or synthetic
    if chosen is Scenario.EXTENDED and records is None:
        raise InvalidInput("public", None, f"real or synthetic records, as scenario {chosen} needs them")
    return records, records if chosen is Scenario.EXTENDED else None


_NEEDS: dict[Scenario, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Scenario.COLD: ((), ("public", "synthetic")),
    Scenario.WARM: (("public",), ("synthetic",)),
    Scenario.WARM_SYNTHETIC: (("synthetic",), ()),
    Scenario.EXTENDED: ((), ()),
}


# Public records on which the end of a training is judged.
_JUDGED: Final = 1000


@dataclass(frozen=True)
class PublicViews:
    """One view of every record of a public batch: augmented, then perhaps mixed; vectors (no layout) are only mixed."""

    layout: ImageLayout | None
    augmentations: tuple[Augmentation, ...] = ()
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        kind = None if self.mixing is None else self.mixing.kind
        check_images(self.layout, self.augmentations, kind, " of public records", "the model takes vectors")

    def __call__(self, x: Tensor, targets: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """(b, C, H, W) or (b, d), targets (b, classes) and seeds (b,) -> such views and targets."""
        random = RecordRandom(seeds.to(x.device))
        if self.augmentations:
            x = augment(x[:, None], self.augmentations, random.derive("augment"))[:, 0]
        # The last batch may have a single record, which has no partner to mix with.
        if self.mixing is None or len(x) < 2:
            return x, targets
        # Another record for each: the next one in the order of their seeds, which is random.
        order = torch.argsort(seeds)
        partner = torch.empty_like(order)
        partner[order] = order.roll(1)
        partner = partner.to(x.device)
        pairs, both = (torch.stack([part, part[partner]], dim=1) for part in (x, targets))
        mixed, mixed_targets = self.mixing(pairs, both, 1, random.derive("mix"))
        return mixed[:, 0], mixed_targets[:, 0]


class PublicPhase:
    """The public part of a training, by scenario; made of public data and settings alone."""

    # Public batches are augmented like private records, one view each, unless the warm-up has augmentations of its own.

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
        self._before, self._during = (None if data is None else self._as_inputs(data) for data in use)
        own = config.warm_up.augmentations
        mixing = None if config.warm_up.mixing is None else Mixing(config.warm_up.mixing, config.warm_up.alpha)
        if config.warm_up.adversary > 0 and views.layout is None:
            raise InvalidInput("warm_up adversary", config.warm_up.adversary, "0: the model takes vectors, not images")
        self._in_warm_up = PublicViews(views.layout, config.views.augmentations if own is None else own, mixing)
        self._in_steps = PublicViews(views.layout, config.views.augmentations)

    @property
    def warms_up(self) -> bool:
        return self._before is not None and self._config.warm_up.epochs > 0

    def warm_up(self, progress: Progress) -> None:
        if self._before is None or not self.warms_up:
            return
        warm_up(self._network, self._before, self._config.warm_up, self._config.model_seed, progress, self._in_warm_up)

    def method(self, steps: int) -> ExtendedMethod | None:
        """Return the method that helps in each of ``steps`` private steps, at its beginning, or None."""
        extended = self._config.extended
        if self._during is None:
            return None
        source = PublicGradients(
            self._network,
            self._flat,
            self._during,
            extended.batch_size,
            self._config.model_seed,
            self._in_steps,
            extended.longest(self._config.clip_norm),
        )
        return build_method(extended, source, steps)

    def warn_if_lost(self) -> None:
        """Warn if public data helped in the steps and the network can't separate them afterwards; public."""
        if self._during is None:
            return
        classes = self._during.targets[:_JUDGED].argmax(dim=1)
        # The weights are private outputs and the records public, so this check costs no privacy.
        with torch.no_grad():
            found = self._network(self._during.x[:_JUDGED]).argmax(dim=1)
        right, guessing = float((found == classes).float().mean()), float(classes.bincount().max()) / len(classes)
        if right <= guessing:
            warnings.warn(
                f"training with {self._config.extended.method} diverged: the model is right on {100 * right:.1f}% of "
                f"the public records; always predicting one class is right on {100 * guessing:.1f}%. Try a smaller "
                "learning rate, or cut public gradients shorter",
                stacklevel=2,
            )

    def _as_inputs(self, data: PublicData) -> PublicData:
        if data.x.dim() != 2 or data.x.shape[1] != self._facts.dim or data.classes != len(self._facts.classes):
            found = (*data.x.shape[1:], data.classes)
            wanted = f"{self._facts.dim} features and {len(self._facts.classes)} classes"
            raise InvalidInput("public", found, wanted)
        device = self._flat.device
        return PublicData(shaped(data.x, self._network, self._facts).to(device).contiguous(), data.targets.to(device))
