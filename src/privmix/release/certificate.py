"""The certificate: what was guaranteed, in numbers that anyone can recompute and in words that anyone can read."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from privmix.accounting import event_to_dict
from privmix.accounting.filters import ledger_statement
from privmix.certificate.assessment import as_rows, assess
from privmix.certificate.reservation import ReservationNote, mode_of
from privmix.designs import Plan
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.mechanisms.plan import check_price
from privmix.release.facts import release_facts
from privmix.rounding import exact
from privmix.untrusted import MEBIBYTE, parse_json, read_plain

SCHEMA_VERSION: Final = 4
CERTIFICATE_FILE: Final = "certificate.json"
PICTURE_FILE: Final = "predictions.svg"
MOST_BYTES: Final = 16 * MEBIBYTE
# Far more than any disk holds, and exact in every kind of number.
MOST_ROWS: Final = 2**53
_FIELDS: Final[dict[str, type]] = {
    "release_id": str,
    "guarantee": dict,
    "plan": dict,
    "event": dict,
    "epsilon_delta_curve": list,
    "noise_std": dict,
    "extractor": dict,
    "input_shape": list,
    "insecure_seed": bool,
    "in_ledger": str,
    "warnings": list,
    "statements": list,
    "assessment": list,
    "files": list,
}
_FILE = re.compile(r"(data/train-\d{5,9}-of-\d{5,9}\.parquet|[a-z][a-z-]{0,63}\.safetensors|predictions\.svg)\Z")
_OTHER_FIELDS: Final = {"schema_version", "choice", "versions", "content_sha256"}
_EXTRACTOR: Final = {"name", "version", "options", "weights_sha256", "files_sha256"}
_GUARANTEE: Final = {"epsilon", "delta", "adjacency", "accountant", "is_upper_bound", "epsilon_asked"}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")
# Sizes beyond these belong to no input that fits a memory.
_MOST_AXES, _LARGEST_AXIS = 8, 2**31
_PACKAGES: Final = ("privmix", "dp-accounting", "numpy", "scipy", "randomgen", "torch")
_VERSION_TEXT = re.compile(r"[a-z-]{1,20}=[\w.+-]{1,40}\Z")
_CURVE_SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)


def make_certificate(
    plan: Plan,
    *,
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    insecure_seed: bool,
    files: Sequence[Mapping[str, Any]],
    reservation: ReservationNote | None = None,
    choice: Mapping[str, Any] | None = None,
    release_id: str | None = None,
) -> dict[str, Any]:
    """Assemble the certificate of a finished release from public facts only.

    Args:
        plan: what ran, with the target that was asked for.
        extractor: description of the public feature extractor.
        input_shape: shape of one raw input.
        insecure_seed: whether the randomness came from a seed that others may know.
        files: name, rows and SHA-256 of every data file.
        reservation: of the ledger that was charged.
        choice: how the planner came to the plan; see :meth:`privmix.release.planner.Choice.to_dict`.
        release_id: names the release; a fresh one if None.

    Raises:
        InvalidInput: the plan costs more than was asked.
    """
    cost = check_price(plan)
    assert plan.epsilon is not None
    if plan.records_noise_multiplier is not None:
        # Other answers of the count would have led to plans of other prices: the budget holds for all of them.
        cost = replace(cost, epsilon=plan.epsilon)
    in_ledger = mode_of(reservation)
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "release_id": release_id or uuid.uuid4().hex,
        "guarantee": {**cost.to_dict(), "epsilon_asked": plan.epsilon},
        "plan": plan.to_dict(),
        "event": event_to_dict(plan.event),
        "epsilon_delta_curve": curve_of(plan, cost.epsilon, cost.delta),
        "noise_std": plan.noise_std,
        "extractor": dict(extractor),
        "input_shape": [int(size) for size in input_shape],
        "insecure_seed": insecure_seed,
        "in_ledger": in_ledger,
        "choice": None if choice is None else dict(choice),
        **public_text(plan, insecure_seed, in_ledger),
        "versions": {name: package_version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "files": [dict(item) for item in files],
    }
    content["assessment"] = assess(release_facts(plan, content))
    content["content_sha256"] = content_hash(content)
    return content


def content_hash(certificate: Mapping[str, Any]) -> str:
    """SHA-256 of the certificate's content without its own hash. It shows edits; it is no signature."""
    body = {key: value for key, value in certificate.items() if key != "content_sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def certificate_bytes(certificate: Mapping[str, Any]) -> bytes:
    """The certificate as the bytes of its file: there is one way to write it."""
    return (json.dumps(dict(certificate), indent=2) + "\n").encode()


def read_certificate(folder: Path) -> dict[str, Any]:
    """Read and structurally check a release's certificate.

    Raises:
        StorageError: it can't be read.
        InvalidInput: it is not a certificate of this version, or was edited.
    """
    return parse_certificate(read_plain(folder / CERTIFICATE_FILE, "certificate", MOST_BYTES))


def parse_certificate(content: bytes) -> dict[str, Any]:
    """As :func:`read_certificate`, of a file's bytes. How they are laid out is not looked at.

    Raises:
        InvalidInput: it is not a certificate of this version, or was edited.
    """
    found = parse_json(content, "certificate")
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION:
        version_found = found.get("schema_version") if isinstance(found, dict) else type(found).__name__
        allowed = f"{SCHEMA_VERSION}; certificates of another are read by the privmix that their versions name"
        raise InvalidInput("certificate schema_version", version_found, allowed)
    if found.get("content_sha256") != content_hash(found):
        raise InvalidInput("certificate content_sha256", found.get("content_sha256"), "the hash of its own content")
    _check_fields(found)
    return found


def _check_fields(content: Mapping[str, Any]) -> None:
    """Shape of the certificate, so that readers can rely on it; meaning is what verification checks."""
    if set(content) != {*_FIELDS, *_OTHER_FIELDS}:
        raise InvalidInput("certificate", sorted(set(content) ^ {*_FIELDS, *_OTHER_FIELDS}), "its fields and no others")
    for name, kind in _FIELDS.items():
        if not isinstance(content.get(name), kind):
            raise InvalidInput(f"certificate {name}", type(content.get(name)).__name__, kind.__name__)
    guarantee = content["guarantee"]
    if set(guarantee) != _GUARANTEE:
        raise InvalidInput("certificate guarantee", sorted(guarantee), ", ".join(sorted(_GUARANTEE)))
    for name in ("epsilon", "delta"):
        if guarantee[name] is not None:
            check_number(f"certificate {name}", guarantee[name], low=0)
    check_number("certificate delta", guarantee["delta"], low=0, high=1, high_open=True)
    for value in content["noise_std"].values():
        check_number("certificate noise_std", value, low=0)
    for item in content["files"]:
        # Names are matched, not joined blindly: a certificate must not point outside its folder.
        if not isinstance(item, dict) or set(item) != {"file", "rows", "sha256"} or not _FILE.match(str(item["file"])):
            raise InvalidInput("certificate files", item, "entries file, rows, sha256 of shards in data/")
        check_integer("certificate files: rows", item["rows"], low=0, high=MOST_ROWS)
        if not isinstance(item["sha256"], str) or not _HASH.match(item["sha256"]):
            raise InvalidInput("certificate files: sha256", item["sha256"], "64 hexadecimal digits")
    if not isinstance(content["choice"], dict | None):
        raise InvalidInput("certificate choice", type(content["choice"]).__name__, "what the planner wrote, or null")
    # These reach the data card: nothing in them may look like a part of it.
    if not _NAME.match(str(content["extractor"].get("name"))):
        raise InvalidInput("certificate extractor", content["extractor"].get("name"), "a plain name")
    if not set(content["extractor"]) <= _EXTRACTOR:
        raise InvalidInput("certificate extractor", "other fields", ", ".join(sorted(_EXTRACTOR)))
    if not re.fullmatch(r"[0-9a-f]{32}", content["release_id"]):
        raise InvalidInput("certificate release_id", content["release_id"], "32 hexadecimal digits")
    versions = content["versions"]
    if not isinstance(versions, dict) or set(versions) != {*_PACKAGES, "python"}:
        raise InvalidInput("certificate versions", "other names", "those of python and " + ", ".join(_PACKAGES))
    if not all(isinstance(value, str) and _VERSION_TEXT.match(f"{name}={value}") for name, value in versions.items()):
        raise InvalidInput("certificate versions", "other text", "names and versions")
    as_rows(content["assessment"])
    _check_curve(content["epsilon_delta_curve"])
    if len(content["input_shape"]) > _MOST_AXES:
        raise InvalidInput("certificate input_shape", len(content["input_shape"]), f"at most {_MOST_AXES} sizes")
    for size in content["input_shape"]:
        check_integer("certificate input_shape", size, low=1, high=_LARGEST_AXIS)


def _check_curve(points: Sequence[Any]) -> None:
    """A curve that some mechanism could have: deltas up to 1 that do not rise with epsilon."""
    pairs = []
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            raise InvalidInput("certificate curve", point, "pairs of epsilon and delta")
        at = check_number("certificate curve", point[0], low=0)
        pairs.append((at, -check_number("certificate curve", point[1], low=0, high=1)))
    # By epsilon: rounding may swap neighbours where epsilon is next to nothing.
    deltas = [delta for _, delta in sorted(pairs)]
    if deltas != sorted(deltas):
        raise InvalidInput("certificate curve", "deltas that rise with epsilon", "deltas that do not rise")


def curve_of(plan: Plan, at: float, delta: float) -> list[list[float]]:
    """The certificate's curve: deltas at shares and multiples of the epsilon ``at``."""
    epsilons = [round(at * share, 6) if share != 1 else at for share in _CURVE_SHARES]
    return [[one, other] for one, other in zip(epsilons, plan.curve(epsilons, (at, delta)), strict=True)]


def public_text(plan: Plan, insecure_seed: bool, in_ledger: str) -> dict[str, list[str]]:
    """The certificate's ``warnings`` and ``statements``: what people read, from the plan alone."""
    return {
        "warnings": _warnings(plan, insecure_seed),
        "statements": _statements(plan, in_ledger),
    }


def _warnings(plan: Plan, insecure_seed: bool) -> list[str]:
    warnings = []
    if insecure_seed:
        warnings.append("insecure_seed: the noise can be re-created by anyone who guesses the seed. Not for real data.")
    if plan.delta is not None and plan.delta >= 1 / plan.records:
        warnings.append(
            f"delta {exact(plan.delta)} is not below 1/records = {1 / plan.records:.3g}: choose a smaller delta."
        )
    return warnings


def _statements(plan: Plan, in_ledger: str) -> list[str]:
    relation = {
        "add_remove": "adding or removing one record",
        "replace_one": "replacing one record by another",
    }[plan.adjacency.value]
    return [
        f"The guarantee is for {relation}. A person with several records in the data is protected less.",
        _count_statement(plan),
        "The class list, shapes, clipping bounds, rates, degree and number of rows are public constants.",
        *plan.kind.statements,
        ledger_statement(
            in_ledger,
            "releases",
            "No budget ledger was used: earlier releases of the same data are not counted here.",
        ),
        "Whatever is computed from the released files alone costs no further privacy.",
    ]


def _count_statement(plan: Plan) -> str:
    if plan.records_noise_multiplier is not None:
        return (
            f"The record count {plan.records} is a differentially private estimate, on the low side; "
            "its cost is part of this guarantee (added to that of the rest) and the real count is protected."
        )
    if plan.records_declared:
        return f"{plan.records} is a public figure that the owner declared; the real record count is not used."
    return f"The record count {plan.records} is taken as public; it is not protected by this guarantee."


def package_version(name: str) -> str:
    """Version of an installed package; ``unknown`` where it runs from a bare checkout."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
