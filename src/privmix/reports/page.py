"""One self-contained HTML page from run records: no scripts, no network, light and dark, for screen and print."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from privmix.errors import InvalidInput, check_choice
from privmix.fields import printable
from privmix.folders import whole_file
from privmix.reports import blocks
from privmix.reports.panel import AUDIENCES, OWNER, PANELS, Context, ShownRecord, panel_sections, panels
from privmix.reports.panels import budget_section, delta_curve, guarantee_section, headline, owners_words
from privmix.reports.panels_audit import by_curve
from privmix.reports.panels_utility import usefulness_section
from privmix.reports.records import RunRecord, flat
from privmix.reports.sentences import capitalised, percent
from privmix.rounding import rounded_down, rounded_up

# Commands for missing parts: the kind of its records, its title, its content, and the command.
_MISSING: Final = (
    ("guarantee", "The guarantee", "from a certificate", "privmix report RUN RELEASE"),
    (
        "ledger",
        "The dataset's budget",
        "the total cost of all its releases and models",
        "privmix report RELEASE --ledger URL --dataset NAME",
    ),
    ("evaluation", "Accuracy", "on your own labelled data", "privmix evaluate MODEL --data DATA --record RUN"),
    (
        "utility",
        "Accuracy against ε",
        "predicted without private data",
        "privmix plan --records N --dim D --classes K --epsilon 1",
    ),
)
_UNCHECKED: Final = (
    "This page does not check that running the plan produced the rows or weights, that the key of the noise stayed "
    "secret, or that a ledger was charged. privmix verify checks every file of a release or model.",
    "Attacks prove lower bounds on the leak. A failed attack proves nothing; only the guarantee is an upper bound.",
)
_KIND_NAMES: Final = {
    "guarantee": "guarantee",
    "ledger": "the dataset's budget",
    "evaluation": "evaluation",
    "utility": "accuracy against ε",
}


def glance(context: Context) -> blocks.Card | None:
    """Return the most telling figure of each measurement, in one row."""
    numbers = []
    # Public ones stand with the guarantee.
    for one in [one for one in context.of_kind("evaluation") if one.record.private][:2]:
        reference = one.content.number("reference_accuracy")
        note = "" if reference is None else f"{percent(reference)} without privacy"
        split = one.content.text("split")
        title = f"accuracy ({split})" if split else "accuracy"
        numbers.append(blocks.NumberBlock(title, percent(one.content.number("accuracy")), note))
    audits = context.of_kind("audit", "canary-audit")
    # Audits of designs do not apply to a release, where there is one.
    audits = [one for one in audits if one.record.subject["id"] is not None] or audits
    # An audit that saw only what is published may have done better than one that saw each step.
    proven = [
        (value, one.content.flag("violated"))
        for one in audits
        for found in (one.content, one.content.fields("black_box"))
        if (value := found.number("proven_epsilon")) is not None
    ]
    if proven:
        value, violated = max(proven)
        violated = violated or any(flag for _, flag in proven)
        note = "a claim is refuted" if violated else "no claim is refuted"
        numbers.append(
            blocks.NumberBlock("strongest attack", f"ε ≥ {rounded_down(value)}", note, "bad" if violated else "good")
        )
    areas = [
        value
        for one in context.of_kind("membership")
        for item in one.content.several("attacks")
        if (value := item.number("auc")) is not None
    ]
    if areas:
        numbers.append(blocks.NumberBlock("membership AUC", f"{max(areas):.3f}", "guessing: 0.500"))
    kinds = "evaluation", "audit", "canary-audit", "membership"
    private = any(one.record.private for one in context.of_kind(*kinds))
    return blocks.Card("Measured", [blocks.Numbers(numbers)], private=private) if numbers else None


def refutations(context: Context) -> list[blocks.Callout]:
    found = []
    for one in context.of_kind("audit", "canary-audit"):
        if one.content.flag("violated"):
            proven, claimed = one.content.number("proven_epsilon"), one.content.number("claimed_epsilon")
            text = "" if proven is None else f"It leaks at least ε = {rounded_down(proven)}"
            text += "" if proven is None or claimed is None else f"; the claim was {rounded_up(claimed, 4)}"
            if one.record.subject["id"] is None and context.of_kind("guarantee"):
                text += ". This result is about a design, not about the subject of this page"
            text = (text + "." if text else "") + by_curve(one.content)
            found.append(blocks.Callout("danger", f"A claim is refuted: {_named(one)}", text.strip()))
    for one in context.of_kind("noise-audit"):
        if one.content.flag("violated"):
            found.append(blocks.Callout("danger", f"The noise is not as certified: {_named(one)}", ""))
    for one in context.of_kind("guarantee"):
        found += [blocks.Callout("danger", "Warning", text) for text in one.content.texts("warnings")]
    return found


def _limits(context: Context) -> blocks.Section:
    cards = [blocks.Card(one.record.title, parts) for one in context.of_kind("guarantee") if (parts := _promises(one))]
    lead = (
        "What the guarantee rests on and what it leaves out, as its certificate says, and what this page leaves open."
    )
    return blocks.Section(
        "limits",
        "What is not guaranteed",
        lead,
        [*cards, blocks.Card("This page", [blocks.PointsBlock(_UNCHECKED)])],
        folded=True,
    )


def _promises(one: ShownRecord) -> list[blocks.Block]:
    """Return a certificate's sentences, and its answers to the questions that reviewers ask."""
    parts: list[blocks.Block] = [blocks.PointsBlock(list(one.record.statements))] if one.record.statements else []
    rows = [
        tuple(item.text(name) or "–" for name in ("question", "holds", "does_not", "unknown"))
        for item in one.content.several("assessment")
    ]
    if rows:
        caption = "The questions of NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees)"
        parts.append(
            blocks.Table(caption, ("question", "what holds", "what does not", "unknown"), rows, text=(1, 2, 3))
        )
    return parts


def _missing(context: Context) -> blocks.Section:
    others = [(panel.name, *panel.missing) for panel in panels() if panel.missing is not None]
    lines: list[blocks.Block] = [
        blocks.CommandBlock(name, line, note)
        for kind, name, note, line in (*_MISSING, *others)
        if not context.of_kind(kind)
    ]
    lead = "Panels that this page has no record for, and what makes one. RUN is the folder of this report."
    # These commands need the owner's data.
    cards = [blocks.Card("", lines)] if lines and context.audience == OWNER else []
    return blocks.Section("missing", "Not in this report", lead, cards, folded=True)


def _settings(context: Context) -> blocks.Section:
    cards = []
    # Apart: a card is marked as private as a whole.
    for private in (False, True):
        curves = [] if private else [curve for one in context.of_kind("guarantee") if (curve := delta_curve(one))]
        parts: list[blocks.Block] = [
            *curves,
            *(
                blocks.Details(
                    f"{_named(one)}: {len(rows)} settings",
                    [blocks.Table(_named(one), ("setting", "value"), rows, text=(1,))],
                )
                for one in context
                if one.record.private == private and (rows := flat(one.record.settings))
            ),
        ]
        if parts:
            cards.append(blocks.Card("", parts, private=private))
    return blocks.Section("settings", "All settings", "Everything that decided the figures above.", cards, folded=True)


def _reproduce(context: Context) -> blocks.Section:
    commands: list[blocks.Block] = [
        blocks.CommandBlock(_named(one), one.record.command) for one in context if one.record.command
    ]
    lead = "The commands behind the figures; new noise changes these a little."
    cards = [blocks.Card("", commands)] if commands else []
    return blocks.Section("reproduce", "How to check it and make it again", lead, cards, folded=True)


def _provenance(context: Context) -> blocks.Section:
    rows = [(_named(one), one.record.record_id, str(one.record.subject["id"] or "–"), one.digest) for one in context]
    columns = ("record", "id", "about", "SHA-256")
    parts: list[blocks.Block] = [blocks.Table("Records of this page", columns, rows, text=(1, 2, 3))]
    certificates = [
        (one.content.text("what"), str(one.record.subject["id"]), one.content.text("certificate_sha256"))
        for one in context.of_kind("guarantee")
    ]
    if certificates:
        parts.append(blocks.Table("Certificates", ("of", "id", "SHA-256 of its content"), certificates, text=(1, 2)))
    versions: dict[str, list[str]] = {}
    for one in context:
        for package, version in one.record.versions.items():
            if (found := versions.setdefault(str(package), [])) is not None and str(version) not in found:
                found.append(str(version))
    if versions:
        table = [(package, ", ".join(found)) for package, found in sorted(versions.items())]
        parts.append(blocks.Table("Versions", ("package", "version"), table, text=(1,)))
    return blocks.Section(
        "provenance",
        "Records, ids and versions",
        "Two pages with the same entries here show the same release and the same figures.",
        [blocks.Card("", parts)],
        folded=True,
    )


def _named(one: ShownRecord) -> str:
    kind = one.record.kind
    return capitalised(one.record.title or _KIND_NAMES.get(kind) or (PANELS[kind].words if kind in PANELS else kind))


_MARK: Final = "<!doctype html>"


def render_page(records: Iterable[RunRecord], audience: str) -> str:
    """Render the report on ``records`` of one or several runs as HTML.

    Formal guarantees:
        * Public pages hold no private figure: for the public, private records are dropped before anything else is done.
          The page has the same bytes for any content and number of them.
        * No person is singled out in public: lists of single records are left out of public pages.
        * The same records give the same bytes, in any order.
        * Texts of records are shown as texts: nothing in them becomes markup, and the page forbids scripts and loads.
    """
    check_choice("audience", audience, AUDIENCES)
    context = Context.of(records, audience)
    if not context.shown:
        raise InvalidInput(
            "records", "none to show", "at least one record, which must be public with `audience` public"
        )
    first = glance(context)
    subjects = [title for one in context.of_kind("guarantee") if (title := owners_words(one.content).get("title"))]
    sections = (
        guarantee_section(context),
        budget_section(context),
        usefulness_section(context),
        *panel_sections(context),
        _limits(context),
        _missing(context),
        _settings(context),
        _reproduce(context),
        _provenance(context),
    )
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title="Privacy report" + (": " + ", ".join(subjects) if subjects else ""),
            about=_about(context),
            owner=audience == OWNER,
            style=Markup(files("privmix.reports").joinpath("templates", "page.css").read_text(encoding="utf-8")),
            refutations=refutations(context),
            hero=[
                *(headline(one, context) for one in context.of_kind("guarantee")),
                *([] if first is None else [first]),
            ],
            sections=[section for section in sections if section.cards],
        )
    )


def write_page(page: str, path: Path, *, private: bool, overwrite: bool = False) -> None:
    """Store a page atomically; private pages are readable by their owner only."""
    check_target(path, overwrite=overwrite)
    with whole_file(path, "out", private=private) as stream:
        stream.write(page.encode())


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise :class:`InvalidInput` unless a page may be written to ``path``: other files are never replaced."""
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise InvalidInput("out", str(path), "a file that does not exist yet (or `overwrite`)")
    try:
        with path.open("rb") as stream:
            is_page = stream.read(len(_MARK)) == _MARK.encode()
    except OSError:
        is_page = False
    if path.is_symlink() or not is_page:
        raise InvalidInput("out", str(path), "a page of privmix report to overwrite, or a new file")


def _about(context: Context) -> list[str]:
    """Owner, day and id, by which a page is filed. The words are the owner's."""
    found = []
    for one in context.of_kind("guarantee"):
        said = owners_words(one.content)
        kind, name = one.record.subject["kind"], str(one.record.subject["id"])
        words = [said[part] for part in ("owner", "date") if part in said]
        found.append(
            " · ".join([*words, *([f"licence {said['licence']}"] if "licence" in said else []), f"{kind} {name}"])
        )
    return found


def templates(loader: BaseLoader, **more: Any) -> Environment:
    return Environment(
        loader=loader,
        # Names and texts on a page may come from a stranger's folder.
        autoescape=True,
        # A value that is missing raises, and leaves no gap that reads as a fact.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **more,
    )


@cache
def _environment() -> Environment:
    return templates(PackageLoader("privmix.reports"), keep_trailing_newline=True, finalize=_printable)


def _printable(value: Any) -> Any:
    # HTML may not hold them, and they can mislead a reader.
    # Markup is the page's own, and its parts are escaped.
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value)
