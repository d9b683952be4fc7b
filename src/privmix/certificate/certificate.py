"""The certificate: what was guaranteed, in numbers that anyone can recompute and in words that anyone can read.

Releases and trained models have the same one. A part is common: what it is of, what was promised, the plan and its
event, warnings, statements, an assessment, files with their hashes. The rest is of its kind, in a subclass of
:class:`CommonFields`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from privmix.accounting import Adjacency, PrivacyCost, event_from_dict, event_to_dict
from privmix.accounting.filters import LEDGER_MODES
from privmix.certificate.about import check_about
from privmix.certificate.assessment import as_rows
from privmix.errors import InvalidInput, check_choice
from privmix.fields import (
    Amount,
    By,
    Checked,
    Choice,
    Count,
    Digest,
    Fraction,
    Switch,
    Text,
    Whole,
    Words,
    before,
    check_version,
    names_of,
    read,
    used,
)
from privmix.mechanisms.plan import Plan, Unit, relation_of, unit_of, unit_of_stored
from privmix.packages import package_version
from privmix.rounding import exact, rounded_up
from privmix.shown import PriceCurve, Shown
from privmix.untrusted import MEBIBYTE, check_texts, parse_json, read_plain

# The version that is written, and the oldest that is read. A field that comes with a new version says so:
# ``unit: str = later(5, "record")``; older certificates stay what they are.
SCHEMA_VERSION: Final = 4
FIRST_VERSION: Final = 4
CERTIFICATE_FILE: Final = "certificate.json"
MOST_BYTES: Final = 16 * MEBIBYTE
# Far more than any disk holds, and exact in every kind of number.
MOST_ROWS: Final = 2**53
RELEASE, MODEL = "release", "model"
_PACKAGES: Final = ("privmix", "dp-accounting", "numpy", "scipy", "randomgen", "torch")
_VERSION_TEXT = re.compile(r"[a-z-]{1,20}=[\w.+-]{1,40}\Z")
# The same figures may differ in the last digits between versions of the numerical libraries.
_SLACK: Final = 1e-6


@dataclass(frozen=True)
class Promise(Checked):
    """What is guaranteed: :meth:`privmix.accounting.PrivacyCost.to_dict`; epsilon None: nothing is."""

    epsilon: Amount | None
    delta: Fraction
    adjacency: Annotated[str, Choice(*(one.value for one in Adjacency))]
    accountant: Words
    is_upper_bound: bool


@dataclass(frozen=True)
class File(Checked):
    """A file that a certificate is about."""

    file: Words
    rows: Annotated[int, Whole(0, MOST_ROWS)]
    sha256: Digest


def _check_versions(name: str, versions: Any) -> None:
    if not isinstance(versions, Mapping) or set(versions) != {*_PACKAGES, "python"}:
        raise InvalidInput(name, "other names", "those of python and " + ", ".join(_PACKAGES))
    if not all(isinstance(value, str) and _VERSION_TEXT.match(f"{one}={value}") for one, value in versions.items()):
        raise InvalidInput(name, "other text", "names and versions")


@dataclass(frozen=True, kw_only=True)
class CommonFields(Checked):
    """The shape of a certificate, so that readers can rely on it; meaning is what verification checks.

    A kind's own fields are those of a subclass. What stands in the data card and on terminals is matched as a whole:
    nothing in it may look like a part of these.

    Attributes:
        of: the kind; empty: any.
        file_names: what the names of its files match: they are not joined blindly to a folder.
    """

    of: ClassVar[str] = ""
    file_names: ClassVar[re.Pattern[str]] = re.compile(".*", re.DOTALL)

    schema_version: Count
    kind: Annotated[str, Choice(RELEASE, MODEL)]
    id: Annotated[str, Text("[0-9a-f]{32}", "32 hexadecimal digits")]
    guarantee: Promise
    plan: dict[str, Any]
    event: dict[str, Any]
    insecure_seed: Switch
    in_ledger: Annotated[str, Choice(*LEDGER_MODES)]
    warnings: tuple[Words, ...]
    statements: tuple[Words, ...]
    assessment: Annotated[list[Any], By(lambda _, answers: as_rows(answers), [1], {})]
    files: tuple[File, ...]
    versions: Annotated[dict[str, Any], By(_check_versions, {}, [])]
    about: Annotated[dict[str, Any] | None, By(check_about, {}, {"owner": 1})] = used(None)
    content_sha256: Words

    def __post_init__(self) -> None:
        super().__post_init__()
        for item in self.files:
            if not self.file_names.fullmatch(item.file):
                raise InvalidInput("files", item.file, "names of files that belong there")


@dataclass(frozen=True, eq=False)
class Certificate(Shown, Mapping[str, Any]):
    """A certificate as it was written: a mapping of its JSON fields, whose common ones are attributes too.

    Attributes:
        content: the fields.
        older: fields that came later than it was written, and what it means by having none.
        kind: release or model.
        id: names what it is of.
        epsilon: guaranteed; infinity where nothing is.
        delta, adjacency: what it is meant at.
        unit: what neighbours differ by, a record or a person.
        relation: adjacency and unit, as they are printed.
        plan: what ran and what was asked, as JSON values.
        in_ledger: none, or how the charged budget counts.
        insecure_seed: the noise came from a seed, so that nothing is promised.
        warnings, statements: for people.
        files: what it is about: name, rows and SHA-256 of each.
    """

    content: Mapping[str, Any]
    older: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.older[name] if name in self.older else self.content[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    def __repr__(self) -> str:
        promise = f"epsilon={rounded_up(self.epsilon)}, delta={exact(self.delta)}, adjacency={self.adjacency!r}"
        return f"Certificate({self.kind} {self.id}, {promise})"

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The promise."""
        names = ", ".join(str(item["file"]) for item in self.files)
        return f"Certificate of {self.kind} {self.id}", {
            "guarantee": f"epsilon={rounded_up(self.epsilon)}, delta={exact(self.delta)}, {self.relation}",
            "ledger": self.in_ledger,
            **({"files": names} if names else {}),
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def picture(self) -> PriceCurve | None:
        """The guarantee, taken at its word: verification is what checks it."""
        # It prices; most who read certificates don't.
        from privmix.certificate.guarantee import Guarantee

        try:
            return Guarantee.of(self).picture()
        except InvalidInput:
            return None

    @property
    def kind(self) -> str:
        return str(self.content["kind"])

    @property
    def id(self) -> str:
        return str(self.content["id"])

    @property
    def epsilon(self) -> float:
        stated = self.content["guarantee"]["epsilon"]
        return math.inf if stated is None else float(stated)

    @property
    def delta(self) -> float:
        return float(self.content["guarantee"]["delta"])

    @property
    def adjacency(self) -> str:
        return str(self.content["guarantee"]["adjacency"])

    @property
    def unit(self) -> Unit:
        return unit_of_stored(self.content["plan"])

    @property
    def relation(self) -> str:
        return relation_of(self.adjacency, self.unit)

    @property
    def plan(self) -> dict[str, Any]:
        return copy.deepcopy(dict(self.content["plan"]))

    @property
    def in_ledger(self) -> str:
        return str(self.content["in_ledger"])

    @property
    def insecure_seed(self) -> bool:
        return bool(self.content["insecure_seed"])

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.content["warnings"])

    @property
    def statements(self) -> tuple[str, ...]:
        return tuple(self.content["statements"])

    @property
    def files(self) -> tuple[dict[str, Any], ...]:
        return tuple(dict(item) for item in self.content["files"])

    def to_dict(self) -> dict[str, Any]:
        """A copy of the fields, as JSON values."""
        return copy.deepcopy(dict(self.content))

    def to_bytes(self) -> bytes:
        """As the bytes of its file: there is one way to write it."""
        return (json.dumps(dict(self.content), indent=2) + "\n").encode()


def issue(
    kind: type[CommonFields],
    plan: Plan,
    cost: PrivacyCost,
    *,
    name: str,
    own: Mapping[str, Any],
    said: Mapping[str, Any],
    files: Sequence[Mapping[str, Any]],
    insecure_seed: bool,
    in_ledger: str,
    about: Mapping[str, Any] | None = None,
) -> Certificate:
    """A certificate from public facts.

    Args:
        kind: which fields it has.
        plan: what ran.
        cost: its price, or more.
        name: the id.
        own: the fields of the kind.
        said: warnings, statements, assessment.
        files: file, rows and sha256 of each.
        insecure_seed: whether the randomness came from a seed that others may know.
        in_ledger: none, planned or adaptive.
        about: the owner's words, of :meth:`privmix.certificate.about.About.to_dict`.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind.of,
        "id": name,
        "guarantee": cost.to_dict(),
        "plan": plan.to_dict(),
        "event": event_to_dict(plan.event),
        **own,
        "insecure_seed": insecure_seed,
        "in_ledger": in_ledger,
        **said,
        "files": [dict(item) for item in files],
        "versions": {name: package_version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        **({"about": dict(about)} if about else {}),
    }
    return Certificate({**content, "content_sha256": content_hash(content)})


def content_hash(certificate: Mapping[str, Any]) -> str:
    """SHA-256 of the content without its own hash. It shows edits; it is no signature."""
    body = {key: value for key, value in certificate.items() if key != "content_sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_certificate(folder: str | Path, kind: type[CommonFields] = CommonFields) -> Certificate:
    """Read the certificate of a folder and check its shape, so that it can be shown; nothing is recomputed.

    Args:
        folder: a release or a trained model.
        kind: what it must be, with fields of its own; by default one of either, whose own fields are not looked at.

    Raises:
        StorageError: it can't be read.
        InvalidInput: it is no certificate of a version that is read here and of this kind, or was edited.
    """
    return parse_certificate(read_plain(Path(folder) / CERTIFICATE_FILE, "certificate", MOST_BYTES), kind)


def parse_certificate(content: bytes, kind: type[CommonFields] = CommonFields) -> Certificate:
    """As :func:`read_certificate`, of a file's bytes. How they are laid out is not looked at."""
    found = parse_json(content, "certificate")
    if not isinstance(found, dict):
        raise InvalidInput("certificate", type(found).__name__, "its fields, by name")
    version = check_version("certificate schema_version", found.get("schema_version"), FIRST_VERSION, SCHEMA_VERSION)
    if found.get("content_sha256") != content_hash(found):
        # Its own hash says so; a signature says who made it.
        allowed = "the file as it was made: its content_sha256 is of other content"
        raise InvalidInput(CERTIFICATE_FILE, "a file that was edited after it was made", allowed)
    check_texts(found, "certificate")
    check_choice("certificate kind", found.get("kind"), (kind.of,) if kind.of else (RELEASE, MODEL))
    known = names_of(kind)
    read(kind, found if kind.of else {name: found[name] for name in known if name in found}, "certificate", version)
    return Certificate(found, before(kind, version))


def check_guarantee(certificate: Mapping[str, Any], plan: Plan) -> PrivacyCost:
    """The price of the certified plan, recomputed, once event and guarantee are found to follow from it.

    Formal guarantees:
        * One plan: the event is the one that follows from the plan, and delta and adjacency are the plan's.
        * Price: epsilon of the event, recomputed here, is at most the stated one, which is at most what was asked.
    """
    stated = certificate["guarantee"]
    if event_from_dict(certificate["event"]) != plan.event:
        raise InvalidInput("certificate event", certificate["event"], "the event that follows from its plan")
    if plan.epsilon is None or plan.delta is None:
        raise InvalidInput("certificate plan epsilon", None, "the epsilon and delta that were asked for")
    for name, planned in {"delta": plan.delta, "adjacency": plan.adjacency.value}.items():
        if stated[name] != planned:
            raise InvalidInput(f"certificate {name}", stated[name], f"{planned!r}, as in the plan")
    try:
        cost = plan.cost()
    except ArithmeticError:
        raise InvalidInput("certificate event", plan.event, "an event that can be priced") from None
    claimed = math.inf if stated["epsilon"] is None else float(stated["epsilon"])
    if not cost.epsilon <= claimed * (1 + _SLACK):
        allowed = f"at least {rounded_up(cost.epsilon, 6)}, the recomputed epsilon"
        raise InvalidInput("certificate epsilon", claimed, allowed)
    if not claimed * (1 - _SLACK) <= plan.epsilon:
        asked = f"at most {exact(plan.epsilon)}, which was asked for"
        raise InvalidInput("certificate epsilon", claimed, asked)
    if stated["accountant"] != cost.accountant:
        raise InvalidInput("certificate accountant", stated["accountant"], cost.accountant)
    if stated["is_upper_bound"] is not True:
        raise InvalidInput("certificate is_upper_bound", stated["is_upper_bound"], "true")
    return cost


def check_counted(certificate: Certificate, plan: Any) -> None:
    """Raise :class:`InvalidInput` where a private count led to the plan and less than the whole budget is promised."""
    if plan.records_noise_multiplier is not None and certificate.epsilon != plan.epsilon:
        allowed = "the epsilon asked for, since the record count is private"
        raise InvalidInput("certificate epsilon", certificate.epsilon, allowed)


def check_said(certificate: Mapping[str, Any], said: Mapping[str, Any], *before: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` where warnings, statements or assessment are not those that follow from the plan.

    Args:
        certificate: to check.
        said: what follows from its plan.
        before: what versions of privmix wrote before, of which a certificate may hold one as a whole.
    """
    for name, text in said.items():
        if certificate[name] != text and not any(_says(certificate, one) for one in before):
            raise InvalidInput(f"certificate {name}", "other text", "the text that follows from the plan")


def _says(certificate: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    return all(certificate[name] == text for name, text in said.items())


def delta_warning(plan: Plan) -> list[str]:
    """A warning where delta is so large that whole records may be shown."""
    if plan.delta is None or plan.delta < 1 / plan.most_units:
        return []
    least = f"1/{unit_of(plan).many} = {1 / plan.most_units:.3g}"
    return [f"delta {exact(plan.delta)} is not below {least}: choose a smaller delta."]
