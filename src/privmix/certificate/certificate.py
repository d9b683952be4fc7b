"""The certificate of a release or a trained model: the guarantee in recomputable numbers and in words."""

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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from privmix import fields
from privmix.accounting.base import PrivacyCost
from privmix.accounting.events import Adjacency, event_from_dict, event_to_dict
from privmix.accounting.filters import LEDGER_MODES
from privmix.certificate.about import check_about
from privmix.certificate.assessment import as_rows
from privmix.errors import InvalidInput, check_choice
from privmix.mechanisms.plan import Plan, Unit, relation_of, unit_of, unit_of_stored
from privmix.packages import package_version
from privmix.rounding import exact, rounded_up
from privmix.shown import Bars, Shown
from privmix.untrusted import MEBIBYTE, check_texts, parse_json, read_plain

if TYPE_CHECKING:
    from privmix.certificate.guarantee import Guarantee

# The version that is written, and the oldest that is read. A field that comes with a new version names it: ``unit: str
# = later(5, "record")``; older certificates stay what they are.
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
class Promise(fields.Checked):
    """The guarantee: :meth:`privmix.accounting.PrivacyCost.to_dict`; epsilon None: no guarantee."""

    epsilon: fields.Amount | None
    delta: fields.Fraction
    adjacency: Annotated[str, fields.Choice(*(one.value for one in Adjacency))]
    accountant: fields.Words
    is_upper_bound: bool


@dataclass(frozen=True)
class File(fields.Checked):
    """A file that a certificate is about."""

    file: fields.Words
    rows: Annotated[int, fields.Whole(0, MOST_ROWS)]
    sha256: fields.Digest


def _check_versions(name: str, versions: Any) -> None:
    if not isinstance(versions, Mapping) or set(versions) != {*_PACKAGES, "python"}:
        raise InvalidInput(name, "other names", "those of python and " + ", ".join(_PACKAGES))
    if not all(isinstance(value, str) and _VERSION_TEXT.match(f"{one}={value}") for one, value in versions.items()):
        raise InvalidInput(name, "other text", "names and versions")


@dataclass(frozen=True, kw_only=True)
class CommonFields(fields.Checked):
    """The shape of a certificate's fields; verification checks their meaning. Patterns match whole texts."""

    # of: the kind, empty for any. file_names: names of its files are not joined blindly to a folder.

    of: ClassVar[str] = ""
    file_names: ClassVar[re.Pattern[str]] = re.compile(".*", re.DOTALL)

    schema_version: fields.Count
    kind: Annotated[str, fields.Choice(RELEASE, MODEL)]
    id: Annotated[str, fields.Text("[0-9a-f]{32}", "32 hexadecimal digits")]
    guarantee: Promise
    plan: dict[str, Any]
    event: dict[str, Any]
    insecure_seed: fields.Switch
    in_ledger: Annotated[str, fields.Choice(*LEDGER_MODES)]
    warnings: tuple[fields.Words, ...]
    statements: tuple[fields.Words, ...]
    assessment: Annotated[list[Any], fields.By(lambda _, answers: as_rows(answers), [1], {})]
    files: tuple[File, ...]
    versions: Annotated[dict[str, Any], fields.By(_check_versions, {}, [])]
    about: Annotated[dict[str, Any] | None, fields.By(check_about, {}, {"owner": 1})] = fields.used(None)
    content_sha256: fields.Words

    def __post_init__(self) -> None:
        super().__post_init__()
        for item in self.files:
            if not self.file_names.fullmatch(item.file):
                raise InvalidInput("files", item.file, "names of files that belong there")


@dataclass(frozen=True, eq=False)
class Certificate(Shown, Mapping[str, Any]):
    """A certificate as written: its JSON fields, the common ones also as attributes."""

    # older: fields introduced later, and their meaning where absent; relation: printed adjacency and unit; epsilon:
    # infinite where nothing is guaranteed, as with an insecure seed.

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
        names = ", ".join(str(item["file"]) for item in self.files)
        return f"Certificate of {self.kind} {self.id}", {
            **self.lead(),
            "ledger": self.in_ledger,
            **({"files": names} if names else {}),
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def lead(self) -> dict[str, object]:
        """Return the promise, and the odds that it leaves an attacker: the first facts of every card."""
        # Taken at its word: verification is what checks it.
        told = {"guarantee": f"epsilon={rounded_up(self.epsilon)}, delta={exact(self.delta)}, {self.relation}"}
        promised = self._promised()
        return {**told, **({} if promised is None else {"in words": promised.odds})}

    def picture(self) -> Bars | None:
        """Return the odds of the best attack, by the stated guarantee."""
        promised = self._promised()
        return None if promised is None else promised.picture()

    def _promised(self) -> Guarantee | None:
        # It prices; most who read certificates don't.
        from privmix.certificate.guarantee import Guarantee

        try:
            promised = Guarantee.of(self)
            limited = math.isfinite(promised.epsilon) and not self.insecure_seed and promised.right <= 1
            return promised if limited else None
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
        """Return a copy of the fields, as JSON values."""
        # A copy: the content is what the hash is of.
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
    # cost: of the plan, or more; said: warnings, statements, assessment; files: file, rows and sha256 of each.
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
    # Sorted and without spaces: the hash is of the values.
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_certificate(folder: str | Path, kind: type[CommonFields] = CommonFields) -> Certificate:
    """Read a folder's certificate of a ``kind`` (default: any) and check its shape; nothing is recomputed."""
    return parse_certificate(read_plain(Path(folder) / CERTIFICATE_FILE, "certificate", MOST_BYTES), kind)


def parse_certificate(content: bytes, kind: type[CommonFields] = CommonFields) -> Certificate:
    """As :func:`read_certificate`, of a file's bytes. How they are laid out is not looked at."""
    found = parse_json(content, "certificate")
    if not isinstance(found, dict):
        raise InvalidInput("certificate", type(found).__name__, "its fields, by name")
    stated, name = found.get("schema_version"), "certificate schema_version"
    version = fields.check_version(name, stated, FIRST_VERSION, SCHEMA_VERSION)
    if found.get("content_sha256") != content_hash(found):
        # The file's own hash shows an edit; a signature shows who made the file.
        allowed = "the file as it was made: its content_sha256 is of other content"
        raise InvalidInput(CERTIFICATE_FILE, "a file that was edited after it was made", allowed)
    check_texts(found, "certificate")
    check_choice("certificate kind", found.get("kind"), (kind.of,) if kind.of else (RELEASE, MODEL))
    known = found if kind.of else {name: found[name] for name in fields.names_of(kind) if name in found}
    fields.read(kind, known, "certificate", version)
    return Certificate(found, fields.before(kind, version))


def check_guarantee(certificate: Mapping[str, Any], plan: Plan) -> PrivacyCost:
    """Check that event and guarantee follow from the certified plan; return the recomputed cost.

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
    # Written so that NaN is refused.
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
    """Check that warnings, statements and assessment follow from the plan, or are as a whole one of ``before``."""
    # before: the texts of earlier versions of privmix.
    for name, text in said.items():
        # As a whole: texts of two versions must not be mixed.
        if certificate[name] != text and not any(all(certificate[key] == one[key] for key in one) for one in before):
            raise InvalidInput(f"certificate {name}", "other text", "the text that follows from the plan")


def delta_warning(plan: Plan) -> list[str]:
    """Return a warning where delta is so large that whole records may be shown."""
    if plan.delta is None or plan.delta < 1 / plan.most_units:
        return []
    least = f"1/{unit_of(plan).many} = {1 / plan.most_units:.3g}"
    return [f"delta {exact(plan.delta)} is not below {least}: choose a smaller delta."]
