"""Defences with a guarantee: training on a release, or by DP-SGD, bounds every attack.

The library's own plans price the guarantee, and the whole trade-off curve of the run bounds it
(:class:`privmix.accounting.NeighbourCurve`). The number of clean records is public; inserted records don't change the
plan.
"""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Adjacency, Event
from privmix.accounting.poisoning import NeighbourCurve
from privmix.engine.rows import PrivateRecords
from privmix.learning.base import LEARNERS
from privmix.mechanisms.plan import Plan as AnyPlan
from privmix.mechanisms.streams import SecretStreams
from privmix.planning.config import ReleaseConfig
from privmix.plans.design import Design
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.releases.run import release_to_memory
from privmix.research.poisoning.base import Case, Defence, Defended
from privmix.research.poisoning.feature_cache import cached_features, input_shape
from privmix.research.poisoning.images import VictimImages
from privmix.rounding import exact
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts
from privmix.training.trainer import Trainer


@dataclass(frozen=True, eq=False)
class FeatureModel:
    features: str
    model: Any = field(repr=False)

    def predict(self, pixels: NDArray[np.float32]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.asarray(self.model.predict(cached_features(self.features).features(pixels)))
        return found.astype(np.int64)


class PrivateDefence(Defence):
    """Makes a model under (epsilon, delta)-DP; a frozen dataclass with these two fields.

    Formal guarantees:
        * the bound is the certified one of the plan that ran, at the number of clean records, for changed and for
          inserted records. It is 1 for inserted ones where the plan's relation covers no other numbers;
        * noise and draws come from the trial's seed: trials can be run again, and their models are not private.
    """

    epsilon: float
    delta: float

    @property
    @abstractmethod
    def extractor(self) -> str:
        """The public extractor before the model, by its name."""

    @abstractmethod
    def plan(self, records: int, shape: tuple[int, int, int], classes: int) -> AnyPlan:
        """Return the plan for that number of records, priced."""

    def check(self, records: VictimImages) -> None:
        self.plan(len(records), records.shape, records.classes)

    def bound(self, clean_success: float, poisoned: int, how: str, records: VictimImages) -> float:
        plan = self.plan(len(records), records.shape, records.classes)
        if how != "changed" and plan.adjacency is Adjacency.REPLACE_ONE:
            return 1.0
        return _curve(plan.event, plan.adjacency).success(clean_success, poisoned, how)

    @property
    def guarantees(self) -> str | None:
        return f"epsilon {exact(self.epsilon)}, delta {exact(self.delta)}, {self.adjacency.value}"

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency:
        """The relation that the guarantee is stated for."""

    def dim(self, shape: tuple[int, int, int]) -> int:
        return cached_features(self.extractor).extractor.output_dim(input_shape(shape))

    def _streams(self, case: Case) -> SecretStreams:
        return SecretStreams.from_seed(case.scene.number_for("private training"))


class ReleaseDefence(PrivateDefence):
    """Releases the records, and fits the design's own learner on the release."""

    features: str

    @property
    def extractor(self) -> str:
        return self.features

    @property
    @abstractmethod
    def made_by(self) -> Design[Any]:
        """The design with its options."""

    @property
    def adjacency(self) -> Adjacency:
        return self._config(1000, 8, 2).draft().adjacency

    def plan(self, records: int, shape: tuple[int, int, int], classes: int) -> Plan:
        return _released(self._config(records, self.dim(shape), classes), self.epsilon, self.delta)

    def _config(self, records: int, dim: int, classes: int) -> ReleaseConfig:
        design = self.made_by
        return ReleaseConfig(
            records=records,
            dim=dim,
            classes=tuple(map(str, range(classes))),
            design=design,
            # Draws of a fixed number depend on the real one.
            records_declared=not design.fixed_size,
        )

    def train(self, case: Case) -> Defended:
        images, cache_of = case.records, cached_features(self.extractor)
        plan = self.plan(case.clean_records, images.shape, images.classes)
        learner = LEARNERS[made_by(plan).learner]()
        if not learner.reads_rows:
            # Rows sampled from what is released with them are for other learners.
            plan = replace(plan, rows=1)
        released = release_to_memory(
            plan,
            PrivateRecords(cache_of.features(images.pixels), images.labels),
            self._streams(case),
            extractor=cache_of.extractor.spec(),
            input_shape=input_shape(images.shape),
        )
        return Defended(FeatureModel(self.extractor, learner.fit(released)))


class TrainingDefence(PrivateDefence):
    """Trains a model by DP-SGD; `views` is a preset of views, whose gradients are averaged before the clip."""

    views: ClassVar[str] = "plain"
    model: str

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    def config(self, records: int) -> TrainingConfig:
        return TrainingConfig.for_model(
            self.model, records=records, epsilon=self.epsilon, delta=self.delta, views=self.views
        )

    def check(self, records: VictimImages) -> None:
        self._trainer(len(records), records.shape, records.classes)

    def plan(self, records: int, shape: tuple[int, int, int], classes: int) -> AnyPlan:
        return _trained(self, records)

    def train(self, case: Case) -> Defended:
        images = case.records
        trainer = self._trainer(case.clean_records, images.shape, images.classes)
        features = cached_features(self.extractor).features(images.pixels)
        records = TrainingRecords.of(features, images.labels, classes=images.classes)
        return Defended(FeatureModel(self.extractor, trainer.run(records, streams=self._streams(case))))

    def _trainer(self, records: int, shape: tuple[int, int, int], classes: int) -> Trainer:
        extractor = cached_features(self.extractor).extractor
        facts = ModelFacts(tuple(map(str, range(classes))), extractor.spec(), input_shape(shape), self.dim(shape))
        return Trainer(self.config(records), facts, records, records_declared=True)


@cache
def _released(config: ReleaseConfig, epsilon: float, delta: float) -> Plan:
    return config.calibrate(epsilon, delta)


@cache
def _trained(defence: TrainingDefence, records: int) -> AnyPlan:
    return defence.config(records).plan(records, records_declared=True)


@cache
def _curve(event: Event, adjacency: Adjacency) -> NeighbourCurve:
    return NeighbourCurve.of_event(event, adjacency)
