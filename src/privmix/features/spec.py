"""Specs of extractors: data from which an extractor is rebuilt, on which nothing that they name is opened or run."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from privmix.data.source import DECODER
from privmix.errors import InvalidInput, check_integer
from privmix.features.base import Extractor, extractor_kind, known_kind, refuse_ended
from privmix.features.identity import Identity, Pixels
from privmix.features.models import OwnModel
from privmix.features.tabular import Tabular

# Keys of a spec that identify its model; a copy of the model must have the same.
_DIGESTS: Final = ("weights_sha256", "files_sha256")

# A name reaches data cards and statements: it may not look like a part of these.
_PLAIN: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")

# Numbers of one raw input.
_MOST_VALUES: Final = 2**31

# Limit on names of features, in bytes.
_MOST_NAMES: Final = 2**20

# Settings of a run, which no spec holds.
_LOCAL: Final = frozenset({"path", "device", "batch_size"})


def from_spec(spec: Mapping[str, Any], model_path: OwnModel | str | Path | None = None) -> Extractor:
    """Rebuild an extractor from :meth:`Extractor.spec`; another version's spec is refused.

    Formal guarantees:
        - A spec is data: no part of it is opened as a path, fetched from an address, or run. A model is opened at
          ``model_path``. Without it, only models that a package brings are opened, or those in the local cache of the
          Hugging Face hub at the spec's commit.
        - Programs do not run unasked: a file that is more than numbers (an exported program) is refused
          unless ``:trust`` stands behind its path.
        - The model is the spec's: its digests are compared.

    """
    kind, options = _read(spec)
    own = None if model_path is None else OwnModel.of(model_path)
    extractor = kind.from_options(options, own)
    if spec.get("version") != extractor.version:
        allowed = f"{extractor.version}, the version of {kind.name} in this release of privmix"
        raise InvalidInput("extractor version", spec.get("version"), allowed)
    extractor.decoder = _decoder(spec)
    if any(key in spec for key in _DIGESTS):
        found = extractor.spec()
        for key in _DIGESTS:
            if spec.get(key) != found.get(key):
                allowed = f"{spec.get(key)!s:.64}: the unchanged model of these features"
                raise InvalidInput(f"{key} of the model", found.get(key), allowed)
    return extractor


def wanted_model(spec: Mapping[str, Any]) -> str | None:
    """Describe the model that the user of this spec must name; None where there is none. Opens nothing."""
    try:
        kind, options = _read(spec)
    except InvalidInput:
        return "an extractor that this version of privmix does not know"
    return kind.wants(options)


def check_spec(spec: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` unless a spec is one that the extractor it names could have written. Opens nothing.

    Formal guarantees:
        - Typed: a plain name, a version, digests of the kind's names (64 hexadecimal digits each), options that the
          kind takes (:meth:`Extractor.check_stated`), and nothing else.
        - Small: options take at most the kind's ``most_text`` bytes. The limits are 2 KiB, 4 KiB where one extractor
          goes on from another, 64 KiB for the columns and categories of a table.

    An unknown extractor may be of a later version or a package that is absent; it may have no options.
    """
    if not isinstance(spec, Mapping):
        raise InvalidInput("extractor spec", type(spec).__name__, "a JSON object")
    name, options = spec.get("name"), spec.get("options", {})
    if not isinstance(name, str) or not _PLAIN.fullmatch(name):
        raise InvalidInput("extractor's name", name, "a plain name")
    refuse_ended(name)
    known = extractor_kind(name)
    if known is not None or options != {}:
        kind, options = _read(spec)
        kind.check_stated(options)
    digests = _DIGESTS if known is None else known.digest_names
    _decoder(spec)
    fields = {"name", "version", "options", *digests}
    fields |= {"decoder"} if known is None or known.decoder > 1 else set()
    if odd := sorted(set(spec) - fields):
        raise InvalidInput("extractor spec", odd, f"fields of {name}: {', '.join(sorted(fields))}")
    if "version" in spec and type(spec["version"]) is not int:
        raise InvalidInput("extractor's version", spec["version"], "an integer")
    check_integer("extractor's version", spec.get("version", 1), low=1, high=2**31)
    for key in digests:
        if key in spec and not (isinstance(spec[key], str) and _HASH.fullmatch(spec[key])):
            raise InvalidInput(f"{key} of the extractor", spec[key], "64 hexadecimal digits")
    most = Extractor.most_text if known is None else known.most_text
    if (size := len(json.dumps(options))) > most:
        raise InvalidInput("features options", f"{size} bytes", f"at most {most}")


def _decoder(spec: Mapping[str, Any]) -> int:
    return check_integer("extractor's decoder", spec["decoder"], low=2, high=DECODER) if "decoder" in spec else 1


def check_shape(spec: Mapping[str, Any], shape: Sequence[int], dim: int | None) -> None:
    """Raise :class:`InvalidInput` unless such a spec may make ``dim`` features of raw inputs of this shape."""
    # Computes nothing: an extractor with a network is not asked. It takes time to import.
    from privmix.features.text import TextEncoder

    check_spec(spec)
    name, options = spec["name"], spec.get("options", {})
    if "inner" in options:
        check_shape(options["inner"], shape, None)
        return
    kind = extractor_kind(name) or Extractor
    fits = isinstance(shape, list | tuple) and all(type(size) is int and size > 0 for size in shape)
    fits = fits and len(shape) > 0 and math.prod(shape) <= _MOST_VALUES
    if issubclass(kind, Identity | Pixels):
        fits = fits and dim in (None, math.prod(shape))
    elif issubclass(kind, Tabular):
        # Ignored columns are not read.
        read = [one for one in options.get("columns", ()) if not (isinstance(one, Mapping) and one.get("ignore"))]
        fits = fits and tuple(shape) == (len(read),)
    elif issubclass(kind, TextEncoder):
        fits = fits and tuple(shape) == (1,)
    if not fits:
        allowed = f"a shape that gives {dim or 'its'} features with {name}"
        raise InvalidInput("input_shape", shape, allowed)


def title_of(spec: Mapping[str, Any]) -> str:
    """Return the name for people of features of this spec: mostly the extractor's."""
    # Extractors of raw inputs are not asked: their libraries take time to import.
    name, options = spec.get("name", "?"), spec.get("options", {})
    composed = isinstance(options, Mapping) and "inner" in options
    if not composed or not isinstance(name, str) or extractor_kind(name) is None:
        return str(name)
    kind, options = _read(spec)
    return kind.title(options)


def stated_names(spec: Mapping[str, Any], dim: int) -> tuple[str, ...]:
    """Distinct names of the ``dim`` features, from the spec alone; () where it gives none, or over 1 MiB as JSON."""
    known = extractor_kind(str(spec.get("name"))) or Extractor
    if known.names_of.__func__ is Extractor.names_of.__func__:  # type: ignore[attr-defined]
        return ()
    kind, options = _read(spec)
    found = kind.names_of(options)
    if not found or len(json.dumps(found)) > _MOST_NAMES:
        return ()
    if len(found) != dim:
        raise InvalidInput("extractor", f"{len(found)} named features", f"one with {dim} features, as in the plan")
    unique: dict[str, None] = {}
    times: Counter[str] = Counter()
    for name in found:
        one = name
        while one in unique:
            times[name] += 1
            one = f"{name} ({times[name] + 1})"
        unique[one] = None
    return tuple(unique)


def feature_names(spec: Mapping[str, Any], dim: int) -> tuple[str, ...]:
    """:func:`stated_names`, with "feature 0", "feature 1", ... where there are none."""
    return stated_names(spec, dim) or tuple(f"feature {place}" for place in range(dim))


def statements_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    known = extractor_kind(str(spec.get("name"))) or Extractor
    if known.statements.__func__ is Extractor.statements.__func__:  # type: ignore[attr-defined]
        return ()
    kind, options = _read(spec)
    return kind.statements(options)


def drafted_statements(spec: Any) -> tuple[str, ...]:
    """Sentences on a specification that was drafted by looking at private records; empty for anything else."""
    while isinstance(spec, Mapping):
        options = spec.get("options")
        if spec.get("name") == Tabular.name and isinstance(options, Mapping):
            return Tabular.statements(options)
        spec = options.get("inner") if isinstance(options, Mapping) else None
    return ()


def _read(spec: Mapping[str, Any]) -> tuple[type[Extractor], Mapping[str, Any]]:
    """Return the kind of extractor and its options, if they are ones of that kind and of no machine."""
    name, options = spec.get("name"), spec.get("options", {})
    if (
        not isinstance(name, str)
        or not isinstance(options, Mapping)
        or not all(isinstance(key, str) for key in options)
    ):
        raise InvalidInput("extractor spec", dict(spec), "a mapping with name, version and options")
    kind = known_kind(name)
    kind.check_options(options)
    if not _LOCAL.isdisjoint(options):
        # A spec comes from another person: it must not point to files or devices of this machine.
        raise InvalidInput("extractor spec", sorted(_LOCAL & set(options)), "options that change the features only")
    return kind, options
