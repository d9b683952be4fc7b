"""Whatever is chosen by name: every design and every value goes to text and back."""

from dataclasses import dataclass
from enum import Enum

import pytest

from privmix.fields import Count, Fraction
from privmix.named import chosen, in_words, keys
from privmix.options import option
from privmix.plans.registry import DESIGNS
from tests.refusals import refuses


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Paint:
    name = "paint"
    coats: Count = option(1, "How many.")
    share: Fraction | None = option(None, "Of water.")
    colour: Colour = option(Colour.RED, "Which.")
    wet: bool = option(False, "Whether.")
    dry: bool = option(True, "Whether.")
    where: str = option("wall", "Where.")
    degree: str | int = option("auto", "A word or a number.")
    inner: int = 3


KINDS = {"paint": Paint}


@pytest.mark.parametrize("name", list(DESIGNS))
def test_each_design_goes_to_text_and_back(name):
    design = DESIGNS[name]()
    assert chosen("design", name, DESIGNS) == design
    for item in keys(DESIGNS[name]):
        value = getattr(design, item.name)
        if value is not None:
            text = in_words(name, {item.name: value}) if value is not False else f"{name}:{item.name}=false"
            assert chosen("design", text, DESIGNS) == design


@pytest.mark.parametrize(
    "given", [{"coats": 3}, {"share": 0.25}, {"wet": True}, {"dry": False}, {"where": "door"}, {"degree": 7}]
)
def test_what_is_written_is_read_as_it_was(given):
    assert chosen("paint", in_words("paint", given), KINDS) == Paint(**given)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("varnish", "paint"),
        ("paint:coat=2", "paint"),
        ("paint:inner=2", "paint"),
        ("paint:coats=2,coats=3", "paint"),
        ("paint:coats=two", "paint coats"),
        ("paint:coats", "paint coats"),
        ("paint:colour=green", "paint colour"),
        ("paint:wet=perhaps", "paint wet"),
        ("paint:share=", "paint share"),
    ],
)
def test_other_words_are_refused_by_name(text, field):
    with refuses(field):
        chosen("paint", text, KINDS)
