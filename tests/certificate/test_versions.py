"""A certificate may gain fields: what was written before stays readable, and what is of no version is refused."""

import json
from collections.abc import Callable
from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from privmix.certificate import certificate as common
from privmix.certificate.certificate import Certificate, CommonFields, check_guarantee, content_hash, parse_certificate
from privmix.errors import InvalidInput
from privmix.fields import Choice, later, newest
from privmix.releases.certificate import ReleaseFields
from privmix.releases.verify import check_certificate
from privmix.training.certificate import ModelFields
from privmix.training.verify import plan_of
from tests.refusals import refuses

NEXT = common.SCHEMA_VERSION + 1
OLDER = Path(__file__).parent / "older"
Unit = Annotated[str, Choice("record", "person")]


def with_unit(kind: type[CommonFields]) -> type[CommonFields]:
    return make_dataclass("Wider", [("unit", Unit, later(NEXT, "record"))], bases=(kind,), frozen=True, kw_only=True)


WIDER: dict[str, tuple[type[CommonFields], type[CommonFields], Callable[[Certificate], Any]]] = {
    "release": (ReleaseFields, with_unit(ReleaseFields), check_certificate),
    "model": (ModelFields, with_unit(ModelFields), lambda found: check_guarantee(found, plan_of(found))),
}


every_kind = pytest.mark.parametrize("name", WIDER)


@pytest.fixture
def later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A privmix whose certificates have a field more."""
    monkeypatch.setattr(common, "SCHEMA_VERSION", NEXT)


def edited(name: str, **changes: Any) -> bytes:
    content = {**json.loads((OLDER / f"{name}-4.json").read_text()), **changes}
    return json.dumps({**content, "content_sha256": content_hash(content)}).encode()


def reread(name: str, kind: type[CommonFields]) -> Certificate:
    """What was written before, read and verified byte for byte."""
    content = (OLDER / f"{name}-4.json").read_bytes()
    found = parse_certificate(content, kind)
    assert found.to_bytes() == content
    WIDER[name][2](found)
    return found


@every_kind
def test_what_was_written_before_is_read_and_verified_byte_for_byte(name: str) -> None:
    reread(name, WIDER[name][0])


@every_kind
@pytest.mark.usefixtures("later_version")
def test_a_new_field_leaves_older_certificates_as_they_are_and_is_read_in_its_version(name: str) -> None:
    _, kind, verify = WIDER[name]
    older = reread(name, kind)
    assert older["unit"] == "record", "what certificates without a unit mean"
    assert "unit" not in older.to_dict()
    found = parse_certificate(edited(name, schema_version=NEXT, unit="person"), kind)
    assert found["unit"] == "person"
    verify(found)


@every_kind
@pytest.mark.usefixtures("later_version")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unit": "person"}, r"'unit'.*exactly its fields in version 4"),
        ({"schema_version": NEXT}, rf"'unit'.*exactly its fields in version {NEXT}"),
        ({"schema_version": NEXT, "unit": "family"}, "certificate unit: got 'family'; allowed: one of record, person"),
        ({"schema_version": NEXT + 1, "unit": "person"}, f"privmix, version {NEXT + 1}; this one reads up to {NEXT}"),
        ({"schema_version": 3}, f"4 to {NEXT}: others are read by the privmix that wrote them"),
    ],
)
def test_fields_belong_to_versions(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_certificate(edited(name, **changes), WIDER[name][1])


@pytest.mark.parametrize("kind", [ReleaseFields, ModelFields, CommonFields])
@every_kind
def test_a_certificate_of_the_future_is_refused_in_these_words(name: str, kind: type[CommonFields]) -> None:
    words = f"written by a newer privmix, version {NEXT}; this one reads up to {NEXT - 1}"
    with pytest.raises(InvalidInput, match=words):
        parse_certificate(edited(name, schema_version=NEXT, unit="person"), kind)


@pytest.mark.parametrize("version", [True, 4.0, "4", None, [], -1, 10**300])
def test_no_version_is_no_version(version: Any) -> None:
    with refuses("certificate schema_version"):
        parse_certificate(edited("release", schema_version=version), ReleaseFields)


@pytest.mark.parametrize("kind", [ReleaseFields, ModelFields, CommonFields])
def test_no_field_is_newer_than_what_is_written(kind: type[CommonFields]) -> None:
    assert common.FIRST_VERSION <= newest(kind, common.FIRST_VERSION) <= common.SCHEMA_VERSION
