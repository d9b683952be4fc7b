"""One DP-SGD training, from a dataset and a budget to a model: what :class:`privmix.jobs.job.Job` does for models."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix.accounting.pricing import count_noise
from privmix.certificate.guarantee import Guarantee
from privmix.data.dataset import Source
from privmix.data.overlap import InputHashes, Sketch
from privmix.data.store import FeatureStore
from privmix.devices import chosen_device
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput, in_terms_of
from privmix.features.base import Extractor, parse_features
from privmix.jobs.budget import JobCost, telling
from privmix.jobs.counting import STAND_IN, Counted, check_asked, check_same_persons, count
from privmix.jobs.dataset import PUBLISHED_NAMES, Dataset, open_dataset, shown_names
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.job import Done, Job, PlannedJob, RunArguments, RunKey, Work
from privmix.jobs.public_data import contents_of, origins_of, pool_options, refuse_private, sources_of
from privmix.jobs.training_options import TrainingOptions
from privmix.mechanisms.plan import relation_of, unit_of
from privmix.mechanisms.private_count import CountQuery
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import RunState
from privmix.progress import Progress, silent
from privmix.rounding import exact
from privmix.shown import Bars, Shown
from privmix.training.config import OPTIONS, OWN, TrainingConfig, named_model
from privmix.training.dp_sgd import TrainingRecords, share_streams
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.models.own import OwnNetwork, own_module
from privmix.training.plan import TrainingPlan
from privmix.training.run import TrainingRun, Watch
from privmix.training.trained import TrainedModel
from privmix.training.trainer import Trainer
from privmix.training.views.pipeline import ViewBank
from privmix.world import World, current_world

_SHARED: Final = ("pool", "public", "synthetic", "validation")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedTraining(PlannedJob["TrainingJob"], Shown):
    """A training that is planned: no private record was read. `trainer` has network, views and public data, ready."""

    plan: TrainingPlan
    trainer: Trainer
    watch: Watch
    counted: Counted | None = None

    @property
    def cautions(self) -> tuple[str, ...]:
        """Warnings for the owner before it is carried out, a sentence each."""
        plan, found = self.plan, []
        if plan.steps and plan.delta >= 1 / plan.most_units:
            found.append(f"delta {exact(plan.delta)} is not below 1/{unit_of(plan).many} = {1 / plan.most_units:.3g}")
        if self.job.seed is not None:
            found.append("`seed` makes the noise reproducible: this model is NOT private")
        return (*found, *filter(None, [self.job.opened.source.unread]))

    def to_dict(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "plan": plan.to_dict(),
            "epsilon": plan.cost().epsilon,
            "settings": self.trainer.settings(),
            "published_names": self.job.opened.published_names,
        }

    def shown(self) -> tuple[str, Mapping[str, object]]:
        plan, trainer, config = self.plan, self.trainer, self.trainer.config
        relation = relation_of(plan.adjacency.value, unit_of(plan))
        asked = f"epsilon {exact(config.epsilon)}, delta {exact(plan.delta)}, adjacency {relation}"
        without = {"batches": "none: no private record is read", "public data": config.scenario}
        known: dict[str, object] = {
            "target": asked,
            **({"in words": Guarantee.of_plan(plan).odds} if plan.steps and self.job.seed is None else {}),
            "model": f"{config.model}, {trainer.weights} trained",
            "records, features, classes": f"{plan.records:,}, {trainer.facts.dim}, {len(trainer.facts.classes)}",
            PUBLISHED_NAMES: shown_names(self.job.opened.published_names),
        }
        if plan.steps == 0:
            return "Planned training", known | without
        return "Planned training", known | {
            "batches": mechanism_of(plan).said(plan, "").short,
            "views of a record": str(trainer.views.views),
            "clipping": f"{config.clipping}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
            "noise multiplier": f"{plan.noise_multiplier:.5g}",
            "public data": config.scenario,
        }

    def picture(self) -> Bars | None:
        return self.plan.picture()


@dataclass(frozen=True, eq=False, repr=False)
class TrainingJob(TrainingOptions, Job[PlannedTraining, TrainedModel]):
    """A training on one private dataset: join its :meth:`processes`, :meth:`plan` it, then :meth:`carry_out` the plan.

    Formal guarantees: those of :class:`privmix.jobs.job.Job`; with epsilon 0 no private record is read.
    """

    made: ClassVar[str] = "model"
    runs: ClassVar[type[Run] | None] = TrainingRun

    @cached_property
    def extractor(self) -> Extractor:
        return parse_features(self.features)

    @cached_property
    def opened(self) -> Dataset:
        return open_dataset(self.data, self.extractor, split=self.split, classes=self.classes, columns=self.declared)

    @cached_property
    def facts(self) -> ModelFacts:
        schema, extractor = self.opened.schema, self.extractor
        shape = tuple(schema.input_shape)
        return ModelFacts(tuple(schema.classes), extractor.spec(), shape, extractor.output_dim(shape))

    @cached_property
    def own(self) -> Any:
        """The user's own module, where `model` is one or names one; else None."""
        model = self.model
        if named_model(model) != OWN or model == OWN:
            return None
        # Initial weights are those of a resumed run only if they are drawn from the same seed.
        return own_module(model, self.model_seed or 0) if isinstance(model, str) else model

    @property
    def _shared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SHARED}

    @cached_property
    def _opened_public(self) -> dict[str, Source]:
        return sources_of(self._shared, self.extractor, self.facts, self.declared)

    @cached_property
    def _origins(self) -> list[tuple[str, Sketch]]:
        return origins_of(self._opened_public)

    def check_options(self) -> None:
        if self.epsilon == 0:
            given = {"ledger": None if self.ledger is None else "a ledger", "seed": self.seed, "store": self.store}
            given["private_count"] = self.private_count or None
            for name, value in given.items():
                if value is not None:
                    raise InvalidInput(name, value, "no value with `epsilon` 0, since no private record is read")
        check_asked(self)
        if self.out is None and self.resume:
            raise InvalidInput("resume", True, "only with the `out` of an interrupted run")
        chosen_device(self.device)
        refuse_private(self._shared, self.data, self.split)

    def processes(self) -> AbstractContextManager[World]:
        """Return the processes that do it, each with its own CUDA device from here on; a plan alone needs one."""
        return nullcontext(World()) if self.dry_run else current_world(self.device)

    @in_terms_of(OPTIONS)
    def plan(self, world: World) -> PlannedTraining:
        """Make the plan from public facts, after all checks. Only a private count is read, once it is paid for."""
        self.check()
        self.persons.check(self.opened)
        key, counted, facts = RunKey(self.seed), None, self.facts
        if self.private_count:
            if world.size > 1:
                raise InvalidInput(
                    "private_count", True, "one process: for several, first estimate the count and give it as `records`"
                )
            # A run of one step for a stand-in shows all other errors before the count is paid for.
            self._trainer(replace(self.config(facts, STAND_IN), epochs=1e-9), STAND_IN).check_world(world)
            query = CountQuery(count_noise(self.epsilon, self.delta), 1 if self.of_persons else None)
            counted = count(self, query, key, self.left())
            records, noise = counted.found.records, query.records_noise_multiplier
        else:
            records, noise = self.opened.schema.records if self.records is None else self.records, None
        with nullcontext() if counted is None else telling(self.count_spending(noise, counted.charge)):
            trainer = self._trainer(self.config(facts, records), records, noise)
        trainer.check_world(world)
        watch = Watch(self.callbacks, self._public("validation"), facts)
        # A card that can't be read is found before anything is paid for.
        _ = self._origins
        return PlannedTraining(
            job=self,
            plan=trainer.plan,
            key=key,
            world=world,
            earlier=() if counted is None else (counted.charge,),
            counted=counted,
            trainer=trainer,
            watch=watch,
        )

    def _trainer(self, config: TrainingConfig, records: int, count_noise: float | None = None) -> Trainer:
        return Trainer(
            config,
            self.facts,
            records,
            pool=self._public("pool"),
            public=self._public("public"),
            synthetic=self._public("synthetic"),
            network=None if self.own is None else OwnNetwork.of(self.own, self.facts),
            records_declared=self.records is not None or self.private_count,
            records_noise_multiplier=count_noise,
            device=self.device,
        )

    def _public(self, name: str) -> PublicData | None:
        data, facts = getattr(self, name), self.facts
        if data is None:
            return None
        with in_terms_of(part=name):
            options = pool_options(self.extractor, self.declared)
            return PublicData.open(data, self.extractor, facts.classes, input_shape=facts.input_shape, **options)

    @in_terms_of(OPTIONS)
    def carry_out(self, planned: PlannedTraining, progress: Progress = silent) -> Done[TrainedModel]:
        return super().carry_out(planned, progress)

    def check_resumed(self, planned: PlannedTraining, state: RunState) -> None:
        TrainingRun.check_settings(state, planned.trainer.settings())

    def cost(self, planned: PlannedTraining) -> JobCost | None:
        # The plan that the trainer runs, even if another plan is called planned.
        plan = planned.trainer.plan
        if not plan.steps:
            return None
        return JobCost(plan.charge, plan.adjacency, "training", self.epsilon, self.delta, unit_of(plan).one)

    def called_public(self, planned: PlannedTraining) -> tuple[Mapping[str, InputHashes], Iterable[tuple[str, Sketch]]]:
        return contents_of(self._opened_public), self._origins

    def open_run(self, planned: PlannedTraining, in_ledger: str, given: RunArguments) -> TrainingRun:
        assert self.out is not None
        return TrainingRun(Path(self.out), planned.trainer.settings(), **given)

    def read(self, planned: PlannedTraining, work: Work, progress: Progress) -> TrainingRecords | None:
        """Features, or features of a bank of views, in memory or in a store."""
        world, config, source = planned.world, planned.trainer.config, self.opened.source
        classes = source.schema.num_classes
        if not planned.plan.steps:
            return None
        # The cheaper part first: what does not fit ends the run before features are made.
        whose = self.whose()
        check_same_persons(planned.counted, whose)
        extractor, views = self.extractor, config.bank_views
        if views:
            # A derived key: other processes must never have the key of the noise.
            secret = share_streams(world, None if work.streams is None else work.streams.derive("view bank"))
            extractor = ViewBank(extractor, config.bank_augmentations, views, secret, self.seed)
        if self.store is None:
            found: PrivateRecords | FeatureStore = features_in_memory(source, extractor, progress)
        else:
            # One process writes the store, the others find it finished.
            if not world.is_head:
                world.wait_for_head()
            with world.others_wait() if world.is_head else nullcontext():
                # The store is one for releases and trainings, which name columns of numbers where there are any.
                extractor = extractor.with_columns(source.number_names)
                found = features_on_disk(self.opened, extractor, Path(self.store), progress)
        x = found.features.reshape(len(found.features), views, -1) if views else found.features
        return TrainingRecords.of(x, found.labels, classes=classes, persons=whose)

    def compute(self, planned: PlannedTraining, work: Work, records: Any, progress: Progress) -> TrainedModel:
        assert work.run is None or isinstance(work.run, TrainingRun)
        return planned.trainer.run(
            records,
            run=work.run,
            streams=work.streams,
            reservation=work.charged.reserved,
            progress=progress,
            world=planned.world,
            watch=planned.watch,
        )

    def noted(self, result: TrainedModel) -> str:
        return f"model {result.certificate.id}"
