"""The page: nothing private for the public, nothing that a text could turn into markup, nothing that can't be read."""

import base64
import copy
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from privmix.errors import InvalidInput
from privmix.reports.page import render_page, write_page
from privmix.reports.records import RunRecord
from tests.refusals import refuses
from tests.reports import samples
from tests.reports.drawn import drawn_once
from tests.reports.markup import Page
from tests.reports.samples import KINDS

MARK = 987123.654
MARK_TEXTS = ("987123", "987,123", "9.871e+05", "9.87123e+05", "987K")


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[dict[bytes, Any]]:
    with drawn_once() as kept:
        yield kept


def changed(record: RunRecord, **fields: Any) -> RunRecord:
    return RunRecord(**{**vars(record), **fields})


def sample(kind: str) -> RunRecord:
    return next(one for one in samples.everything(private=False) if one.kind == kind)


def public_text(*records: RunRecord) -> str:
    return Page(render_page(records, "public")).all("main")[0].text


def replaced_leaves(value: Any, leaf: Any) -> Any:
    """The same structure with every number and text replaced."""
    if isinstance(value, dict):
        return {name: replaced_leaves(item, leaf) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced_leaves(item, leaf) for item in value]
    return leaf(value)


# Public pages are made without private records.


def test_no_private_record_changes_a_byte_of_a_public_page() -> None:
    """Added, removed or changed private records make no difference, neither does their number."""
    public = [record for record in samples.everything() if not record.private]
    private = [record for record in samples.everything() if record.private]
    assert len(public) > 2
    assert len(private) > 2
    alone = render_page(public, "public")
    other = [changed(one, content={"accuracy": MARK, "violated": True, "attacks": [{"auc": 1.0}]}) for one in private]
    more = [changed(one, record_id=f"{number + 99:032x}") for number, one in enumerate(private * 3)]
    for held in (private, private[:1], other, more, [*other, *more]):
        assert render_page([*held, *public], "public") == alone
    assert render_page([*private, *public], "owner") != render_page(public, "owner")


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_planted_in_every_private_field_stays_out(kind: str) -> None:
    """Also in titles, settings, commands, statements and versions; the owner's page shows that it was there to find."""
    record = sample(kind)
    planted = changed(
        record,
        private=True,
        content=replaced_leaves(record.content, lambda value: MARK if _is_number(value) else f"x{MARK}"),
        settings={f"s{MARK}": MARK},
        title=f"title {MARK}",
        command=f"command {MARK}",
        statements=[f"statement {MARK}"],
        versions={"package": f"v{MARK}"},
    )
    others = [one for one in samples.everything(private=False) if one.kind != kind]
    page = render_page([*others, planted], "public")
    assert page == render_page(others, "public")
    assert not any(text in page for text in MARK_TEXTS)
    shown = render_page([*others, planted], "owner")
    assert sum(shown.count(text) for text in MARK_TEXTS) >= 5


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.mark.parametrize("private", [False, True])
def test_nobody_is_singled_out_in_public(private: bool) -> None:
    """Lists of records at risk are the owner's, even where the data are public; wherever they stand."""
    record = samples.membership(private=private, more={"highest_risk": [{"record": 161803, "score": 1.0}]})
    records = [samples.guarantee(), record]
    public, owner = render_page(records, "public"), render_page(records, "owner")
    for number in ("47118193", "271828", "161803", "highest risk"):
        assert number not in public
    assert "271828" in owner
    assert "Records at highest risk" in owner


def test_only_the_owners_page_says_that_it_is_private() -> None:
    records = samples.everything()
    owner, public = (Page(render_page(records, audience)).elements for audience in ("owner", "public"))
    banners = [element for element in owner if element.attributes.get("class") == "banner"]
    assert "do not publish" in banners[0].text
    chips = [element for element in owner if element.attributes.get("class") == "chip"]
    # A chip on each private panel, on the summary of figures and on the private settings.
    assert len(chips) == sum(record.private for record in records) + 2
    assert not [element for element in public if element.attributes.get("class") in ("banner", "chip")]


def test_nothing_to_show_is_an_error() -> None:
    with refuses("records"):
        render_page([samples.membership(private=True)], "public")
    with refuses("audience"):
        render_page([samples.guarantee()], "everyone")


@pytest.mark.parametrize("audience", ["owner", "public"])
def test_the_same_records_give_the_same_bytes(audience: str, figures: dict[bytes, Any]) -> None:
    """Drawn anew each time; for the public whatever private records are there."""
    records = samples.everything()
    held = [records, [*records[::-1], *records]]
    if audience == "public":
        held.append([record for record in records if not record.private])
    pages = set()
    for some in held:
        figures.clear()
        pages.add(render_page(some, audience))
    assert len(pages) == 1


# The page is well-formed, accessible and self-contained.


@pytest.fixture(scope="module", params=["owner", "public"])
def page(request: pytest.FixtureRequest) -> str:
    twin = changed(samples.membership(private=False), record_id="f" * 32, title="Another model")
    return render_page([*samples.everything(private=request.param == "owner"), twin], request.param)


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    elements = Page(page).elements
    ids = [element.attributes["id"] for element in elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    pointed = re.findall(r'(?:url\(#|href="#)([^)"]+)', page)
    labels = [element.attributes.get("aria-labelledby", "").split() for element in elements]
    pointed += [name for names in labels for name in names]
    assert len(pointed) > 30
    assert set(pointed) <= set(ids)


def test_nothing_is_loaded_and_nothing_runs(page: str) -> None:
    parsed = Page(page)
    assert not parsed.all("script", "iframe", "object", "embed", "form", "base")
    for element in parsed.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("data:", "#"))
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    policy = next(element.attributes for element in parsed.all("meta") if "http-equiv" in element.attributes)
    assert policy["content"].startswith("default-src 'none'")


# Texts of records are texts.

HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}{% raw %}", "$\\frac{1}{$ _^{",
    "</style></svg></title><b>", "nul\x00 bell\x07 back\u202eward", "&lt;i&gt;&amp;",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_becomes_markup(text: str) -> None:
    """Class names, titles, names of attacks, settings and their names: the page has the same elements as ever."""
    pages = []
    for word in ("plain", text):

        def after_word(value: Any, word: str = word) -> Any:
            return f"{word}{value}" if isinstance(value, str) and len(value) < 1000 else value

        records = [
            changed(
                record,
                content=replaced_leaves(record.content, after_word),
                title=f"{word} {record.title}",
                command=f"privmix {word}",
                settings={word: [word, {word: word}], "nested": {word: word}},
                statements=[word],
                versions={word: word},
            )
            for record in samples.everything(private=False)
        ]
        names = tuple(f"{word}{digit}" for digit in range(10))
        evaluation = samples.evaluation(private=False, classes=names)
        pages.append(render_page([samples.guarantee(), *records[1:-1], evaluation], "owner"))
    parsed = Page(pages[1])
    assert [one.tag for one in parsed.elements] == [one.tag for one in Page(pages[0]).elements]
    assert not any(name.startswith("on") for element in parsed.elements for name in element.attributes)
    shown = "".join(mark if mark.isprintable() else "?" for mark in text)
    assert sum(shown in element.text for element in parsed.all("th", "td", "li", "code")) > 10
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", pages[1])


# Records of other versions.


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from leaves(value[0], (*path, 0))


def with_value(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    found = copy.deepcopy(content)
    inner = found
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return found


@pytest.mark.parametrize("each", ["one", pytest.param("all", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_other_kinds_or_none_are_no_trouble(kind: str, each: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field of each kind, missing or of another type, one of them or all: there is a page all the same."""
    # Drawing takes most of the time and sees checked numbers only; one value a field is drawn, the others are not.
    record = sample(kind)
    paths = [path for path in leaves(record.content) if path and path[-1] != "images"]
    assert len(paths) >= 3
    strange: list[Any] = [None, "text", 7, [], [{"x": []}], {"x": [None]}, True, -1.5, 10**400, [1, 2, 3]]
    for module in [module for name, module in sys.modules.items() if name.startswith("privmix.")]:
        for name in [name for name in vars(module) if name.startswith("draw_")]:
            monkeypatch.setattr(module, name, lambda *_, **__: "")
    for number, path in enumerate(paths):
        for value in strange if each == "all" else [strange[number % len(strange)]]:
            assert render_page([changed(record, content=with_value(record.content, path, value))], "owner")
    monkeypatch.undo()
    for number, path in enumerate(paths[:5]):
        content = with_value(record.content, path, strange[number % len(strange)])
        assert Page(render_page([changed(record, content=content)], "owner")).all("h1")
    assert render_page([changed(record, content={})], "owner")


@pytest.mark.parametrize("value", [1e308, -1e308, 1e-320, 10**400], ids=["huge", "negative", "tiny", "integer"])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_nothing_measures_are_no_trouble(kind: str, value: float) -> None:
    record = sample(kind)
    spoilt = replaced_leaves(record.content, lambda old: old if isinstance(old, str | bool) else value)
    assert render_page([changed(record, content=spoilt)], "owner")


@pytest.mark.parametrize("kind", KINDS)
def test_new_figures_of_a_record_are_shown(kind: str) -> None:
    record = sample(kind)
    content = {**record.content, "figure_of_tomorrow": 0.12345, "nested": {"of": ["tomorrow"]}}
    page = render_page([changed(record, content=content)], "public")
    assert "figure of tomorrow" in page
    assert "0.12345" in page


# What must not be overlooked.


def test_a_refuted_claim_is_loud() -> None:
    text = public_text(samples.guarantee(), samples.audit(violated=True))
    assert "A claim is refuted" in text
    assert "FAIL: do not hand on this release" in text
    assert "Guarantee: epsilon" not in text
    assert "6.31" in text
    quiet = public_text(samples.guarantee(), samples.audit())
    assert "Guarantee: epsilon 1, delta 10⁻⁵" in quiet
    assert "A claim is refuted" not in quiet
    # Of a design it is not held against a release.
    design = changed(samples.audit(violated=True), subject={"kind": "design", "id": None})
    text = public_text(samples.guarantee(), design)
    assert "about a design" in text
    assert "FAIL" not in text


def test_a_claim_refuted_by_its_curve_is_not_said_to_be_exceeded() -> None:
    """Rates may contradict a whole trade-off curve long before they prove a larger epsilon."""
    record = samples.audit(violated=True, proven_epsilon=0.4, below_curve=True)
    text = public_text(samples.guarantee(), record)
    assert "FAIL: do not hand on this release" in text
    assert text.count("Its errors are below the claimed trade-off curve") == 2
    assert "larger epsilon than was claimed" not in text
    assert "below curve" not in text
    assert "Its errors are below" not in public_text(samples.audit(violated=True, below_curve=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"insecure_seed": True, "warnings": ["insecure_seed: the noise can be re-created."]},
        {"epsilon": None},
        {"is_upper_bound": False},
    ],
    ids=["seed", "infinite", "no bound"],
)
def test_what_is_not_private_is_not_called_safe(changes: dict[str, Any]) -> None:
    record = samples.guarantee()
    text = public_text(changed(record, content={**record.content, **changes}))
    assert "FAIL: do not hand on this release" in text
    assert "Guarantee: epsilon" not in text
    assert "What this means" not in text
    for warning in changes.get("warnings", ()):
        assert warning in text


@pytest.mark.parametrize(
    ("changes", "tone", "words"),
    [
        ({}, "note", "At best an attacker is this certain"),
        ({"delta": 0.0}, "note", "Certainty of an attacker"),
        ({"epsilon": 16}, "warning", "WARNING: a weak bound"),
        ({"epsilon": 8}, "warning", "WARNING: a loose bound"),
        ({"delta": 0.4}, "warning", "WARNING: a loose bound"),
        ({"warnings": ["delta 0.002 is not below 1/records"]}, "warning", "WARNING: a loose bound"),
    ],
    ids=str,
)
def test_a_bound_that_may_show_much_is_no_green_box(changes: dict[str, Any], tone: str, words: str) -> None:
    """At mu = 4.3 the best attack wins 98% of even bets; with delta, findings may be likelier than e^epsilon."""
    page = render_page([samples.guarantee(**changes)], "public")
    assert words in Page(page).all("main")[0].text
    assert ('class="callout note"' in page) == (tone == "note")
    assert ("Certainty of an attacker" in page) == (changes.get("delta") == 0.0)


def test_noise_from_a_seed_limits_no_attack() -> None:
    attacked = samples.membership(private=False)
    assert "limit by the guarantee" in public_text(samples.guarantee(), attacked)
    assert "limit by the guarantee" not in public_text(samples.guarantee(insecure_seed=True), attacked)


def test_no_record_takes_anothers_place() -> None:
    """Ids of guarantees are known to all, so that anyone can make a record with the same."""
    guarantee = samples.guarantee(insecure_seed=True)
    other = samples.record("evaluation", {"accuracy": 0.5}, record_id=guarantee.record_id)
    pages = [render_page(records, "public") for records in ([guarantee, other], [other, guarantee])]
    assert pages[0] == pages[1]
    assert "FAIL: do not hand on this release" in pages[0]
    assert "50.0%" in pages[0]


def test_utility_comes_from_public_facts_alone() -> None:
    """A forecast, or accuracy on public records; a private figure stays out also where there is no other."""
    forecast = {"accuracy": 0.877, "low": 0.81, "high": 0.92, "without_privacy": 0.9432}
    told = samples.guarantee(forecast=forecast, classes=10)
    private, public = samples.evaluation(private=True), samples.evaluation(private=False)
    hidden = f"{100 * private.content['accuracy']:.1f}%"
    for records, words, absent in (
        ([told], ("accuracy, forecast as stated", "87.7%", "without privacy: 94.3%", "≥ 10%"), hidden),
        ([told, private], ("accuracy, forecast as stated", "87.7%"), hidden),
        ([samples.guarantee(classes=10), private], ("No accuracy is known", "≥ 10%"), hidden),
        ([told, public], ("accuracy, measured", hidden), "accuracy, forecast nothing"),
    ):
        text = public_text(*records)
        for word in ("Utility", *words):
            assert word in text
        assert absent not in text


def test_statements_settings_commands_and_hashes_are_all_there() -> None:
    records = samples.everything()
    text = Page(render_page(records, "owner")).all("main")[0].text
    for record in records:
        for sentence in (*record.statements, record.command, record.record_id, record.to_dict()["content_sha256"]):
            assert sentence in text
    for words in ("poisson", "60000", "2.6.0", samples.RELEASE_ID, "f" * 64, "NOT a bound"):
        assert words in text


def test_pictures_are_the_recorded_bytes() -> None:
    record = samples.inversion()
    images = record.content["images"]
    expected = np.frombuffer(base64.b64decode(images["uint8"]), np.uint8).reshape(images["shape"])
    page = Page(render_page([record], "public"))
    shown = []
    for element in page.all("img"):
        content = base64.b64decode(element.attributes["src"].removeprefix("data:image/png;base64,"))
        shown.append(np.asarray(Image.open(io.BytesIO(content))))
    assert np.array_equal(np.stack(shown).reshape(expected.shape), expected)
    assert page.all("img")[5].attributes["alt"] == "m = 4, no noise"


# Files.


def test_a_page_is_written_whole_and_only_over_a_page(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    text = render_page([samples.guarantee()], "owner")
    write_page(text, path, private=True)
    assert path.read_text() == text
    # A draft that others could read, left by a killed run, is not used again.
    path.with_name(".report.html.draft").touch(0o666)
    write_page(text, path, private=True, overwrite=True)
    assert path.stat().st_mode & 0o777 == 0o600
    with refuses("out"):
        write_page(text, path, private=False)
    write_page(text, path, private=False, overwrite=True)
    assert path.stat().st_mode & 0o044
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]
    other = tmp_path / "notes.html"
    other.write_text("my notes")
    with refuses("out"):
        write_page(text, other, private=False, overwrite=True)
    assert other.read_text() == "my notes"
    with pytest.raises(InvalidInput):
        write_page(text, tmp_path, private=False, overwrite=True)


def test_a_total_by_somebodys_word_says_whom_it_covers() -> None:
    records = [samples.guarantee(in_ledger="planned", unit="record"), samples.ledger(unit="person", most_per_person=4)]
    assert "The total covers persons with at most 4 records." in render_page(records, "public")
    assert "the total excludes it" not in render_page(records, "public")
    assert "the total excludes it" in render_page([records[0], samples.ledger(unit="person")], "public")
