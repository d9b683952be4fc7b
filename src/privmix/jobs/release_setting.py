"""What is to be released, from options and public facts of the data; no private record is read for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix.accounting.pricing import count_noise
from privmix.certificate.sealed_key import SEALED_FILE, Auditor
from privmix.data.overlap import Sketch
from privmix.errors import WITHHELD, InvalidInput, MissingExtra, check_choice, check_integer, check_number
from privmix.features import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.features.whitening import WhiteningConfig
from privmix.jobs.counting import STAND_IN, check_asked
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.options import AUTO, CLASSIFY, TABLE
from privmix.jobs.planning import check_goal, design_of
from privmix.jobs.public_data import origins_of, refuse_private
from privmix.jobs.public_prior import Opened, open_public
from privmix.jobs.release_options import ReleaseOptions
from privmix.mechanisms.run_folder import beside
from privmix.planning import ReleaseConfig
from privmix.plans import design_named
from privmix.progress import silent
from privmix.releases.folder import RELEASE_FOLDER
from privmix.releases.run import check_no_sealed_key

ENGINES: Final = ("local", "ray")


@dataclass(frozen=True, eq=False)
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
    def auditor(self) -> Auditor | None:
        """Whom the run's key is sealed for at its end, if anybody."""
        return self.replay.auditor()

    @property
    def sealed_key(self) -> Path | None:
        """Where the sealed key goes, if there is one: beside the release."""
        return None if self.auditor is None or self.out is None else beside(self.out, SEALED_FILE)

    @property
    def of_persons(self) -> bool:
        """Whether a person with all records is the unit of privacy."""
        return self.persons.declared(self.columns.person)

    @cached_property
    def origins(self) -> list[tuple[str, Sketch]]:
        """What the public data were made of, where they are synthetic."""
        return [] if self.public is None else origins_of({"public": self.public.source})

    def check_options(self) -> None:
        """See :meth:`privmix.jobs.job.Job.check_options`."""
        if self.out is not None:
            RELEASE_FOLDER.check_target(self.out, overwrite=self.overwrite)
        check_asked(self.private_count, self.records, dry_run=self.dry_run, most_per_person=self.most_per_person)
        if self.of_persons and self.records is None and not self.private_count:
            allowed = "how many persons there are, which no header tells: declare it, or estimate it by `private_count`"
            raise InvalidInput("records", None, allowed)
        self._check_quantile()
        if (self.persons.per_person or 1) > 1 and not self.private_count:
            allowed = (
                "1 without `private_count`: what persons weigh together is private where those with few weigh less"
            )
            raise InvalidInput("per_person", self.persons.per_person, allowed)
        design_of(self.design, self.options)
        if self.design != AUTO and not self.dry_run and design_named(self.design_name).in_series is not self.in_series:
            allowed = "a design for releases that stand alone: privmix series begin makes a series"
            raise InvalidInput("design", self.design_name, allowed)
        if self.design != AUTO and self.assumptions.given:
            raise InvalidInput(
                "design",
                self.design_name,
                "auto with `proxy`, `attainable`, `spectrum_decay`, `between_share` or `records_per_person`",
            )
        self._check_goal()
        self.assumptions.check(of_persons=self.of_persons)
        self.prior.check()
        self._check_replay()
        _ = self.about.licence_text()
        check_engine(self.engine, self.design_name, self.memory_gb, self.workers, self.ray_address)
        refuse_private({"proxy": self.assumptions.proxy, "public": self.prior.data}, self.data, self.split)
        check_number("epsilon", self.epsilon, low=0, low_open=True)
        check_number("delta", self.delta, low=0, high=1, high_open=True)

    def _check_quantile(self) -> None:
        if self.person_quantile is None:
            return
        check_number("person_quantile", self.person_quantile, low=0, high=1, low_open=True, high_open=True)
        if not self.of_persons or not self.private_count:
            allowed = "nothing without persons whose number is private: `private_count` pays for it"
            raise InvalidInput("person_quantile", self.person_quantile, allowed)
        if self.persons.per_person is not None:
            raise InvalidInput(
                "per_person", self.persons.per_person, "nothing beside `person_quantile`, which finds it"
            )

    def _check_goal(self) -> None:
        if self.goal == CLASSIFY:
            return
        check_goal(self.goal, None if self.public is not None else self.reader, design=self.design_name)
        if self.goal == TABLE and self.assumptions.proxy is not None:
            raise InvalidInput("proxy", WITHHELD, f"nothing with `goal` {TABLE}: shares follow from the specification")
        for name, value in self.options.items():
            raise InvalidInput(name, value, f"no value with `goal` {TABLE}, whose design has no such option")

    def _check_replay(self) -> None:
        if self.auditor is None:
            return
        if self.out is not None and not self.resume:
            check_no_sealed_key(self.out)
        today = datetime.now(UTC).date().isoformat()
        # A run that goes on keeps to the day that it began with.
        if self.auditor.until < today and not self.resume:
            raise InvalidInput("replay_until", self.auditor.until, f"today ({today}, UTC) or a later day")

    @cached_property
    def config(self) -> ReleaseConfig:
        """What the release is to be; where the count is private, its record count is a stand-in.

        Raises:
            InvalidInput: a value is out of range, or what the design asks for is not given.
        """
        schema = self.opened.schema
        config = ReleaseConfig(
            # A private count is a query that costs: whatever else is wrong shows before it, with a stand-in.
            records=STAND_IN if self.private_count else schema.records if self.records is None else self.records,
            dim=self._dim(self.reader.output_dim(schema.input_shape)),
            classes=tuple(schema.classes),
            **self._design(),
            rows=self.rows,
            clip_norm=self.clip_norm,
            centre=self.centre,
            residual_clip_norm=self.residual_clip_norm,
            records_noise_multiplier=count_noise(self.epsilon, self.delta) if self.private_count else None,
            records_declared=self.records is not None,
            # What whitens features turns their axes, too.
            channels=self.reader.channels(schema.input_shape) if self.public is None else 1,
            whitened=self.public is not None,
            per_person=(self.persons.per_person or 1) if self.of_persons else None,
            person_quantile=self.person_quantile,
        )
        if config.design.fixed_size and not self.of_persons and config.records != schema.records:
            allowed = f"the real record count (leave it out) for design {self.design_name}"
            raise InvalidInput("records", self.records, allowed)
        return config

    def _design(self) -> dict[str, Any]:
        """The design and its options; what stands in for the planner's choice weighs persons, as that will."""
        found = design_of(self.design, self.options)
        if self.design == AUTO and ((self.persons.per_person or 1) > 1 or self.person_quantile is not None):
            found["person_mean"] = True
        return found

    def _dim(self, features: int) -> int:
        return features if self.public is None else WhiteningConfig().dim(features)


def check_engine(
    engine: str, design: str, memory_gb: float | None, workers: int | None, ray_address: str | None
) -> None:
    """Raise unless a release can run so: asked before budget is charged, and not when the first row is due.

    Raises:
        InvalidInput: an option is out of range, or does not go with the others.
        MissingExtra: ray is asked for and not installed.
    """
    check_choice("engine", engine, ENGINES)
    if memory_gb is not None:
        check_number("memory_gb", memory_gb, low=0, low_open=True)
    if workers is not None:
        check_integer("workers", workers, low=1)
    if engine != "ray":
        if ray_address is not None:
            raise InvalidInput("ray_address", ray_address, "an address with `engine` ray")
    elif design != AUTO and engine not in design_named(design).engines:
        raise InvalidInput("engine", engine, f"local for design {design}, which reads records once and in blocks")
    elif find_spec("ray") is None:
        raise MissingExtra("ray", "ray")
