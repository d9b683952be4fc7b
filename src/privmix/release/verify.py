"""Check a release without trusting whoever made it: recompute its price and the hashes of its files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privmix.accounting import PrivacyCost, event_from_dict
from privmix.certificate.assessment import assess
from privmix.certificate.croissant import CROISSANT_FILE, croissant
from privmix.certificate.signing import ATTESTATION_FILE
from privmix.errors import InvalidInput, StorageError, check_number
from privmix.release.card import data_card
from privmix.release.certificate import CERTIFICATE_FILE, PICTURE_FILE, curve_of, public_text, read_certificate
from privmix.release.facts import release_facts
from privmix.release.folder import CENTRE_FILE, MOMENTS_FILE, file_hash, load_release
from privmix.release.moments_plan import MomentsPlan
from privmix.release.plan import Plan, plan_from_dict
from privmix.release.planner import check_choice_record, check_choice_settings
from privmix.release.pricing import plan_cost
from privmix.rounding import rounded_up
from privmix.untrusted import MEBIBYTE, read_plain


@dataclass(frozen=True)
class Verification:
    """What held. Every check that fails raises instead."""

    release_id: str
    epsilon: float
    delta: float
    adjacency: str
    recomputed_epsilon: float
    files: int
    warnings: tuple[str, ...]


def verify_release(folder: str | Path) -> Verification:
    """Recompute what a release's certificate claims.

    Checks, in order: the certificate hashes to what it says; its event is the one that follows from its own plan (so
    sampler and price belong together); the event's epsilon, recomputed here, is at most the stated one; noise levels,
    curve, warnings, statements, assessment, data card and Croissant metadata follow from the plan; the folder holds the
    certified files and no others, every file has its hash, and the rows have the certified shapes.

    It can't check that the rows really came from running the plan, nor that the owner kept the key secret.

    Raises:
        InvalidInput: a check failed; the message names it.
        StorageError: a file is missing or unreadable.
    """
    root = Path(folder)
    certificate = read_certificate(root)
    plan, cost = check_certificate(certificate)
    stated = certificate["guarantee"]
    if (root / "README.md").read_text(encoding="utf-8") != data_card(plan, certificate):
        raise InvalidInput("README.md", "other content", "the data card that follows from the certificate")
    _check_listing(root, certificate, plan)
    for item in certificate["files"]:
        path = root / item["file"]
        if not path.is_file():
            raise StorageError(f"files: {item['file']} is missing from {root}")
        if file_hash(path) != item["sha256"]:
            raise InvalidInput(item["file"], "other content", "the bytes whose SHA-256 is in the certificate")
    if _metadata(root) != croissant(certificate, file_hash(root / CERTIFICATE_FILE)):
        raise InvalidInput(CROISSANT_FILE, "other content", "the metadata that follows from the certificate")
    load_release(root)
    return Verification(
        release_id=certificate["release_id"],
        epsilon=math.inf if stated["epsilon"] is None else float(stated["epsilon"]),
        delta=stated["delta"],
        adjacency=stated["adjacency"],
        recomputed_epsilon=cost.epsilon,
        files=len(certificate["files"]),
        warnings=tuple(certificate["warnings"]),
    )


def check_certificate(certificate: Mapping[str, Any]) -> tuple[Plan, PrivacyCost]:
    """The part of :func:`verify_release` that needs no file but the certificate, as ``read_certificate`` gave it.

    Returns:
        the plan, and its price recomputed here.

    Raises:
        InvalidInput: event, price, noise or words do not follow from the plan.
    """
    plan = plan_from_dict(certificate["plan"])
    stated = certificate["guarantee"]
    if event_from_dict(certificate["event"]) != plan.event:
        raise InvalidInput("certificate event", certificate["event"], "the event that follows from its plan")
    if stated["adjacency"] != plan.adjacency.value:
        raise InvalidInput("certificate adjacency", stated["adjacency"], plan.adjacency.value)
    claimed = math.inf if stated["epsilon"] is None else float(stated["epsilon"])
    try:
        cost = plan_cost(plan, stated["delta"])
    except ArithmeticError:
        raise InvalidInput("certificate event", plan.event, "an event that can be priced") from None
    # The same figures may differ in the last digits between versions of the numerical libraries.
    if not cost.epsilon <= claimed * (1 + 1e-6):
        raise InvalidInput(
            "certificate epsilon", claimed, f"at least {rounded_up(cost.epsilon, 6)}, the recomputed epsilon"
        )
    if (choice := certificate.get("choice")) is not None:
        if (choice.get("epsilon"), choice.get("delta")) != (stated.get("epsilon_asked"), stated["delta"]):
            raise InvalidInput("certificate choice", "another budget", "a choice made for this budget")
        check_choice_record(choice)
        check_choice_settings(choice, plan)
    _check_noise(certificate["noise_std"], plan)
    _check_text(certificate, plan, cost.accountant)
    return plan, cost


def _check_text(certificate: Mapping[str, Any], plan: Plan, accountant: str) -> None:
    """What people read says what was recomputed: accountant, curve, warnings and statements."""
    stated = certificate["guarantee"]
    if stated["accountant"] != accountant or stated["is_upper_bound"] is not True:
        raise InvalidInput("certificate accountant", stated["accountant"], f"{accountant}, an upper bound")
    claimed = math.inf if stated["epsilon"] is None else stated["epsilon"]
    if not claimed * (1 - 1e-6) <= check_number("certificate epsilon_asked", stated.get("epsilon_asked"), low=0):
        raise InvalidInput("certificate epsilon_asked", stated["epsilon_asked"], f"at least {rounded_up(claimed, 6)}")
    if plan.records_noise_multiplier is not None and claimed != stated["epsilon_asked"]:
        raise InvalidInput("certificate epsilon", claimed, "the epsilon asked for, since the record count is private")
    expected = curve_of(plan, claimed, stated["delta"])
    if len(certificate["epsilon_delta_curve"]) != len(expected):
        raise InvalidInput("certificate curve", len(certificate["epsilon_delta_curve"]), f"{len(expected)} points")
    for point, (at, recomputed) in zip(certificate["epsilon_delta_curve"], expected, strict=True):
        if check_number("certificate curve", point[0], low=0) != at:
            raise InvalidInput("certificate curve", point, f"a point at epsilon {at:.6g}")
        if not check_number("certificate curve", point[1], low=0) >= recomputed * (1 - 1e-6):
            raise InvalidInput("certificate curve", point, f"delta of at least {recomputed:.6g}")
    for name, text in public_text(
        plan,
        stated["delta"],
        certificate["insecure_seed"],
        certificate["records_declared"],
        certificate["in_ledger"],
    ).items():
        if certificate[name] != text:
            raise InvalidInput(f"certificate {name}", "other text", "the text that follows from the plan")
    if certificate["assessment"] != assess(release_facts(plan, certificate)):
        raise InvalidInput("certificate assessment", "other text", "the text that follows from the plan")


def _metadata(root: Path) -> bytes:
    # Of the size that the certificate's own justifies: it says the same, and each file in a few lines more.
    return read_plain(root / CROISSANT_FILE, CROISSANT_FILE, 8 * (root / CERTIFICATE_FILE).stat().st_size + MEBIBYTE)


def _check_listing(root: Path, certificate: Mapping[str, Any], plan: Plan) -> None:
    """Exactly the certified files are there: a shard that is not listed would be read along by other tools."""
    listed = {item["file"] for item in certificate["files"]}
    present = {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}
    if extra := sorted(present - listed - {CERTIFICATE_FILE, "README.md", CROISSANT_FILE, ATTESTATION_FILE}):
        raise InvalidInput("files", extra[0], "only files that the certificate lists")
    wanted_files = {
        CENTRE_FILE: plan.centred,
        MOMENTS_FILE: isinstance(plan, MomentsPlan),
        PICTURE_FILE: certificate.get("choice") is not None,
    }
    for name, wanted in wanted_files.items():
        if wanted != (name in listed):
            raise InvalidInput("files", sorted(listed), f"{name} exactly when the plan makes one")


def _check_noise(stated: dict[str, float], plan: Plan) -> None:
    if set(stated) != set(plan.noise_std):
        raise InvalidInput("certificate noise_std", sorted(stated), f"{sorted(plan.noise_std)}")
    for name, expected in plan.noise_std.items():
        if not math.isclose(stated[name], expected, rel_tol=1e-9, abs_tol=1e-300):
            raise InvalidInput(f"certificate noise_std {name}", stated[name], f"{expected:.9g}, as the plan implies")
