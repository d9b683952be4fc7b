"""One release, from a dataset and a budget to a folder, in the order that makes its certificate true."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from privmix.accounting import Adjacency, Event, Gaussian, epsilon
from privmix.certificate.certificate import Certificate
from privmix.data import FeatureStore
from privmix.data.overlap import Sketch
from privmix.engine import PrivateRecords
from privmix.engine.rows import default_memory
from privmix.errors import WITHHELD, InvalidInput, StorageError, check_integer, check_number
from privmix.features import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.features.whitening import WhiteningConfig
from privmix.jobs.budget import Charge, charge
from privmix.jobs.checks import check_budget, check_same_seed
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.engines import check_engine
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.overlap import refuse_overlap
from privmix.jobs.places import check_writable
from privmix.jobs.planned import Planned
from privmix.jobs.planning import Chosen, choose, design_of
from privmix.jobs.progress import Progress, silent
from privmix.jobs.public_data import origins_of, refuse_private
from privmix.jobs.public_prior import Opened, open_public
from privmix.jobs.release_options import AUTO, ReleaseOptions
from privmix.jobs.spending import Spending, telling
from privmix.mechanisms.plan import check_price
from privmix.mechanisms.run_place import RunState
from privmix.planning import ReleaseConfig
from privmix.plans import Plan, made_by
from privmix.plans.pricing import count_noise, private_record_count
from privmix.private_files import no_core_dumps
from privmix.releases import ReleaseRun, SecretStreams
from privmix.releases.folder import RELEASE_FOLDER

# More records than any setting asks for, and no more than any design can take.
_STAND_IN: Final = 2**23


@dataclass(frozen=True)
class Released:
    """A release that is done.

    Attributes:
        certificate: as it is in the folder.
        not_noted: why a charge of it could not be noted as done, though it was made; one error each.
    """

    certificate: Certificate
    not_noted: tuple[StorageError, ...]


@dataclass(frozen=True, eq=False)
class ReleaseJob(ReleaseOptions):
    """A release of one private dataset: :meth:`plan` it, then :meth:`release` it.

    Formal guarantees:
        * reserve before reading: the ledger is charged, durably, before the first private record is used; a private
          count is a charge of its own, before it is drawn;
        * one charge: a run that goes on after a kill is not charged again, and only with the data, split and columns
          that it began with; one whose records were refused before anything was drawn goes on with others of the same
          dataset, under a fresh key: what was charged then pays for the one release that there is;
        * one seed: a run goes on with the seed that it began with, or without one;
        * told: an error after a charge says what was charged, what is left and how to go on (:class:`Spent`);
        * one plan: what is charged, released and certified is the same plan, which this job made, and made once;
        * checked first: options that do not go together, places that can't be written and budgets that no noise meets
          are refused before anything is charged.
    """

    @cached_property
    def reader(self) -> Extractor:
        """The public extractor of raw inputs, projected where that is asked for."""
        found = parse_features(self.features)
        if self.project is None:
            return found
        return Projected(found, check_integer("project", self.project, low=1))

    @property
    def plain_numbers(self) -> bool:
        """Whether features are numbers as they stand in the data, on whatever scale."""
        return self.public is None and self.reader.name == "identity"

    @cached_property
    def public(self) -> Opened | None:
        """The public data that its features are whitened by, not read yet."""
        return (
            open_public(self.prior, self.reader, self.opened.schema, self.columns)
            if self.prior.public is not None
            else None
        )

    @cached_property
    def extractor(self) -> Extractor:
        """The public extractor of what is released; where there are public data, they are read for it."""
        if self.public is None:
            return self.reader.with_columns(self.opened.source.number_names)
        centred = (self.centre or self.config.design.centre) != "none"
        return self.public.whitened(self.reader, self.clip_norm * (self.residual_clip_norm if centred else 1.0), silent)

    @cached_property
    def opened(self) -> Dataset:
        """The dataset; opening it reads no record."""
        return open_dataset(self.data, self.reader, split=self.split, classes=self.classes, columns=self.columns)

    @cached_property
    def _origins(self) -> list[tuple[str, Sketch]]:
        """What the public data were made of, where they are synthetic."""
        return [] if self.public is None else origins_of({"public": self.public.source})

    def check(self) -> None:
        """Raise where options do not go together or places can't be written; reads no record.

        Raises:
            InvalidInput: options do not go together or are out of range.
            StorageError: a place can't be written.
            MissingExtra: ray is asked for and not installed.
        """
        if self.out is not None:
            RELEASE_FOLDER.check_target(self.out, overwrite=self.overwrite)
        check_budget(self.ledger, self.dataset, self.seed, "a release")
        if self.private_count and (self.records is not None or self.dry_run):
            raise InvalidInput("private_count", True, "neither with `records` nor with `dry_run`: it reads the count")
        design_of(self.design, self.options)
        if self.design != AUTO and self.assumptions.given:
            raise InvalidInput(
                "design", self.design_name, "auto with `proxy`, `attainable`, `spectrum_decay` or `between_share`"
            )
        self.assumptions.check()
        self.prior.check()
        _ = self.about.licence_text()
        check_engine(self.engine, self.design_name, self.memory_gb, self.workers, self.ray_address)
        for name, place in (("out", None if self.out is None else self.out.parent), ("store", self.store)):
            if place is not None and not self.dry_run:
                check_writable(name, place)
        refuse_private({"proxy": self.assumptions.proxy, "public": self.prior.data}, self.data, self.split)
        check_number("epsilon", self.epsilon, low=0, low_open=True)
        check_number("delta", self.delta, low=0, high=1, high_open=True)

    @cached_property
    def config(self) -> ReleaseConfig:
        """What the release is to be; where the count is private, its record count is a stand-in.

        Raises:
            InvalidInput: a value is out of range, or what the design asks for is not given.
        """
        schema = self.opened.schema
        config = ReleaseConfig(
            # A private count is a query that costs: whatever else is wrong shows before it, with a stand-in.
            records=_STAND_IN if self.private_count else schema.records if self.records is None else self.records,
            dim=self._dim(self.reader.output_dim(schema.input_shape)),
            classes=tuple(schema.classes),
            **design_of(self.design, self.options),
            rows=self.rows,
            clip_norm=self.clip_norm,
            centre=self.centre,
            residual_clip_norm=self.residual_clip_norm,
            records_noise_multiplier=count_noise(self.epsilon, self.delta) if self.private_count else None,
            records_declared=self.records is not None,
            # What whitens features turns their axes, too.
            channels=self.reader.channels(schema.input_shape) if self.public is None else 1,
            whitened=self.public is not None,
        )
        if config.design.fixed_size and config.records != schema.records:
            allowed = f"the real record count (leave it out) for design {self.design_name}"
            raise InvalidInput("records", self.records, allowed)
        return config

    def _dim(self, features: int) -> int:
        return features if self.public is None else WhiteningConfig().dim(features)

    def plan(self, progress: Progress = silent, made: Planned | None = None) -> Planned:
        """Check everything and make the plan from public facts. Only a private count is read, once it is paid for.

        Args:
            progress: called while the planner works.
            made: by a job of the same settings before; it is taken, if the data are as it was made for.

        Raises:
            InvalidInput, StorageError, MissingExtra: as :meth:`check`; or the data do not open, or an interrupted run
                is not as ``resume`` says.
            BudgetExceeded: the ledger does not hold a private count.
        """
        self.check()
        config = self.config
        state = None
        if self.out is not None and not self.dry_run:
            state = ReleaseRun.check(self.out, overwrite=self.overwrite, resume=self.resume)
        identity = None
        if state is not None and state.extra:
            # What was paid for is a release of the data that the run began with: before the ledger notes any other.
            check_same_seed(state, self.seed)
            identity = self.opened.identity()
            if state.extra.get("data") != identity and not state.refused:
                raise InvalidInput("resume", WITHHELD, "the records of the interrupted run: its data, split, columns")
        streams = None if self.resume or self.dry_run else _streams(self.seed)
        # A card that can't be read is found before anything is paid for.
        _ = self._origins
        if made is not None:
            engine = self.engine if self.engine in made_by(made.plan).engines else "local"
            plan = self._fitting(made, config)
            given = (engine, state, streams, Charge(), identity)
            return Planned(self, plan, made.chosen, *given, by_theory=made.by_theory)
        with telling(self._told()) as told:
            counted, chosen, engine = Charge(), None, self.engine
            if self.private_count:
                # A plan with some noise shows what no plan would be made of, before the count is paid for.
                config.draft()
                count, counted = self._count(streams, state, told)
                config = replace(config, records=count)
            if self.design == AUTO:
                chosen, config = self._chosen(config, progress)
                # Moments need no cluster, and whoever lets the planner choose does not choose against it.
                engine = engine if engine in config.design.engines else "local"
            plan = config.calibrate(self.epsilon, self.delta)
            by_theory = config.design.left_to_theory
            return Planned(self, plan, chosen, engine, state, streams, counted, identity, by_theory=by_theory)

    def _chosen(self, config: ReleaseConfig, progress: Progress) -> tuple[Chosen, ReleaseConfig]:
        """What the planner chose, and what is to be released then."""
        shape = tuple(self.opened.schema.input_shape)
        # What whitens features need not be read where the planner has no records to look at.
        extractor = self.reader if self.assumptions.proxy is None else self.extractor
        chosen = choose(config, self.epsilon, self.delta, self.assumptions, extractor, self.columns, shape, progress)
        best = chosen.choice.best.config
        return chosen, best if self.rows is None else replace(best, rows=self.rows)

    @staticmethod
    def _fitting(made: Planned, config: ReleaseConfig) -> Plan:
        """The plan, if it is one of these public facts."""
        if made.plan.records_noise_multiplier is not None:
            # The count was estimated and paid for by that job, and is noise about that job's data.
            raise InvalidInput("plan", "one made with a private count", "one of public facts alone")
        for name in ("records", "dim", "classes"):
            if getattr(made.plan, name) != getattr(config, name):
                # The count may be one that nobody declared public.
                raise InvalidInput("plan", WITHHELD, f"one made for this dataset: its {name} differ")
        return made.plan

    def release(self, planned: Planned, progress: Progress = silent) -> Released:
        """Charge, read, release and publish; what is planned is used up by it.

        Raises:
            BudgetExceeded: the ledger does not hold it; nothing was read.
            InvalidInput: what is planned is another job's, or used up, or something is in its place by now: nothing is
                charged then. Or a record is not as declared, or public records are private ones: what was charged is
                spent.
            StorageError: reading or writing failed. What was charged is spent; ``resume`` finishes the run.
        """
        no_core_dumps()
        self._check_own(planned)
        assert self.out is not None
        plan, state, chosen = planned.plan, planned._state, planned.chosen
        check_price(plan)
        ReleaseRun.check(self.out, overwrite=self.overwrite, resume=self.resume)
        extractor, public = self._fitted(state), {} if chosen is None else dict(chosen.public)
        public |= {} if self.public is None else self.public.contents()
        made_of = [*self._origins, *([] if chosen is None else chosen.made_of)]
        with telling(self._told(planned)) as told:
            # Before the first private row is read: a crash from here on leaves the budget spent.
            if self.resume:
                charged = self._charged_before(state, "reservation")
            else:
                charged = told.charged = self._charge(plan.charge, plan.adjacency, "release")
                told.epsilon = self.epsilon
            refuse_overlap(public, self.opened.source, made_of)
            identity = planned._identity or self.opened.identity()
            with ReleaseRun(
                self.out,
                plan,
                extractor=extractor.spec(),
                extractor_arrays=extractor.arrays(),
                about=self.about.dated(None if state is None else state.settings.get("about")),
                input_shape=self.opened.schema.input_shape,
                reservation=charged.reserved,
                choice=None if chosen is None else chosen.choice.to_dict(),
                picture=None if chosen is None else chosen.picture,
                streams=planned._streams,
                extra={
                    "reservation": charged.note(),
                    "count": planned._counted.note(),
                    "data": identity,
                    "seed": self.seed,
                },
                overwrite=self.overwrite,
                resume=self.resume,
                paid=charged.reservation is not None,
            ) as run:
                told.charged, told.run, told.epsilon = charged, run, self.epsilon
                found = None if run.complete else self._records(run, extractor, progress)
                certificate = run.release(
                    found,
                    engine=planned.engine,
                    memory_gb=self.memory_gb,
                    workers=self.workers,
                    address=self.ray_address,
                    progress=progress,
                )
        return Released(certificate, _note_done((planned._counted, charged), f"release {certificate.id}"))

    def _told(self, planned: Planned | None = None) -> Spending:
        """What is to be told of the cost before the release itself is charged: that of a private count."""
        if not self.private_count or self.resume:
            return Spending(self.epsilon, self.delta)
        assert self.config.records_noise_multiplier is not None
        cost = epsilon(Gaussian(self.config.records_noise_multiplier), self.delta).epsilon
        return Spending(cost, self.delta, None if planned is None else planned._counted, drawn=planned is not None)

    def _check_own(self, planned: Planned) -> None:
        """Raise unless :meth:`plan` of this very job made it, and it was not carried out yet."""
        if planned.job is not self:
            # Seed, target, and a count that was paid for, are those of the job that was checked.
            raise InvalidInput("planned", "another job's", "what `plan` of this job gave")
        if planned._streams is not None and not planned._streams.live:
            raise InvalidInput("planned", "used up", "a plan that was not carried out yet: plan again")

    def _charge(self, event: Event, adjacency: Adjacency, purpose: str) -> Charge:
        return charge(self.ledger, self.dataset, event, adjacency, purpose, self.opened)

    def _count(self, streams: SecretStreams | None, state: RunState | None, told: Spending) -> tuple[int, Charge]:
        """An estimate of the private record count to plan with, and what that was charged."""
        if state is not None:
            # A second estimate would be a second query.
            return state.settings["plan"]["records"], self._charged_before(state, "count")
        assert streams is not None
        assert self.config.records_noise_multiplier is not None
        noise = self.config.records_noise_multiplier
        charged = self._charge(Gaussian(noise), Adjacency.ADD_REMOVE, "private record count")
        told.charged, told.drawn = charged, True
        return private_record_count(self.opened.schema.records, noise, streams), charged

    def _charged_before(self, state: RunState | None, what: str) -> Charge:
        """What an interrupted run was charged."""
        assert state is not None
        if state.complete and not state.extra:
            # The kill came after its notes were removed; all that is left is to rename a folder.
            return Charge()
        return Charge.again(self.ledger, self.dataset, state.extra.get(what), self.opened)

    def _fitted(self, state: RunState | None) -> Extractor:
        """The extractor; an interrupted run's own fit to public data, where there are any."""
        if state is None or self.public is None:
            return self.extractor
        assert self.out is not None
        return self.public.again(self.reader, state.settings["extractor"], ReleaseRun.kept_arrays(self.out, state))

    def _records(self, run: ReleaseRun, extractor: Extractor, progress: Progress) -> PrivateRecords | FeatureStore:
        """Features, on disk where asked for or where they would fill the memory."""
        schema = self.opened.schema
        large = 4 * schema.records * extractor.output_dim(schema.input_shape) > default_memory() / 2
        if self.store is None and not large:
            return features_in_memory(self.opened.source, extractor, progress)
        place = self.store or run.features_folder
        return features_on_disk(self.opened, extractor, place, progress)


def _streams(seed: int | None) -> SecretStreams:
    return SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)


def _note_done(charges: tuple[Charge, ...], result: str) -> tuple[StorageError, ...]:
    """Note them as done; the budget was charged before, so that what can go wrong is a missing note."""
    errors = []
    for one in charges:
        try:
            one.done(result)
        except StorageError as error:
            errors.append(error)
    return tuple(errors)
