"""What types say is checked, stored, and read back: nothing else is."""

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import pytest

from privmix.fields import (
    Amount,
    Choice,
    Coded,
    Count,
    Fraction,
    Positive,
    Seed,
    Share,
    Size,
    Text,
    check_fields,
    read,
    stored,
    used,
)
from tests.refusals import refuses


class Norm(Enum):
    ONE = "l1"
    TWO = "l2"


@dataclass(frozen=True)
class Inner:
    rate: Positive = 0.5

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Outer:
    share: Share
    rows: Count
    part: Fraction = 0.0
    none: Size | None = None
    seed: Seed = 0
    kind: Annotated[str, Choice("flat", "automatic")] = "flat"
    tag: Annotated[str, Text("[a-z]{1,8}", "letters")] = "a"
    norm: Norm = Norm.TWO
    inner: Inner = field(default_factory=Inner)
    bounds: tuple[Amount, ...] = ()
    flag: bool = False
    code: Annotated[complex | None, Coded(lambda z: [z.real, z.imag], lambda v: complex(*v))] = None
    later: str = used("")

    def __post_init__(self) -> None:
        check_fields(self)


FULL = Outer(0.5, 3, 0.1, 0, 7, "automatic", "b", Norm.ONE, Inner(2.0), (0.0, 1.5), True, 1 + 2j, "yes")


def test_what_is_stored_comes_back() -> None:
    for made in (FULL, Outer(0.5, 1)):
        assert read(Outer, json.loads(json.dumps(stored(made))), "outer") == made
    # A field that is not used is not stored: what was written before it existed is read, and written as before.
    assert "later" not in stored(Outer(0.5, 1))
    assert stored(FULL)["later"] == "yes"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"share": "0.5"}, "outer share"),
        ({"share": True}, "outer share"),
        ({"flag": 1}, "outer flag"),
        ({"rows": 3.0}, "outer rows"),
        ({"norm": "l3"}, "outer norm"),
        ({"inner": {"rate": 0}}, "outer inner rate"),
        ({"inner": {"rate": 1, "more": 1}}, "outer inner"),
        ({"inner": 5}, "outer inner"),
        ({"bounds": [1.0, -1.0]}, "outer bounds"),
        ({"bounds": 1.0}, "outer bounds"),
        ({"code": 5}, "outer code"),
        ({"later": ""}, "outer"),
        ({"later": "a\nb"}, "outer later"),
        ({"unknown": 1}, "outer"),
    ],
)
def test_other_values_are_refused_by_their_path(changes: dict[str, Any], named: str) -> None:
    with refuses(named):
        read(Outer, {**stored(FULL), **changes}, "outer")
