"""The certificate: what was guaranteed, in numbers that anyone can recompute and in words that anyone can read.

Releases and trained models have the same one. A part is common: what it is of, what was promised, the plan and its
event, warnings, statements, an assessment, files with their hashes. The rest is of its kind: see :class:`Kind`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix.accounting import PrivacyCost, event_from_dict, event_to_dict
from privmix.accounting.filters import LEDGER_MODES
from privmix.certificate.about import check_about
from privmix.certificate.assessment import as_rows
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.mechanisms.plan import Plan
from privmix.packages import package_version
from privmix.rounding import exact, rounded_up
from privmix.untrusted import MEBIBYTE, parse_json, read_plain

SCHEMA_VERSION: Final = 4
CERTIFICATE_FILE: Final = "certificate.json"
MOST_BYTES: Final = 16 * MEBIBYTE
# Far more than any disk holds, and exact in every kind of number.
MOST_ROWS: Final = 2**53
RELEASE, MODEL = "release", "model"
_FIELDS: Final[dict[str, type]] = {
    "schema_version": int,
    "kind": str,
    "id": str,
    "guarantee": dict,
    "plan": dict,
    "event": dict,
    "insecure_seed": bool,
    "in_ledger": str,
    "warnings": list,
    "statements": list,
    "assessment": list,
    "files": list,
    "versions": dict,
    "content_sha256": str,
}
# What certificates may have beside: those of earlier versions have none of it.
_OPTIONAL: Final[dict[str, Callable[[Any], None]]] = {"about": check_about}
_GUARANTEE: Final = {"epsilon", "delta", "adjacency", "accountant", "is_upper_bound"}
_PACKAGES: Final = ("privmix", "dp-accounting", "numpy", "scipy", "randomgen", "torch")
_ID, _HASH = re.compile(r"[0-9a-f]{32}\Z"), re.compile(r"[0-9a-f]{64}\Z")
_VERSION_TEXT = re.compile(r"[a-z-]{1,20}=[\w.+-]{1,40}\Z")
# The same figures may differ in the last digits between versions of the numerical libraries.
_SLACK: Final = 1e-6


@dataclass(frozen=True, eq=False)
class Certificate(Mapping[str, Any]):
    """A certificate as it was written: a mapping of its JSON fields, whose common ones are attributes too.

    Attributes:
        content: the fields.
        kind: release or model.
        id: names what it is of.
        epsilon: guaranteed; infinity where nothing is.
        delta, adjacency: what it is meant at.
        plan: what ran and what was asked, as JSON values.
        in_ledger: none, or how the charged budget counts.
        insecure_seed: the noise came from a seed, so that nothing is promised.
        warnings, statements: for people.
        files: what it is about: name, rows and SHA-256 of each.
    """

    content: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    def __repr__(self) -> str:
        promise = f"epsilon={rounded_up(self.epsilon)}, delta={exact(self.delta)}, adjacency={self.adjacency!r}"
        return f"Certificate({self.kind} {self.id}, {promise})"

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


@dataclass(frozen=True)
class Kind:
    """What the certificates of one kind have beside the common fields.

    Attributes:
        name: release or model.
        fields: names and JSON types of its own fields; object for those whose type ``check`` looks at.
        files: what the names of its files match.
        check: raises where the shape of its own fields is wrong.
        optional: names and JSON types of own fields that some certificates lack, those of earlier versions among them.
    """

    name: str
    fields: Mapping[str, type]
    files: re.Pattern[str]
    check: Callable[[Mapping[str, Any]], None]
    optional: Mapping[str, type] = field(default_factory=dict)


def issue(
    kind: str,
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
        kind: release or model.
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
        "kind": kind,
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


def read_certificate(folder: str | Path, kind: Kind | None = None) -> Certificate:
    """Read the certificate of a folder and check its shape, so that it can be shown; nothing is recomputed.

    Args:
        folder: a release or a trained model.
        kind: what it must be, with fields of its own; None: one of either kind, whose own fields are not looked at.

    Raises:
        StorageError: it can't be read.
        InvalidInput: it is no certificate of this version and kind, or was edited.
    """
    return parse_certificate(read_plain(Path(folder) / CERTIFICATE_FILE, "certificate", MOST_BYTES), kind)


def parse_certificate(content: bytes, kind: Kind | None = None) -> Certificate:
    """As :func:`read_certificate`, of a file's bytes. How they are laid out is not looked at.

    Raises:
        InvalidInput: it is no certificate of this version and kind, or was edited.
    """
    found = parse_json(content, "certificate")
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION:
        version_found = found.get("schema_version") if isinstance(found, dict) else type(found).__name__
        allowed = f"{SCHEMA_VERSION}; certificates of another are read by the privmix that their versions name"
        raise InvalidInput("certificate schema_version", version_found, allowed)
    if found.get("content_sha256") != content_hash(found):
        # Its own hash says so; a signature says who made it.
        allowed = "the file as it was made: its content_sha256 is of other content"
        raise InvalidInput(CERTIFICATE_FILE, "a file that was edited after it was made", allowed)
    check_choice("certificate kind", found.get("kind"), (RELEASE, MODEL) if kind is None else (kind.name,))
    optional = {} if kind is None else {name: of for name, of in kind.optional.items() if name in found}
    if kind is not None and set(found) - set(optional) - set(_OPTIONAL) != {*_FIELDS, *kind.fields}:
        odd = sorted((set(found) - set(optional) - set(_OPTIONAL)) ^ {*_FIELDS, *kind.fields})
        raise InvalidInput("certificate", odd, "its fields and no others")
    for name, expected in {**_FIELDS, **({} if kind is None else kind.fields), **optional}.items():
        if not isinstance(found.get(name), expected):
            raise InvalidInput(f"certificate {name}", type(found.get(name)).__name__, expected.__name__)
    _check_common(found)
    if kind is not None:
        _check_files(found["files"], kind.files)
        kind.check(found)
    return Certificate(found)


def _check_common(content: Mapping[str, Any]) -> None:
    """Shape of the common fields, so that readers can rely on it; meaning is what verification checks."""
    guarantee = content["guarantee"]
    if set(guarantee) != _GUARANTEE:
        raise InvalidInput("certificate guarantee", sorted(guarantee), ", ".join(sorted(_GUARANTEE)))
    if guarantee["epsilon"] is not None:
        check_number("certificate epsilon", guarantee["epsilon"], low=0)
    check_number("certificate delta", guarantee["delta"], low=0, high=1, high_open=True)
    check_choice("certificate in_ledger", content["in_ledger"], LEDGER_MODES)
    # These reach the data card and terminals: nothing in them may look like a part of it.
    if not _ID.match(content["id"]):
        raise InvalidInput("certificate id", content["id"], "32 hexadecimal digits")
    versions = content["versions"]
    if set(versions) != {*_PACKAGES, "python"}:
        raise InvalidInput("certificate versions", "other names", "those of python and " + ", ".join(_PACKAGES))
    if not all(isinstance(value, str) and _VERSION_TEXT.match(f"{name}={value}") for name, value in versions.items()):
        raise InvalidInput("certificate versions", "other text", "names and versions")
    as_rows(content["assessment"])
    for name, check in _OPTIONAL.items():
        if name in content:
            check(content[name])


def _check_files(files: Sequence[Any], names: re.Pattern[str]) -> None:
    for item in files:
        # Names are matched, not joined blindly: a certificate must not point outside its folder.
        if not isinstance(item, dict) or set(item) != {"file", "rows", "sha256"} or not names.match(str(item["file"])):
            raise InvalidInput("certificate files", item, "entries file, rows, sha256 of files that belong there")
        check_integer("certificate files: rows", item["rows"], low=0, high=MOST_ROWS)
        if not isinstance(item["sha256"], str) or not _HASH.match(item["sha256"]):
            raise InvalidInput("certificate files: sha256", item["sha256"], "64 hexadecimal digits")


def check_guarantee(certificate: Mapping[str, Any], plan: Plan) -> PrivacyCost:
    """The price of the certified plan, recomputed, once event and guarantee are found to follow from it.

    Formal guarantees:
        * One plan: the event is the one that follows from the plan, and delta and adjacency are the plan's.
        * Price: epsilon of the event, recomputed here, is at most the stated one, which is at most what was asked.

    Raises:
        InvalidInput: they do not; the message names what differs.
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
    if plan.delta is None or plan.delta < 1 / plan.records:
        return []
    return [f"delta {exact(plan.delta)} is not below 1/records = {1 / plan.records:.3g}: choose a smaller delta."]
