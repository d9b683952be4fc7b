"""The extractor interface: registry, specs, fingerprints, identity and pixels."""

import contextlib
import json
from typing import Any

import numpy as np
import pytest

from privmix.errors import InvalidInput
from privmix.features.base import extractor_names, get_extractor, parse_features
from privmix.features.identity import Identity, Pixels, unit_range
from privmix.features.spec import from_spec, wanted_model
from tests.features.models import check_per_record
from tests.features.test_spec import SPECS
from tests.refusals import refuses

PLAIN = ["identity", "pixels", "scattering", "projected:20:pixels"]


@pytest.mark.parametrize("name", PLAIN)
def test_spec_rebuilds_the_extractor_through_json(name: str) -> None:
    extractor = get_extractor(name)
    rebuilt = from_spec(json.loads(json.dumps(extractor.spec())))
    assert type(rebuilt) is type(extractor)
    assert rebuilt.fingerprint() == extractor.fingerprint()


@pytest.mark.parametrize("name", PLAIN)
def test_per_record(name: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, size=(9, 8, 8), dtype=np.uint8)
    extractor = get_extractor(name)
    whole = extractor.transform(images)
    assert whole.dtype == np.float32
    assert whole.shape == (9, extractor.output_dim((8, 8)))
    check_per_record(extractor, images)


def test_identity_keeps_values_and_pixels_divide_bytes_by_255_and_keep_floats() -> None:
    x = np.array([[300, -1], [2, 3]], dtype=np.int16)
    assert Identity().transform(x).tolist() == x.tolist()
    levels = np.arange(256, dtype=np.uint8)
    assert np.array_equal(unit_range(levels), np.arange(256, dtype=np.float32) / np.float32(255))
    assert Pixels().transform(np.array([[[0.25, 0.5]]])).tolist() == [[0.25, 0.5]]
    # Integers of an unknown range.
    with refuses("pixel type"):
        Pixels().transform(np.zeros((1, 2), dtype=np.int64))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"name": "resnet", "version": 1, "options": {}}, "features"),
        ({"version": 1}, "extractor spec"),
        ({"name": "pixels", "version": 99, "options": {}}, "extractor version"),
        ({"name": "pixels", "version": 1, "options": {"scale": 2}}, "features options"),
        ({"name": "pixels", "version": 1, "options": 3}, "extractor spec"),
        # A spec tells nothing about this machine.
        *(
            ({"name": "text", "version": 1, "options": {"model": "someone/tiny", option: "/etc"}}, "extractor spec")
            for option in ("path", "device", "batch_size")
        ),
    ],
)
def test_specs_that_cannot_be_rebuilt(spec: dict[str, Any], field: str) -> None:
    with refuses(field):
        from_spec(spec)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        *(
            (text, "features")
            for text in ("", "resnet", "vision", "text:", "tabular", "module", "pixels:3", "minilm:x")
        ),
        *((text, "model") for text in ("vision:/no/such/folder", "text:./missing", "vision:missing")),
        ("module:/no/net.pt", "module"),
    ],
)
def test_features_that_make_no_sense(text: str, field: str) -> None:
    for build in (parse_features, get_extractor):
        with refuses(field):
            build(text)


def test_what_an_extractor_does_not_take_is_refused() -> None:
    with refuses("features_model"):
        from_spec(get_extractor("pixels").spec(), model_path="/somewhere")
    with refuses("features options"):
        get_extractor("vision", nodel="x")


HOSTILE = [None, [], {}, [[]], "x" * 10_000, 10**300, -1, 1e308, True, "../x", "/etc/passwd", {"a": {"b": None}}]
HOSTILE += [[None], ""]


@pytest.mark.parametrize("name", extractor_names())
def test_specs_of_strangers_are_refused_or_are_constants(name: str) -> None:
    given = SPECS[name]
    specs: list[Any] = [{"name": name, "version": 1, "options": value} for value in HOSTILE]
    specs += [{"name": name, "version": 1, "options": {**given, key: value}} for key in given for value in HOSTILE]
    specs += [{"name": name, "version": 1, "options": {**given, key: "/x"}} for key in ("path", "device", "batch_size")]
    specs += [{"name": name, "version": value, "options": given} for value in HOSTILE]
    specs += [{"name": value, "version": 1, "options": given} for value in HOSTILE]
    for spec in specs:
        assert isinstance(wanted_model(spec), str | None)
        with contextlib.suppress(InvalidInput):
            # None of these has a path, so none has a model: what is built holds constants, and opens nothing later.
            json.dumps(from_spec(spec).options() if name not in ("text", "vision") else {})
