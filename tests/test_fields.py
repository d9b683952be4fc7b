"""What types say is checked, stored, and read back: nothing else is."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import pytest

from privmix.errors import InvalidInput
from privmix.fields import (
    Amount,
    Choice,
    Coded,
    Count,
    Fraction,
    Number,
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
from tests.wrong_values import wrong, wrong_values


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


def test_a_field_that_is_not_used_is_not_stored() -> None:
    """So that what was written before the field existed is read, and what is written without it is as before."""
    assert "later" not in stored(Outer(0.5, 1))
    assert stored(FULL)["later"] == "yes"


@pytest.mark.parametrize(("name", "value"), [*wrong_values(Outer)], ids=str)
def test_what_a_type_does_not_allow_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Outer(**{"share": 0.5, "rows": 1, name: value})
    assert caught.value.field == name
    with pytest.raises(InvalidInput) as caught:
        read(Outer, {**stored(FULL), name: value}, "outer")
    assert caught.value.field.startswith(f"outer {name}")


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
    with pytest.raises(InvalidInput) as caught:
        read(Outer, {**stored(FULL), **changes}, "outer")
    assert caught.value.field == named


def test_every_range_has_wrong_values() -> None:
    assert {name for name, _ in wrong_values(Outer)} == {
        "share",
        "rows",
        "part",
        "none",
        "seed",
        "kind",
        "tag",
        "bounds",
    }
    assert [math.isfinite(value) for value in wrong(Number())[:3]] == [False, False, False]
