"""What was asked: as it was typed, with words for what is missing; and one order for page, command and Python."""

import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="serves the studio; in privmix[studio]")

from privmix.errors import warn
from privmix.jobs.release import ReleaseJob
from privmix.studio import pages
from privmix.studio.asked import Column, FormData, problems_of
from privmix.studio.order import Order
from tests.cli.helpers import privmix as command_line
from tests.studio.helpers import AUTO, IMAGES, PERSONS, TABLE, UNEVEN, form_of, visits

TEXTS = replace(TABLE, what="texts", columns=(), text_column="note")


@pytest.mark.parametrize("asked", [TABLE, IMAGES, PERSONS, AUTO, TEXTS])
def test_a_form_comes_back_as_it_was_typed(asked: FormData) -> None:
    assert FormData.of_form(form_of(asked, key="k", nonsense="x")) == asked
    assert problems_of(asked) == []


def test_the_unit_starts_empty_and_must_be_chosen() -> None:
    assert FormData().unit == ""
    assert pages._EXAMPLE.unit == ""
    assert [problem.field for problem in problems_of(replace(TABLE, unit=""))] == ["unit"]
    assert [problem.field for problem in problems_of(replace(TABLE, unit="house"))] == ["unit"]


AGE = Column("age", "number", "0:1")
# A field and values that it does not take.
WRONG: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("data", "label", "classes", "out"), ("",)),
    "records": ("", "many", "-5"),
    "epsilon": ("0", "nan"),
    "delta": ("1",),
    "attainable": ("100",),
    "shares": ("88", "88, 21", "many, few", "100, 0"),
    "columns": ((), (Column("age"),), (Column("age", "ignore"),), (AGE, AGE), (AGE, Column("ill", "category", "a,b"))),
    "what": ("films",),
    "design": ("other",),
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(({field: value}, field) for field, values in WRONG.items() for value in values),
        ({"unit": "person"}, "person"),
        ({"ledger": "l.db"}, "dataset"),
        ({"dataset": "d"}, "ledger"),
        ({"what": "images"}, "image_size"),
    ],
)
def test_what_is_missing_is_said_of_its_field(change: dict[str, Any], field: str) -> None:
    found = problems_of(replace(TABLE, **change))
    assert field in {problem.field for problem in found}
    assert all(re.fullmatch(r"[A-Z].*[.;]?", problem.words) for problem in found)


def test_numbers_are_read_as_people_write_them() -> None:
    order = Order.of(replace(TABLE, records="12 000", epsilon="0,5"))
    assert (order.release["records"], order.release["epsilon"]) == (12000, 0.5)


def test_names_become_columns_once() -> None:
    found = TABLE.with_columns(["age", "dose", "dose", ""])
    assert [column.name for column in found.columns] == ["age", "ward", "name", "a=b", "dose"]
    assert found.columns[0] == TABLE.columns[0]


class Caught(Exception):
    """A job was about to be planned."""


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[ReleaseJob]:
    found: list[ReleaseJob] = []

    def plan(self: ReleaseJob, *rest: Any) -> None:
        found.append(self)
        raise Caught

    monkeypatch.setattr(ReleaseJob, "plan", plan)
    return found


DECIDES = ("data", "epsilon", "delta", "features", "design", "classes", "records", "ledger", "dataset", "seed")


def said(job: ReleaseJob) -> list[Any]:
    """What decides a release, as values that compare."""
    plain = [getattr(job, name) for name in (*DECIDES, "private_count", "assume")]
    return [*plain, job.declared, str(job.out)]


@pytest.mark.parametrize(
    "asked",
    [TABLE, IMAGES, PERSONS, AUTO, UNEVEN, TEXTS],
    ids=["table", "images", "persons", "auto", "uneven", "texts"],
)
def test_command_and_python_on_the_screen_are_what_runs(
    asked: FormData, jobs: list[ReleaseJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    visits(tmp_path / "visits.csv")
    if asked.person:
        first, *lines = Path("visits.csv").read_text().splitlines()
        lines = [f"{first},id", *(f"{line},p{number}" for number, line in enumerate(lines))]
        Path("visits.csv").write_text("\n".join(lines) + "\n")
    order = Order.of(asked)
    with pytest.raises(Caught):
        order.carry_out()
    specs = [written()]
    for line in order.command().splitlines():
        command_line(*shlex.split(line)[1:])
    specs.append(written())
    with pytest.raises(Caught):
        exec(order.python(), {})
    Path("release.toml").write_text(order.toml(), encoding="utf-8")
    command_line("release", "--config", "release.toml")
    specs.append(written())
    assert said(jobs[0]) == said(jobs[1]) == said(jobs[2]) == said(jobs[3])
    assert len(jobs) == 4
    assert specs[0] == specs[1] == specs[2]
    assert bool(specs[0]) == (asked.what == "table")
    assert order.command(resume=True).endswith("--resume")


def test_what_its_owner_should_know_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*_: Any, **__: Any) -> None:
        warn("delta is large")
        warnings.warn("of a library", stacklevel=1)

    monkeypatch.setattr("privmix.studio.order.release", warned)
    assert Order("own.csv", {}, {}).carry_out()[1] == ("delta is large",)


def written() -> str:
    """The specification that was written, which is taken away."""
    file = Path("REL.columns.json")
    text = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    return text


def test_an_example_is_written_once_and_fills_in_the_page(tmp_path: Path) -> None:
    found = pages.write_example(tmp_path)
    file = tmp_path / found.data
    assert len(file.read_text().splitlines()) == int(found.records) + 1
    assert [problem.field for problem in problems_of(found)] == ["unit"]
    file.write_text("mine")
    (tmp_path / found.out).mkdir()
    assert pages.write_example(tmp_path).out == f"{found.out}-2"
    assert file.read_text() == "mine"
