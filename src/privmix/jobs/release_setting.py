"""Setting of a release, from options and public facts of the data; no private record is read for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.pricing import count_noise
from privmix.certificate.about import About
from privmix.certificate.sealed_key import SEALED_FILE, Auditor
from privmix.data.dataset import ArraySource, Schema, Source
from privmix.data.fingerprint import records_hash
from privmix.data.overlap import InputHashes, Sketch
from privmix.designs.rows.poisson import Poisson
from privmix.errors import WITHHELD, InvalidInput, check_integer, check_number, in_terms_of
from privmix.features.base import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.features.whitened import DATA, Whitened, Whitening, WhiteningConfig
from privmix.jobs.columns import Columns
from privmix.jobs.counting import STAND_IN, check_asked
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.options import AUTO, CLASSIFY, TABLE, Local, machine_of
from privmix.jobs.planner import check_goal, design_of
from privmix.jobs.public_data import origins_of, refuse_private
from privmix.jobs.release_options import PROCEDURAL, Prior, ReleaseOptions
from privmix.mechanisms.run_folder import beside
from privmix.planning.config import ReleaseConfig
from privmix.plans.design import Design
from privmix.procedural.base import get_generator
from privmix.progress import Progress, silent
from privmix.releases.folder import RELEASE_FOLDER
from privmix.releases.run import check_no_sealed_key

_DRAWN: Final = 4000
_SEED: Final = 0


@dataclass(frozen=True, eq=False)
class OpenedPublic:
    """Public data of a release, not read yet, with facts for a spec; `labelled`: whether labels mean anything."""

    source: Source
    facts: dict[str, Any]
    labelled: bool

    def contents(self) -> dict[str, InputHashes]:
        """Return contents to compare with the private records; empty where a program made these data."""
        return {"public": InputHashes.of(self.source)} if self.facts["source"] == DATA else {}

    def whitened(self, extractor: Extractor, norm: float, progress: Progress) -> Whitened:
        """Return the extractor, whitened by these data; for `norm` see :class:`Whitened`."""
        config = WhiteningConfig()
        with in_terms_of(part="public"):
            found = features_in_memory(self.source, extractor, progress)
            labels = found.labels if self.labelled else np.zeros_like(found.labels)
            fitted = Whitening.fit(found.features, labels, config, norm)
        return Whitened(extractor, self._said(), config.power, config.ridge, config.quantile, norm, whitening=fitted)

    def again(
        self, extractor: Extractor, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]]
    ) -> Whitened:
        """Return an interrupted run's whitened extractor, as first fitted; raise for other data."""
        options, said = spec.get("options", {}), self._said()
        if options.get("public") != said:
            raise InvalidInput("public", said["source"], "the public data of the interrupted run")
        how = {name: options[name] for name in ("power", "ridge", "quantile", "norm")}
        return Whitened(extractor, said, **how, whitening=Whitening.of(arrays))

    def _said(self) -> dict[str, Any]:
        """Facts of the data, as a spec states them."""
        schema = self.source.schema
        classes = schema.num_classes if self.labelled else 0
        return {**self.facts, "records": schema.records, "classes": classes, "sha256": records_hash(self.source)}


def open_public(prior: Prior, extractor: Extractor, schema: Schema, columns: Columns) -> OpenedPublic:
    """Draw, or open without reading, the public data of a release, with inputs like those of `schema`."""
    count = None if prior.public_records is None else check_integer("public_records", prior.public_records, low=2)
    if prior.generator is not None:
        return _drawn(prior, prior.generator, schema, _DRAWN if count is None else count)
    classes = list(schema.classes) if prior.public_classes is None else prior.public_classes
    with in_terms_of(part="public"):
        shape = schema.input_shape
        found = open_dataset(
            prior.public, extractor, classes=classes, columns=columns.elsewhere(), input_shape=shape
        ).source
        if found.schema.input_shape != shape:
            raise InvalidInput("public", found.schema.input_shape, f"inputs of shape {shape}, as the private ones")
    source = found if count is None or count >= found.schema.records else _First(found, count)
    return OpenedPublic(source, {"source": DATA}, labelled=True)


def _drawn(prior: Prior, name: str, schema: Schema, count: int) -> OpenedPublic:
    if prior.public_classes is not None:
        raise InvalidInput("public_classes", prior.public_classes, "no class list with a generator, which has its own")
    if schema.columns is not None:
        raise InvalidInput(
            "public", prior.public, "a public dataset: generators make images, and the private data are not images"
        )
    generator = get_generator(name, schema.input_shape)
    images = generator.draw(count, _SEED)
    labels: NDArray[np.int64] = np.zeros(count, np.int64) if images.y is None else images.y
    source = ArraySource(images.x, labels, generator.classes or ("all",))
    facts = {"source": f"{PROCEDURAL}{generator.name}", "version": generator.version, "seed": _SEED}
    return OpenedPublic(source, facts, images.y is not None)


class _First(Source):
    """The first records of another source."""

    def __init__(self, source: Source, count: int) -> None:
        known = source.schema
        self._source, self._schema = source, Schema(count, known.input_shape, known.classes, known.columns)

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        left = self._schema.records - first
        for x, y in self._source._chunks(first, self._source.schema.records, size):
            yield x[:left], y[:left]
            left -= len(x)
            if left <= 0:
                return


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
        return self.whitener is None and self.reader.name == "identity"

    @cached_property
    def whitener(self) -> OpenedPublic | None:
        """The public data that its features are whitened by, not read yet."""
        return None if self.public is None else open_public(self, self.reader, self.opened.schema, self.declared)

    @cached_property
    def extractor(self) -> Extractor:
        """The public extractor of what is released; where there are public data, they are read for it."""
        if self.whitener is None:
            return self.reader.with_columns(self.opened.source.number_names)
        centred = (self.centre or self.config.design.centre) != "none"
        return self.whitener.whitened(
            self.reader, self.clip_norm * (self.residual_clip_norm if centred else 1.0), silent
        )

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

    @cached_property
    def auditor(self) -> Auditor | None:
        """Auditor that the run's key is sealed for at its end, if any."""
        return self.auditor_of()

    @property
    def sealed_key(self) -> Path | None:
        """Path of the sealed key, if there is one: next to the release."""
        return None if self.auditor is None or self.out is None else beside(Path(self.out), SEALED_FILE)

    @property
    def of_persons(self) -> bool:
        """Whether a person with all records is the unit of privacy."""
        return self.persons.declared(self.declared.person)

    @cached_property
    def origins(self) -> list[tuple[str, Sketch]]:
        """Sources of the public data, where they are synthetic."""
        return [] if self.whitener is None else origins_of({"public": self.whitener.source})

    def check_options(self) -> None:
        if self.out is not None:
            RELEASE_FOLDER.check_target(Path(self.out), overwrite=self.overwrite)
        check_asked(self.private_count, self.records, dry_run=self.dry_run, most_per_person=self.most_per_person)
        if self.of_persons and self.records is None and not self.private_count:
            allowed = "the number of persons: declare it, or estimate it with `private_count`"
            raise InvalidInput("records", None, allowed)
        self._check_quantile()
        if (self.persons.per_person or 1) > 1 and not self.private_count:
            allowed = "1 without `private_count`: for larger values the total weight of all persons is private"
            raise InvalidInput("per_person", self.persons.per_person, allowed)
        if self.given_design is not None and not self.dry_run and self.given_design.in_series is not self.in_series:
            allowed = "a design for single releases; for a series use privmix series begin"
            raise InvalidInput("design", self.design_name, allowed)
        if self.given_design is not None and self.assumed.any:
            raise InvalidInput("design", self.design_name, "auto with `assume` (omit `design` or `assume`)")
        self._check_goal()
        self.assumed.check(of_persons=self.of_persons)
        self.check_prior()
        self._check_replay()
        _ = self.about.licence_text()
        _ = self.machine
        refuse_private({"proxy": self.assumed.proxy, "public": self.public_data}, self.data, self.split)
        check_number("epsilon", self.epsilon, low=0, low_open=True)
        check_number("delta", self.delta, low=0, high=1, high_open=True)

    def _check_quantile(self) -> None:
        if self.person_quantile is None:
            return
        check_number("person_quantile", self.person_quantile, low=0, high=1, low_open=True, high_open=True)
        if not self.of_persons or not self.private_count:
            allowed = "only with `person` and `private_count`"
            raise InvalidInput("person_quantile", self.person_quantile, allowed)
        if self.persons.per_person is not None:
            raise InvalidInput(
                "per_person", self.persons.per_person, "no value with `person_quantile`, which estimates it"
            )

    def _check_goal(self) -> None:
        if self.goal == CLASSIFY:
            return
        check_goal(self.goal, None if self.public is not None else self.reader, design=self.design_name)
        if self.goal == TABLE and self.assumed.proxy is not None:
            raise InvalidInput(
                "assume proxy", WITHHELD, f"no proxy with `goal` {TABLE}, which takes shares from the specification"
            )

    def _check_replay(self) -> None:
        if self.auditor is None:
            return
        if self.out is not None and not self.resume:
            check_no_sealed_key(Path(self.out))
        today = datetime.now(UTC).date().isoformat()
        # A run that goes on keeps to the day that it began with.
        if self.auditor.until < today and not self.resume:
            raise InvalidInput("replay_for until", self.auditor.until, f"today ({today}, UTC) or a later day")

    @cached_property
    def config(self) -> ReleaseConfig:
        """The release's config; where the count is private, its record count is a stand-in."""
        schema = self.opened.schema
        config = ReleaseConfig(
            # A private count is a query that costs: with a stand-in, all other errors show before it.
            records=STAND_IN if self.private_count else schema.records if self.records is None else self.records,
            dim=self._dim(self.reader.output_dim(schema.input_shape)),
            classes=tuple(schema.classes),
            design=self.given_design or self._stand_in(),
            rows=self.rows,
            clip_norm=self.clip_norm,
            centre=self.centre,
            residual_clip_norm=self.residual_clip_norm,
            records_noise_multiplier=count_noise(self.epsilon, self.delta) if self.private_count else None,
            records_declared=self.records is not None,
            # Whitening turns the axes of features, too.
            channels=self.reader.channels(schema.input_shape) if self.public is None else 1,
            whitened=self.public is not None,
            per_person=(self.persons.per_person or 1) if self.of_persons else None,
            person_quantile=self.person_quantile,
        )
        if config.design.fixed_size and not self.of_persons and config.records != schema.records:
            allowed = f"no value for design {self.design_name}, which uses the real record count"
            raise InvalidInput("records", self.records, allowed)
        return config

    @cached_property
    def given_design(self) -> Design[Any] | None:
        """The design; None where the planner chooses it."""
        return design_of(self.design)

    @cached_property
    def machine(self) -> Local:
        return machine_of(self.engine, None if self.design_name == AUTO else self.design_name)

    @cached_property
    def about(self) -> About:
        return About.of(self.metadata)

    def _stand_in(self) -> Design[Any]:
        """Stand-in for the planner's choice; it weighs persons, as that will."""
        weighs = (self.persons.per_person or 1) > 1 or self.person_quantile is not None
        return Poisson(mixup_degree=1, person_mean=weighs)

    def _dim(self, features: int) -> int:
        return features if self.public is None else WhiteningConfig().dim(features)
