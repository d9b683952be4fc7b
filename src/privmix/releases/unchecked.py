"""Limits of verification of a release, in words: for every release, and for this one by its own numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from privmix.audits.agreement import ROUNDING, UP_TO_ROUNDING
from privmix.audits.noise_tests import ON_THE_GRID, NoiseTest
from privmix.certificate.sealed_key import commitment_of
from privmix.certificate.series import link_of
from privmix.certificate.verification import COUNT_UNCHECKED
from privmix.releases.prior_evidence import obstacle
from privmix.rounding import rounded_down

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


def unchecked(certificate: Mapping[str, Any], tests: Iterable[NoiseTest], *, laplace: bool = False) -> tuple[str, ...]:
    """Return what a release's verification leaves open: :data:`UNCHECKED` and its own numbers' and extractor's part."""
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
    if (why := obstacle(certificate["extractor"], tuple(certificate["input_shape"]))) is not None:
        own.append(why)
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
