"""Public data for a release: drawn or opened, compared with the private, and made into a whitening of its features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import ArraySource, Schema, Source
from privmix.data.fingerprint import records_hash
from privmix.data.overlap import InputHashes
from privmix.errors import InvalidInput, check_integer, in_terms_of
from privmix.features.base import Extractor
from privmix.features.whitened import DATA, Whitened, Whitening, WhiteningConfig
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.release_options import PROCEDURAL, Prior
from privmix.procedural.base import get_generator
from privmix.progress import Progress

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
