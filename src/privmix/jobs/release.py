"""One release, from a dataset and a budget to a folder: what :class:`privmix.jobs.job.Job` does for releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from privmix.accounting.base import PrivacyCost
from privmix.accounting.pricing import count_noise
from privmix.certificate.about import About
from privmix.certificate.certificate import Certificate
from privmix.certificate.guarantee import Guarantee
from privmix.certificate.sealed_key import SEALED_FILE
from privmix.data.overlap import InputHashes, Sketch
from privmix.data.store import FeatureStore
from privmix.designs.moments.plan import Moments
from privmix.designs.rows.poisson import Poisson
from privmix.engine.cluster import check_places
from privmix.engine.rows import PrivateRecords
from privmix.errors import WITHHELD, InvalidInput, check_integer, check_number, warn
from privmix.features.base import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.features.tabular import Tabular
from privmix.jobs.budget import JobCost, telling
from privmix.jobs.counting import STAND_IN, Counted, check_asked, check_same_persons, count
from privmix.jobs.dataset import PUBLISHED_NAMES, Dataset, open_dataset, shown_names
from privmix.jobs.features import features_place, records_of
from privmix.jobs.job import Job, PlannedJob, RunArguments, RunKey, Work
from privmix.jobs.options import AUTO, CLASSIFY, TABLE, Local, machine_of
from privmix.jobs.persons import check_persons, records_of_each
from privmix.jobs.planner import Chosen, check_goal, choose, columns_of, declared_model, design_facts, design_of
from privmix.jobs.public_data import refuse_private
from privmix.jobs.release_folder import Release
from privmix.jobs.release_options import DEFAULT_CLIP_NORM, ReleaseOptions
from privmix.learning.table_model import LARGEST_TABLE
from privmix.mechanisms.plan import relation_of, unit_of
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import RunState, beside
from privmix.planning.choice import PlannerChoice
from privmix.planning.config import WHY, ReleaseConfig
from privmix.planning.table import TableForecast, few_for_noise, forecast_table
from privmix.plans.design import Design
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.plans.rows import ReleasePlan
from privmix.progress import Progress, silent
from privmix.releases.folder import RELEASE_FOLDER, ROWS_FILE
from privmix.releases.run import ReleaseRun, check_no_sealed_key
from privmix.releases.series import SeriesStep
from privmix.rounding import exact
from privmix.scratch import ScratchFolder
from privmix.shown import Bars, Shown

if TYPE_CHECKING:
    from privmix.planning.planner import TableChoice


K = TypeVar("K", bound="ReleaseJob")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Planned(PlannedJob["ReleaseJob"], Shown):
    """A release that is planned: no private record was read, except by a private count, which is paid for."""

    # `chosen`: how the planner came to it; None where the user chose. `by_theory`: the mixup degree. `table`: the
    # budget's division, where a table is the goal.
    plan: Plan
    chosen: Chosen | None
    engine: str
    by_theory: bool = False
    table: TableChoice | None = None
    counted: Counted | None = None
    _state: RunState | None = None
    _identity: dict[str, Any] | None = None

    @cached_property
    def extractor(self) -> Extractor:
        if (best := self.choice and self.choice.best) and best.project:
            return Projected(self.job.reader, best.project)
        return self.job.extractor

    @property
    def count_is_private(self) -> bool:
        # Not by the plan: one that another job made may have the declared number as the number of its records.
        return self.job.records is not None or self.job.private_count

    @property
    def choice(self) -> PlannerChoice | None:
        """Every design's prediction, and the best, where the planner was asked."""
        return None if self.chosen is None else self.chosen.choice

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the plan is what it is, where the user left that open, a sentence each."""
        found = () if self.choice is None else tuple(self.choice.reasons)
        if self.table is not None:
            found += tuple(self.table.reasons)
        if self.by_theory and isinstance(self.plan, ReleasePlan):
            found += (f"mixup degree {self.plan.mixup_degree}, by theory: {WHY}",)
        return found

    @property
    def told(self) -> tuple[str, ...]:
        """Notes on its making, a line each: the reason for the plan, and the place of the sealed key."""
        names = f"{PUBLISHED_NAMES}: {shown_names(self.job.published_names)}"
        found = [*([f"design: {self.reasons[0]}"] if self.reasons else []), names]
        if (auditor := self.job.auditor) is not None:
            told = f"for {auditor.terms.whom} until {auditor.until}: give it to no other person"
            place = None if self.job.out is None else beside(Path(self.job.out), SEALED_FILE)
            found.append(f"sealed key: {place}, {told}")
        return tuple(found)

    @property
    def cost(self) -> PrivacyCost:
        """Epsilon at the delta asked for, an upper bound."""
        return self.plan.cost()

    @cached_property
    def forecast(self) -> TableForecast | None:
        """Noise in pairs of a table's columns; None where the release has no table of pairs."""
        reader = self.job.reader
        if not isinstance(reader, Tabular) or self.plan.dim > LARGEST_TABLE:
            return None
        columns = columns_of(reader)
        return forecast_table(self.plan, columns) if any(one.told for one in columns) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the owner before it is carried out, a sentence each."""
        found = []
        if (few := few_for_noise(self.plan, self.job.epsilon, self.job.delta)) is not None:
            found.append(few)
        if self.forecast is not None and self.forecast.warning is not None:
            found.append(self.forecast.warning)
        least = 1 / self.plan.most_units
        if self.job.delta >= least:
            found.append(f"delta {exact(self.job.delta)} is not below 1/{unit_of(self.plan).many} = {least:.3g}")
        plain = self.job.reader.name == "identity"
        if plain and self.job.clip_norm == DEFAULT_CLIP_NORM and not self.job.resume:
            found.append(
                f"features are plain numbers and the clipping bound is {DEFAULT_CLIP_NORM:g}, its default. Longer "
                f"records keep only their proportions, so a column of large numbers hides the others. Choose a bound "
                f"from public ranges (`clip_norm`), or declare ranges and categories (`features` tabular:SPEC.json)"
            )
        if (auditor := self.job.auditor) is not None:
            found.append(
                f"the run's key is not destroyed but sealed for {auditor.terms.whom}, until {auditor.until}: anyone "
                f"who opens it can remove all noise"
            )
        if self.job.seed is not None:
            found.append("`seed` makes the noise reproducible: this release is NOT private")
        return (*found, *filter(None, [self.job.opened.source.unread]))

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": self.plan.to_dict(),
            "epsilon": self.job.epsilon,
            "delta": self.job.delta,
            "adjacency": self.plan.adjacency.value,
            **({} if self.plan.per_person is None else {"unit": unit_of(self.plan).one}),
            "choice": None if self.choice is None else self.choice.to_dict(),
            **({} if self.table is None else {"table": self.table.to_dict()}),
            "published_names": self.job.published_names,
        }

    def facts(self) -> dict[str, str]:
        plan, job = self.plan, self.job
        relation = relation_of(plan.adjacency.value, unit_of(plan))
        expected: dict[str, str] = {}
        if (choice := self.choice) is not None:
            forecast = choice.shown()[1]
            told = f"{forecast['forecast']} (forecast; assumed without privacy: {forecast['assumed without privacy']})"
            expected = {"expected accuracy": told}
        return {
            "target": f"epsilon {exact(job.epsilon)}, delta {exact(job.delta)}, adjacency {relation}",
            **({} if job.seed is not None else {"in words": Guarantee.of_plan(plan).odds}),
            **expected,
            "design": plan.design,
            f"{plan.counted}, features, classes": f"{plan.records:,}, {plan.dim:,}, {plan.num_classes:,}",
            **design_facts(plan),
            **({} if job.with_rows is None else {"rows of the table": f"{job.with_rows:,}, in {ROWS_FILE}"}),
            PUBLISHED_NAMES: shown_names(self.job.published_names),
        }

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return "Planned release", {
            **self.facts(),
            **({"why": " ".join(self.reasons)} if self.reasons else {}),
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def picture(self) -> Bars | None:
        return self.plan.picture() if self.choice is None else self.choice.picture()

    def __str__(self) -> str:
        told = [f"warning: {text}" for text in self.warnings]
        return "\n".join([*(f"{name}: {value}" for name, value in self.facts().items()), *self.reasons, *told])


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseJob(ReleaseOptions, Job[Planned, Certificate]):
    """A release of one private dataset: :meth:`plan` it, then :meth:`carry_out` the plan.

    Formal guarantees: those of :class:`privmix.jobs.job.Job`. A private count is a charge of its own, made before it is
    drawn, once for a run; both charges pay for the one release that there is.
    """

    made: ClassVar[str] = "release"
    runs: ClassVar[type[Run] | None] = ReleaseRun
    in_series: ClassVar[bool] = False
    """Whether the release is a step of a series, which keeps a key."""

    @cached_property
    def reader(self) -> Extractor:
        """The public extractor of raw inputs, projected where that is asked for."""
        found = parse_features(self.features)
        if self.project is None:
            return found
        return Projected(found, check_integer("project", self.project, low=1))

    @cached_property
    def extractor(self) -> Extractor:
        return self.reader.with_columns(self.opened.source.number_names)

    @cached_property
    def opened(self) -> Dataset:
        return open_dataset(
            self.data,
            self.reader,
            split=self.split,
            classes=self.classes,
            columns=self.declared,
            input_shape=self.known_shape,
        )

    @property
    def known_shape(self) -> tuple[int, ...] | None:
        """Shape of an input, where an earlier release states it."""
        return None

    def check_options(self) -> None:
        if self.out is not None:
            RELEASE_FOLDER.check_target(Path(self.out), overwrite=self.overwrite)
        check_asked(self)
        if (quantile := self.person_quantile) is not None:
            check_number("person_quantile", quantile, low=0, high=1, low_open=True, high_open=True)
            if not self.of_persons or not self.private_count:
                raise InvalidInput("person_quantile", quantile, "only with `person` and `private_count`")
            if (most := self.persons.per_person) is not None:
                raise InvalidInput("per_person", most, "no value with `person_quantile`, which estimates it")
        if (self.persons.per_person or 1) > 1 and not self.private_count:
            allowed = "1 without `private_count`: for larger values the total weight of all persons is private"
            raise InvalidInput("per_person", self.persons.per_person, allowed)
        if self.given_design is not None and not self.dry_run and self.given_design.in_series is not self.in_series:
            allowed = "a design for single releases; for a series use privmix series begin"
            raise InvalidInput("design", self.design_name, allowed)
        if self.given_design is not None and self.assumed.any:
            allowed = "auto with `assume`, and a label (omit `design` or `assume`)"
            raise InvalidInput("design", self.design_name, allowed)
        if self.goal != CLASSIFY:
            check_goal(self.goal, self.reader, design=self.design_name)
        if self.goal == TABLE and self.assumed.proxy is not None:
            raise InvalidInput(
                "assume proxy", WITHHELD, f"no proxy with `goal` {TABLE}, which takes shares from the specification"
            )
        self.assumed.check(of_persons=self.of_persons)
        if self.auditor is not None and not self.resume:
            # A run that goes on keeps to the day that it began with.
            if self.out is not None:
                check_no_sealed_key(Path(self.out))
            today = datetime.now(UTC).date().isoformat()
            if self.auditor.until < today:
                raise InvalidInput("replay_for until", self.auditor.until, f"today ({today}, UTC) or a later day")
        # Evaluated for their errors: a missing licence file or engine is found before the charge.
        _ = self.about.licence_text()
        _ = self.machine
        refuse_private({"proxy": self.assumed.proxy}, self.data, self.split)
        check_number("epsilon", self.epsilon, low=0, low_open=True)
        check_number("delta", self.delta, low=0, high=1, high_open=True)

    @cached_property
    def config(self) -> ReleaseConfig:
        """The release's config; where the count is private, its record count is a stand-in."""
        schema = self.opened.schema
        weighs = (self.persons.per_person or 1) > 1 or self.person_quantile is not None
        rows = self.goal == TABLE or self.with_rows is not None or self.declared.label is None
        config = ReleaseConfig(
            # A private count is a query that costs: with a stand-in, all other errors show before it.
            records=STAND_IN if self.private_count else schema.records if self.records is None else self.records,
            dim=self.reader.output_dim(schema.input_shape),
            classes=tuple(schema.classes),
            # Stand-in for the planner's choice. It weighs persons where the choice will: checks of K come first.
            design=self.given_design or Poisson(mixup_degree=1, person_mean=weighs),
            rows=self.rows,
            clip_norm=self.clip_norm,
            centre=self.centre,
            residual_clip_norm=self.reader.usual.bound(self.residual_clip_norm, rows=rows),
            records_noise_multiplier=count_noise(self.epsilon, self.delta) if self.private_count else None,
            records_declared=self.records is not None,
            channels=self.reader.channels(schema.input_shape),
            per_person=(self.persons.per_person or 1) if self.of_persons else None,
            person_quantile=self.person_quantile,
        )
        if config.design.fixed_size and not self.of_persons and config.records != schema.records:
            allowed = f"no value for design {self.design_name}, which uses the real record count"
            raise InvalidInput("records", self.records, allowed)
        return config

    @cached_property
    def given_design(self) -> Design[Any] | None:
        # Without a label one design is left, for every goal.
        return design_of(self.design) or (Moments() if self.declared.label is None else None)

    @cached_property
    def machine(self) -> Local:
        return machine_of(self.engine, None if self.design_name == AUTO else self.design_name)

    @cached_property
    def about(self) -> About:
        return About.of(self.metadata)

    @property
    def published_names(self) -> dict[str, list[str]]:
        """Names in the data that the release states; rows of the table have the label column's, too."""
        found = self.opened.published_names
        label = [] if self.with_rows is None or self.declared.label is None else [self.declared.label]
        return {**found, "columns": [*found["columns"], *label]}

    def plan(self, progress: Progress = silent, made: Planned | None = None) -> Planned:
        """Make the plan from public facts, after all checks; `made` by a job of the same settings is reused."""
        # Only a private count is read, once it is paid for.
        self.check()
        self.persons.check(self.opened)
        config = self.config
        state = None if self.dry_run else self.left()
        identity = None
        if state is not None and "data" in state.extra:
            # A paid run releases the data that it began with: compare them before the ledger notes any other.
            identity = self.opened.identity()
            if state.extra["data"] != identity and not state.refused:
                raise InvalidInput(
                    "resume", WITHHELD, "the records of the interrupted run: the same data, split and columns"
                )
        if state is not None and state.refused and self.private_count and self.auditor is not None:
            # The records that take the place of the refused ones get a fresh key, which drew no count.
            raise InvalidInput("resume", True, "a new run: a run with a private count needs the same records")
        key, chosen, engine, counted = RunKey(self.seed), None, self.machine.name, None
        table = None if made is None else made.table
        if made is not None:
            plan, chosen, by_theory = self._fitting(made, config), made.chosen, made.by_theory
        else:
            if self.private_count:
                # A plan with some noise shows what no plan would be made of, before the count is paid for.
                draft = config.draft()
                self._check_rows(None if self.given_design is None else draft)
                counted = count(self, config, key, state)
                # The count began the run, which is then no other job's.
                state = self.left() if key.run is None else self.left(key.run)
                config = replace(config, records=counted.found.records, per_person=counted.found.per_person)
            with telling(
                self.count_spending(config.records_noise_multiplier, None if counted is None else counted.charge)
            ):
                if self.goal == TABLE and self.given_design is None:
                    from privmix.planning.planner import choose_table

                    # By its specification alone.
                    assert isinstance(self.reader, Tabular)
                    model, _ = declared_model(config, self.assumed, self.reader)
                    table = choose_table(config, self.epsilon, self.delta, columns_of(self.reader), model)
                    config = table.config if self.rows is None else replace(table.config, rows=self.rows)
                elif self.given_design is None:
                    chosen, config = self._chosen(config, progress)
                plan, by_theory = self._calibrated(config), config.design.largest_degree(config) is not None
        self._check_rows(plan)
        if made is not None or self.given_design is None:
            # Moments need no cluster, and a user who lets the planner choose does not choose against it.
            engine = engine if engine in made_by(plan).engines else "local"
        return Planned(
            job=self,
            key=key,
            earlier=() if counted is None else (counted.charge,),
            counted=counted,
            plan=plan,
            chosen=chosen,
            engine=engine,
            by_theory=by_theory,
            table=table,
            _state=state,
            _identity=identity,
        )

    def _check_rows(self, plan: Plan | None) -> None:
        if self.with_rows is not None:
            from privmix.jobs.sampling import check_rows

            check_rows(self.with_rows, self.declared.label, self.reader, plan)

    def _calibrated(self, config: ReleaseConfig) -> Plan:
        return config.calibrate(self.epsilon, self.delta)

    def _step_for(self, planned: Planned) -> SeriesStep | None:
        return None

    def _chosen(self, config: ReleaseConfig, progress: Progress) -> tuple[Chosen, ReleaseConfig]:
        shape = tuple(self.opened.schema.input_shape)
        given = (config, self.epsilon, self.delta, self.assumed, self.extractor, self.declared, shape, progress)
        # A store serves other releases too.
        chosen = choose(*given, project=self.store is None)
        best = chosen.choice.best.config
        return chosen, best if self.rows is None else replace(best, rows=self.rows)

    @staticmethod
    def _fitting(made: Planned, config: ReleaseConfig) -> Plan:
        """Return the plan, if it is one of these public facts."""
        if made.plan.records_noise_multiplier is not None:
            # The count was estimated and paid for by that job, and is noise about that job's data.
            raise InvalidInput("plan", "a plan with a private count", "a plan of public facts only")
        facts = {name: getattr(made.plan, name) for name in ("records", "dim", "classes", "per_person")}
        if made.choice is not None and made.choice.best.project:
            # The plan's features are projected: compare those before the projection.
            facts["dim"] = made.job.config.dim
        for name, value in facts.items():
            if value != getattr(config, name):
                # The count may be one that was not declared public.
                raise InvalidInput("plan", WITHHELD, f"a plan for this dataset: {name} differ")
        return made.plan

    def check_resumed(self, planned: Planned, state: RunState) -> None:
        if planned._state is None or planned._state.id != state.id:
            raise InvalidInput("planned", "another run's", "the plan of the interrupted run: call `plan` again")

    def cost(self, planned: Planned) -> JobCost:
        plan = planned.plan
        # Not its event: with a private count, that follows from the estimate.
        return JobCost(plan.charge, plan.adjacency, "release", self.epsilon, self.delta, unit_of(plan).one)

    def called_public(self, planned: Planned) -> tuple[Mapping[str, InputHashes], Iterable[tuple[str, Sketch]]]:
        chosen = planned.chosen
        return ({}, ()) if chosen is None else (chosen.public, chosen.made_of)

    def equip(self, planned: Planned, ends: ExitStack) -> None:
        if planned.engine == "ray":
            assert self.out is not None
            source = self.opened.source
            assert self.machine.cluster is not None
            ends.enter_context(self.machine.cluster.open())
            place = Path(self.out if self.store is None else self.store)
            # Data and features travel as paths: every machine has to see them.
            check_places(place.parent, source.manifest().files if source.travels else ())

    def extra(self, planned: Planned) -> dict[str, Any]:
        # To hash large data takes minutes: a plan that resumes has done it.
        return {"data": planned._identity or self.opened.identity()}

    def open_run(self, planned: Planned, in_ledger: str, given: RunArguments) -> ReleaseRun:
        assert self.out is not None
        chosen, state = planned.chosen, planned._state
        return ReleaseRun(
            Path(self.out),
            planned.plan,
            extractor=planned.extractor.spec(),
            # A run that resumes keeps its first date, which its settings state.
            about=self.about.dated(None if state is None else state.settings.get("about")),
            input_shape=self.opened.schema.input_shape,
            in_ledger=in_ledger,
            choice=None if chosen is None else chosen.choice.to_dict(),
            picture=None if chosen is None else chosen.picture,
            auditor=self.auditor,
            series=self._step_for(planned),
            table_rows=self._table_rows(planned),
            **given,
        )

    def _table_rows(self, planned: Planned) -> Callable[[Any, Any], bytes] | None:
        """Return what makes the table's rows of released arrays and mean, where they are to be in the folder."""
        if self.with_rows is None:
            return None
        from privmix.jobs.sampling import rows_file

        plan, spec, rows, label = planned.plan, planned.extractor.spec(), self.with_rows, self.declared.label
        return lambda beside, centre: rows_file(plan, spec, beside, centre, rows, label)

    def read(self, planned: Planned, work: Work, progress: Progress) -> PrivateRecords | FeatureStore:
        """Features, on disk where asked for or where they would fill the memory; and whose they are."""
        assert isinstance(work.run, ReleaseRun)
        # The cheaper part first: what does not fit ends the run before features are made.
        if (whose := self.whose()) is not None:
            check_same_persons(planned.counted, whose)
            check_persons(len(records_of_each(whose)), planned.plan)
        machine, extractor = self.machine, planned.extractor
        cluster = machine.cluster if planned.engine == "ray" else None
        store = None if self.store is None else Path(self.store)
        place = features_place(self.opened, extractor, store, work.run.features_folder, cluster)
        given = (self.opened, extractor, whose, place, machine.memory_gb, progress)
        return records_of(*given, cluster=cluster, workers=machine.workers)

    def compute(self, planned: Planned, work: Work, records: Any, progress: Progress) -> Certificate:
        assert isinstance(work.run, ReleaseRun)
        return work.run.release(
            records,
            reservation=work.charged.reserved,
            engine=planned.engine,
            memory_gb=self.machine.memory_gb,
            workers=self.machine.workers,
            address=getattr(self.machine, "address", None),
            progress=progress,
        )

    def noted(self, result: Certificate) -> str:
        return f"release {result.id}"


def job_of(kind: type[K], asked: Any, **more: Any) -> K:
    """Return the job of a command's options; `more` overrides these, and adds others of `kind`."""
    names = [item.name for item in fields(ReleaseOptions) if item.init and hasattr(asked, item.name)]
    return kind(**{**{name: getattr(asked, name) for name in names}, **more})


def made_release(
    job: ReleaseJob, made: Planned | None, progress: Progress, scratch: ScratchFolder | None = None
) -> Release:
    """Plan a job, or take its plan, and make the release; warnings for its owner come before the charge."""
    assert job.out is not None
    planned = job.plan(progress, made)
    for text in planned.warnings:
        warn(text)
    for text in job.carry_out(planned, progress).warnings:
        warn(text)
    return Release(job.out, scratch, planned.told, job.declared.label)
