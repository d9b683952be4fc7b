"""Names, settings and combinations of the extended methods."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from privmix.training.public.base import method_names, parse_method, settings_of
from privmix.training.public.config import ExtendedConfig
from privmix.training.public_phase import Combined, build_method
from tests.refusals import refuses
from tests.training.public.helpers import mlp, source


@pytest.mark.parametrize("name", method_names())
def test_every_method_is_built_by_its_name(name: str) -> None:
    method = build_method(ExtendedConfig(name, batch_size=6), source(mlp()), steps=5)
    assert (method is None) if name == "none" else (method is not None and method.name == name)


@pytest.mark.parametrize(
    "name",
    ["", "dopey", "none+dope", "dope+dope", "dope+mirror", "multiplicity+dope+adadps", "multiplicity+", None],
)
def test_names_that_make_no_method_are_refused(name: str) -> None:
    with refuses("public_method"):
        parse_method(name)
    with refuses("method"):
        ExtendedConfig(name)


@pytest.mark.parametrize("name", ["multiplicity+dope", "dope+multiplicity", "mirror+multiplicity"])
def test_a_combination_does_what_its_parts_do(name: str) -> None:
    model = mlp()
    config = ExtendedConfig(name, batch_size=6, perturbations=2)
    both = build_method(config, source(model), steps=5)
    assert isinstance(both, Combined)
    parts = [build_method(dataclasses.replace(config, method=part), source(model), 5) for part in name.split("+")]
    side = both.prepare(1)
    for part in parts:
        alone = part.prepare(1)
        for field in ("perturbations", "scale", "centre"):
            value = getattr(alone, field)
            assert value is None or torch.equal(value, getattr(side, field))
    mean = torch.linspace(-1, 1, 43)
    expected = mean
    for part in parts:
        expected = part.combine(expected, 1)
    assert torch.equal(both.combine(mean, 1), expected)


def test_a_combination_draws_no_batch_twice() -> None:
    model = mlp()
    both = build_method(ExtendedConfig("multiplicity+dope", batch_size=6, perturbations=2), source(model), 5)
    side = both.prepare(0)
    along = side.centre / side.centre.norm()
    for row in side.perturbations:
        assert float(row / row.norm() @ along) < 0.999


def test_every_method_says_which_settings_it_is_made_with() -> None:
    """A field of the config belongs to the methods that name it, or to the source of public gradients."""
    fields = {field.name for field in dataclasses.fields(ExtendedConfig)}
    used = {name: settings_of(name) for name in method_names() if name != "none"}
    assert set().union(*used.values()) == fields - {"method", "method_options", "batch_size", "max_norm"}
    assert settings_of("none") == used["dope"] == frozenset()
    assert settings_of("multiplicity+adadps") == used["multiplicity"] | used["adadps"]
