"""Verify a release without trusting its maker: its cost, its files, evidence of noise, and the limits of all this."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from privmix.accounting.base import PrivacyCost
from privmix.audits.empty_runs import ROUNDING, UP_TO_ROUNDING
from privmix.audits.evidence import RowEvidence, beside_tests, centre_tests, row_law
from privmix.audits.noise_tests import ON_THE_GRID, NoiseTest
from privmix.certificate import certificate as common
from privmix.certificate.about import LICENCE_FILE, MOST_LICENCE_BYTES, check_licence
from privmix.certificate.certificate import Certificate
from privmix.certificate.croissant import CROISSANT_FILE, croissant
from privmix.certificate.guarantee import Guarantee
from privmix.certificate.notes import link_of
from privmix.certificate.sealed_key import commitment_of
from privmix.certificate.verification import COUNT_UNCHECKED, Verification
from privmix.errors import InvalidInput, check_number
from privmix.features.spec import check_shape, check_spec, stated_names
from privmix.planning.choice import check_choice_record, check_choice_settings
from privmix.plans.plan import Plan
from privmix.plans.registry import plan_from_dict
from privmix.progress import Progress, silent
from privmix.releases import folder as release_folder
from privmix.releases.card import EDITIONS, arrays, check_picture, data_card, mixes, released_shares
from privmix.releases.card import MOST_BYTES as MOST_PICTURE_BYTES
from privmix.releases.certificate import PICTURE_FILE, curve_of, parse_certificate, public_text, step_of, told_in_shards
from privmix.rounding import rounded_down
from privmix.untrusted import open_plain, read_plain

UNCHECKED: Final = (
    "that the rows came from running this plan on the records: noise is tested as far as data cannot hide its absence",
    "that insecure_seed is honest, and that the key was kept secret and destroyed",
    COUNT_UNCHECKED,
    "that a ledger was charged, and other releases of the same records",
    "noise of another shape, and noise that somebody knows or made to look right: noise can be made that no test tells "
    "from Gaussian and that whoever holds a key can take off (Sun and He 2025)",
    "the order of rows, and that features and labels of a row belong together",
    "what texts say that are the owner's: title, owner, contact, licence (200 characters each), purpose (1,000), date, "
    "a licence's own text (128 KiB), names of classes (200 each), of a model, of a table's columns and categories (64 "
    "KiB in all)",
    "the planner's predictions and picture (128 KiB), if there are any, and what the weights of a feature extractor "
    "were made of",
    "who made the release, unless privmix verify --key finds it signed: hashes show edits and are no signature",
)
"""Limits of verification for any release, in words."""

_KEY: Final = next(text for text in UNCHECKED if "the key was kept secret" in text)

# Shares of the noise that are called nothing.
_LEAST: Final = 0.05
# Which released numbers a test is about, by its name, where the name alone does not show it.
_PARTS: Final = {
    "noise of the mean": "the mean",
    "noise of each column of x": "features of rows",
    "noise of x": "features of rows",
    "noise of x where it varies least": "features of rows",
    "noise of each column of y": "labels of rows",
    "noise of y": "labels of rows",
    "noise of label sums over classes": "labels of rows",
}

# A series' card, and the sentence that earlier builds added: their `fit` read all steps.
_SERIES: Final = b"do not average releases of one series.\n"
_WEIGHED: Final = (
    b" Who has them all gets less noise than\nthe newest has: `privmix fit` weighs them where it is given the folder "
    b"that they are in.\n"
)


def unchecked(certificate: Mapping[str, Any], tests: Iterable[NoiseTest], *, laplace: bool = False) -> tuple[str, ...]:
    """Return what a release's verification leaves open: :data:`UNCHECKED` and its own numbers' part."""
    # laplace: rows have Laplace noise, whose tests do not bound how much data hide.
    found = tuple(tests)
    own = [missing_noise(found, laplace=laplace)]
    if _sampled(found):
        own.append(
            "that the rows are samples of the released numbers, which anybody can draw anew: these may be others"
        )
    if loose := [test.name for test in found if test.name.endswith(UP_TO_ROUNDING)]:
        own.append(
            f"digits of {', '.join(name.removesuffix(UP_TO_ROUNDING) for name in loose)} below {ROUNDING:g} of the "
            "largest: they were rounded by another kind of machine than this one"
        )
    if any(item["file"] == release_folder.ROWS_FILE for item in certificate["files"]):
        own.append("that rows.csv was sampled from the released numbers: privmix sample makes rows of your own")
    found_open = (*UNCHECKED[:4], *own, *UNCHECKED[4:])
    if link_of(certificate) is not None:
        key = (
            "that insecure_seed is honest, that the key of the series is kept secret and destroyed at its end, and "
            "that no step was made twice for other records"
        )
        found_open = tuple(key if text == _KEY else text for text in found_open)
    if (sealed := commitment_of(certificate)) is None:
        return found_open
    replayed = f"{UNCHECKED[0]}; with the sealed key privmix replay shows it"
    key = (
        "that insecure_seed is honest, that the key was drawn at random and kept secret, that no copy of it is left "
        f"but the sealed one, what {sealed.whom} did with it, and that it was destroyed by the end of {sealed.until}"
    )
    return tuple({UNCHECKED[0]: replayed, _KEY: key}.get(text, text) for text in found_open)


def _sampled(tests: tuple[NoiseTest, ...]) -> bool:
    """Whether rows are samples of the arrays released with them, and not on the grid of noisy sums."""
    return any(test.name == ON_THE_GRID and not test.tests for test in tests)


def excluded_below(test: NoiseTest) -> float | None:
    """Return the share of the certified noise that the test would have refused on these data; None: unknown."""
    # About 1 of what was measured is noise and the rest signal. With a share f of the noise, the same data would
    # measure the root of (lowest^2 - 1 + f^2). A test of few numbers knows the signal badly.
    if test.lowest is None or test.caught is None:
        return None
    return math.sqrt(max(0.0, test.caught**2 - max(0.0, test.lowest**2 - 1)))


def missing_noise(tests: Iterable[NoiseTest], *, laplace: bool = False) -> str:
    """Return a sentence: how much of each noise may be missing without being noticed in this release."""
    shares: dict[str, float] = {}
    found = tuple(tests)
    for test in found:
        part = test.about or _PARTS.get(test.name)
        if part is not None and not (part.endswith("rows") and _sampled(found)):
            known = excluded_below(test) or 0.0
            known = known if known >= _LEAST else 0.0
            shares[part] = max(shares.get(part, 0.0), 0.0 if laplace and part.endswith("rows") else known)
    seen = [f"{part} (below {rounded_down(share, 2)} of the certified size)" for part, share in shares.items() if share]
    hidden = [part for part, share in shares.items() if not share]
    told = []
    if seen:
        told.append(f"with these data it would be noticed, about, in {', '.join(seen)}, and above that it would not")
    if hidden:
        told.append(f"noise of 0 is not excluded in {', '.join(hidden)}, to which the data add too much")
    return "noise that is too small: " + "; ".join(told)


def verify_release(folder: str | Path, progress: Progress = silent) -> Verification:
    """Recompute what a release's certificate claims, and test what its numbers can show.

    Formal guarantees:
        * Whole: the folder holds exactly the files that follow from the plan, plain ones. Every byte of them follows
          from the certificate, has the hash that it states, or, of the certificate itself, from its content.
        * Nothing else: shards and arrays have one form, which holds the released numbers alone. A table's ``rows.csv``
          is checked by its hash, not its content. Arrays that follow from others (maps of later stages) are made again.
          On a machine that rounds otherwise they are compared by what they are, up to rounding.
        * Typed: each value of the certificate has its type, range and greatest length. The result's ``unchecked`` lists
          what texts and numbers may still express, with its size.
        * One plan: the event follows from the plan, so sampler and price belong together; noise levels, warnings,
          statements, assessment, data card and Croissant metadata follow from it too.
        * Price: epsilon of the event, recomputed here, is at most the stated one; so is delta all along the curve.
        * Noise: the released numbers pass one-sided tests of the certified noise, which refuse an honest release with
          probability ``false_alarm`` (below 1e-9) at most, for any records.
        * Bounded: nothing is allocated that the files' sizes do not justify. No code of theirs runs, no link is
          followed, and each file is opened once: what is tested is what was hashed.

    The result's ``unchecked`` lists the rest: :data:`UNCHECKED`, and how much noise may be missing unnoticed.
    """
    root = Path(folder)
    held = check_but_numbers(root)
    certificate = held.certificate
    tests = tuple(_check_numbers(root, held, progress))
    left = unchecked(certificate, tests, laplace=certificate["plan"].get("noise") == "laplace")
    extractor = certificate["extractor"]
    return Verification.of(certificate, held.cost, extractor=extractor, unchecked=left, tests=tests)


@dataclass(frozen=True)
class VerifiedFolder:
    """Results of the checks before rows are read."""

    # `cost` is recomputed, `shards` are the certificate's entries in order, `beside` the released arrays but rows.

    certificate: Certificate
    plan: Plan
    cost: PrivacyCost
    shards: Sequence[Mapping[str, Any]]
    beside: Any


def check_but_numbers(root: Path) -> VerifiedFolder:
    """Check all that follows from the certificate: the part of :func:`verify_release` without rows and noise."""
    content = read_plain(root / common.CERTIFICATE_FILE, "certificate", common.MOST_BYTES)
    certificate = parse_certificate(content)
    check_spec(certificate["extractor"])
    plan = plan_from_dict(certificate["plan"])
    _check_names(certificate, plan)
    # Before anything is computed from its numbers: there is a file for every row.
    release_folder.check_files(root, certificate, plan)
    shards = release_folder.check_shards(root, certificate, plan)
    check_shape(certificate["extractor"], certificate["input_shape"], plan.dim)
    cost = check_certificate(certificate)[1]
    # Spaces or the order of keys could carry a message that no check reads.
    if content != certificate.to_bytes():
        raise InvalidInput("certificate", "another layout", "the layout in which privmix writes it")
    # Cards of earlier versions name no features.
    beside = release_folder.read_beside(root, plan, certificate)
    cards = [data_card(plan, certificate, shares=(), **edition).encode() for edition in EDITIONS]
    cards.append(data_card(plan, certificate, shares=released_shares(plan, beside)).encode())
    cards += [card.replace(_SERIES, _SERIES[:-1] + _WEIGHED) for card in cards]
    # No more is read than the longest card that may stand there.
    if read_plain(root / release_folder.CARD_FILE, release_folder.CARD_FILE, max(map(len, cards))) not in cards:
        raise InvalidInput(release_folder.CARD_FILE, "other content", "the data card that follows from the certificate")
    digest = hashlib.sha256(content).hexdigest()
    metadata = [
        croissant(certificate, digest, mixes=mixed, arrays=named)
        # Earlier builds described every release as mixed, and listed no arrays: their releases stay valid.
        for mixed in {True, mixes(plan)}
        for named in ({}, arrays(plan))
    ]
    if read_plain(root / CROISSANT_FILE, CROISSANT_FILE, max(map(len, metadata))) not in metadata:
        raise InvalidInput(CROISSANT_FILE, "other content", "the metadata that follows from the certificate")
    _check_pictures_and_licences(root, certificate)
    return VerifiedFolder(certificate, plan, cost, shards, beside)


def _check_pictures_and_licences(root: Path, certificate: Mapping[str, Any]) -> None:
    for item in certificate["files"]:
        for name, most, check in (
            (PICTURE_FILE, MOST_PICTURE_BYTES, check_picture),
            (LICENCE_FILE, MOST_LICENCE_BYTES, check_licence),
        ):
            if item["file"] == name:
                content = read_plain(root / name, name, most)
                release_folder.check_hash(item, hashlib.sha256(content).hexdigest())
                check(content, name)
        if item["file"] == release_folder.ROWS_FILE:
            with open_plain(root / release_folder.ROWS_FILE, release_folder.ROWS_FILE) as stream:
                assert isinstance(stream, BufferedReader)
                release_folder.check_hash(item, hashlib.file_digest(stream, "sha256").hexdigest())


def _check_numbers(root: Path, held: VerifiedFolder, progress: Progress) -> list[NoiseTest]:
    """Read every file of released numbers once: its hash, and what its numbers show."""
    found: list[NoiseTest] = []
    certificate, plan, shards = held.certificate, held.plan, held.shards
    if (centre := release_folder.read_centre(root, plan, certificate)) is not None:
        found += centre_tests(centre, plan)
    found += beside_tests(plan, held.beside)
    rows, odd = RowEvidence(plan, row_law(plan, held.beside)), None
    for column, start, values in release_folder.read_rows(root, shards, plan, told_in_shards(certificate)):
        try:
            if odd is None:
                rows.add(column, start, values)
        except InvalidInput as error:
            # A shard that is not the certified one is to be called that, and its hash is known at its end.
            odd = error
        progress(f"tests of {column}", min(start + len(values), plan.rows), plan.rows)
    if odd is not None:
        raise odd
    return found + rows.finish()


def check_certificate(certificate: Certificate) -> tuple[Plan, PrivacyCost]:
    """Check a certificate without other files, as :func:`verify_release` does; return plan and recomputed cost."""
    plan = plan_from_dict(certificate["plan"])
    cost = common.check_guarantee(certificate, plan)
    common.check_counted(certificate, plan)
    if (choice := certificate["choice"]) is not None:
        if (choice.get("epsilon"), choice.get("delta")) != (plan.epsilon, plan.delta):
            raise InvalidInput("certificate choice", "another budget", "a choice made for this budget")
        check_choice_record(choice)
        check_choice_settings(choice, plan)
    _check_names(certificate, plan)
    _check_noise(certificate["noise_std"], plan)
    _check_curve(certificate, plan)
    facts = certificate.insecure_seed, certificate.in_ledger, certificate["extractor"], choice
    link = link_of(certificate)
    if link is not None and (link.previous is None) is not (step_of(plan)[0] == 1):
        raise InvalidInput("certificate series", "another link", "one to the step before, but for the first step")
    more = commitment_of(certificate), link
    said = public_text(plan, *facts, *more, right=Guarantee.of_plan(plan).stated_right(certificate))
    # Certificates of earlier versions hold one of these texts.
    before = [public_text(plan, *facts, *more), public_text(plan, *facts, *more, before=True)]
    common.check_said(certificate, said, *before)
    return plan, cost


def _check_names(certificate: Mapping[str, Any], plan: Plan) -> None:
    """Check the names that follow from the extractor's settings; certificates of earlier versions have none."""
    names = list(stated_names(certificate["extractor"], plan.dim))
    if "feature_names" in certificate and (not names or certificate["feature_names"] != names):
        raise InvalidInput("certificate feature_names", "other names", "those that follow from the extractor")


def _check_curve(certificate: Certificate, plan: Plan) -> None:
    """Raise unless the points are privmix's, each with at least the recomputed delta."""
    stated, expected = certificate["epsilon_delta_curve"], curve_of(plan, certificate.epsilon, certificate.delta)
    if len(stated) != len(expected):
        raise InvalidInput("certificate curve", len(stated), f"{len(expected)} points")
    for point, (at, recomputed) in zip(stated, expected, strict=True):
        if check_number("certificate curve", point[0], low=0) != at:
            raise InvalidInput("certificate curve", point, f"a point at epsilon {at:.6g}")
        # Recomputed on another machine, a delta may differ in its last digits.
        if not check_number("certificate curve", point[1], low=0) >= recomputed * (1 - 1e-6):
            raise InvalidInput("certificate curve", point, f"delta of at least {recomputed:.6g}")


def _check_noise(stated: dict[str, float], plan: Plan) -> None:
    if set(stated) != set(plan.noise_std):
        raise InvalidInput("certificate noise_std", sorted(stated), f"{sorted(plan.noise_std)}")
    for name, expected in plan.noise_std.items():
        if not math.isclose(stated[name], expected, rel_tol=1e-9, abs_tol=1e-300):
            raise InvalidInput(f"certificate noise_std {name}", stated[name], f"{expected:.9g}, as the plan implies")
