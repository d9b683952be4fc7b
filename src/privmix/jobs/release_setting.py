"""Setting of a release, from options and public facts of the data; no private record is read for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from privmix.accounting.pricing import count_noise
from privmix.certificate.about import About
from privmix.certificate.sealed_key import SEALED_FILE, Auditor
from privmix.designs.moments.plan import Moments
from privmix.designs.rows.poisson import Poisson
from privmix.errors import WITHHELD, InvalidInput, check_integer, check_number
from privmix.features.base import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.jobs.counting import STAND_IN, check_asked
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.options import AUTO, CLASSIFY, TABLE, Local, machine_of
from privmix.jobs.planner import check_goal, design_of
from privmix.jobs.public_data import refuse_private
from privmix.jobs.release_options import ReleaseOptions
from privmix.mechanisms.run_folder import beside
from privmix.planning.config import ReleaseConfig
from privmix.plans.design import Design
from privmix.releases.folder import RELEASE_FOLDER
from privmix.releases.run import check_no_sealed_key


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseSetting(ReleaseOptions):
    """The options of a release, and what follows from them with the dataset opened."""

    in_series: ClassVar[bool] = False
    """Whether the release is a step of a series, which keeps a key."""

    @cached_property
    def reader(self) -> Extractor:
        """The public extractor of raw inputs, projected where that is asked for."""
        found = parse_features(self.features)
        if self.project is None:
            return found
        return Projected(found, check_integer("project", self.project, low=1))

    @property
    def plain_numbers(self) -> bool:
        """Whether features are numbers as they stand in the data, on any scale."""
        return self.reader.name == "identity"

    @cached_property
    def extractor(self) -> Extractor:
        """The public extractor of what is released."""
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

    @property
    def sealed_key(self) -> Path | None:
        """Path of the sealed key, if there is one: next to the release."""
        return None if self.auditor is None or self.out is None else beside(Path(self.out), SEALED_FILE)

    def check_options(self) -> None:
        if self.out is not None:
            RELEASE_FOLDER.check_target(Path(self.out), overwrite=self.overwrite)
        check_asked(self.private_count, self.records, dry_run=self.dry_run, most_per_person=self.most_per_person)
        if self.of_persons and self.records is None and not self.private_count:
            allowed = "the number of persons: declare it, or estimate it with `private_count`"
            raise InvalidInput("records", None, allowed)
        if self.person_quantile is not None:
            self._check_quantile(self.person_quantile)
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
        if self.auditor is not None:
            self._check_replay(self.auditor)
        # Evaluated for their errors: a missing licence file or engine is found before the charge.
        _ = self.about.licence_text()
        _ = self.machine
        refuse_private({"proxy": self.assumed.proxy}, self.data, self.split)
        check_number("epsilon", self.epsilon, low=0, low_open=True)
        check_number("delta", self.delta, low=0, high=1, high_open=True)

    def _check_quantile(self, quantile: float) -> None:
        check_number("person_quantile", quantile, low=0, high=1, low_open=True, high_open=True)
        if not self.of_persons or not self.private_count:
            raise InvalidInput("person_quantile", quantile, "only with `person` and `private_count`")
        if self.persons.per_person is not None:
            raise InvalidInput(
                "per_person", self.persons.per_person, "no value with `person_quantile`, which estimates it"
            )

    def _check_replay(self, auditor: Auditor) -> None:
        if self.out is not None and not self.resume:
            check_no_sealed_key(Path(self.out))
        today = datetime.now(UTC).date().isoformat()
        # A run that goes on keeps to the day that it began with.
        if auditor.until < today and not self.resume:
            raise InvalidInput("replay_for until", auditor.until, f"today ({today}, UTC) or a later day")

    @cached_property
    def config(self) -> ReleaseConfig:
        """The release's config; where the count is private, its record count is a stand-in."""
        schema = self.opened.schema
        weighs = (self.persons.per_person or 1) > 1 or self.person_quantile is not None
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
            residual_clip_norm=self.residual_clip_norm,
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
