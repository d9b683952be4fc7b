"""Verify a folder: one way for the commands that check and the one that signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from privmix.certificate.certificate import Certificate
from privmix.certificate.ledger_total import LedgerTotal
from privmix.certificate.sealed_key import commitment_of, sealed_words
from privmix.certificate.signing import Subject
from privmix.certificate.verification import Verification
from privmix.features.spec import wanted_model
from privmix.jobs.kinds import FITTED, kind_of, verify_certified
from privmix.progress import Progress, silent
from privmix.releases.series import is_series
from privmix.releases.series_chain import Chain, verify_series
from privmix.rounding import rounded_up
from privmix.shown import Bars, Shown

_FITTED_UNCHECKED: Final = (
    "that the model was fitted on that release. Verify the release: its guarantee covers a model that used no other "
    "private data",
)


# Things that are not checked, shown without `full`.
_MOST: Final = 4


@dataclass(frozen=True, repr=False)
class CheckedFolder(Shown):
    """The result of checking a folder that holds."""

    # `files`: whose hashes were compared, in words; `unchecked`: what this check leaves open. `wanted`: a model that
    # its features need, from elsewhere. `held` is None without a certificate; of a `series`, the newest release.
    # `sealed`: whether a key sealed for auditors still exists, in words.
    subject: Subject
    found: dict[str, Any]
    files: str
    unchecked: tuple[str, ...]
    wanted: str | None
    warnings: tuple[str, ...] = ()
    held: Verification | None = None
    total: LedgerTotal | None = None
    signature: dict[str, Any] | None = None
    sealed: str = ""
    series: Chain | None = None
    full: bool = False

    def shown(self) -> tuple[str, Mapping[str, object]]:
        verdict = "PASS" if self.held is None else self.held.verdict
        title = f"{verdict}: {self.subject.kind} {self.subject.id}"
        facts: Mapping[str, object] = {}
        if self.total is not None:
            from privmix.jobs.ledger_total import words

            title, facts = f"PASS: budget of {self.total.dataset}, in its form", words(self.total)
        if self.subject.kind == FITTED:
            title = "WARNING: a fitted model has no guarantee of its own: verify the release that it was fitted on"
            facts = {"fitted on": f"release {self.subject.id}"}
        if self.held is not None:
            _, facts = self.held.shown()
            facts = {**facts, "files": f"the hashes of {self.files}"}
        if self.series is not None:
            facts = {
                **facts,
                "series": f"{self.series}; the figures are of the newest step and hold for all steps together",
            }
        if self.sealed:
            facts = {**facts, "key of the noise": self.sealed}
        return title, {
            **{name: value for name, value in facts.items() if name != "warnings"},
            "signature": self._signature(),
            **({} if self.wanted is None else {"to use it": f"you need {self.wanted}"}),
            "not checked": f"{len(self.unchecked)} item{'s' * (len(self.unchecked) != 1)}",
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def _signature(self) -> str:
        signature = self.signature
        if signature is None:
            way = "privmix sign" if self.total is None else "privmix ledger statement"
            return f"none, so the publisher is not checked ({way} creates one)"
        if signature["checked"]:
            return f"of every {'file' if self.total is None else 'byte'}, by key {signature['key_id']}: checked"
        return f"by key {signature['key_id']}, as stated: not checked (give `key`)"

    @property
    def details(self) -> tuple[str, ...]:
        """Tests, the noise that they would have caught, and what is not checked."""
        lines = []
        for test in () if self.held is None else self.held.tests:
            lowest, caught = ("-" if one is None else f"{one:.3f}" for one in (test.lowest, test.caught))
            lines.append(
                f"tested {test.name}: {test.tests:,} tests, smallest noise found {lowest}, detected below {caught} "
                f"(shares of the certified noise)"
            )
        if self.held is not None and lines:
            alarm = rounded_up(self.held.false_alarm, 2)
            lines.append(
                f"a correct release fails one of these tests with probability {alarm} at most, for any data. If the "
                f"data add no variation of their own, noise below the last share is detected "
                "99% of the time. Variation in the data can hide missing noise of the same size"
            )
        if self.held is not None and not self.held.epsilon:
            # For a model of public data, its maker alone states that they are public.
            lines.append("training read no private record; the public data were not compared with private records")
        left = [f"not checked: {text}" for text in self.unchecked]
        if self.full:
            return (*lines, *left)
        more = len(lines) + len(left[_MOST:])
        return (*left[:_MOST], *([f"{more} more lines, with the noise that each test detects: `full`"] if more else []))

    def to_dict(self) -> dict[str, Any]:
        more = {"warnings": list(self.warnings), "features_model": self.wanted, "signature": self.signature}
        return {**self.found, **more}

    def picture(self) -> Bars | None:
        """Epsilon as stated and recomputed, or what is gone of a budget."""
        if self.total is not None:
            from privmix.jobs.ledger_total import total_bars

            return total_bars(self.total)
        return None if self.held is None else self.held.picture()


def check_folder(folder: Path, progress: Progress = silent) -> CheckedFolder:
    """Verify a release, a trained model, a model fitted on a release, or all releases of a series."""
    if is_series(folder):
        chain = verify_series(folder, progress)
        # Figures of the newest release hold for all steps together.
        checked, files = _of(chain.releases[-1]), sum(one.files for one in chain.releases)
        return replace(
            checked, found={**checked.found, "series": chain.to_dict()}, files=f"{files} files", series=chain
        )
    if kind_of(folder) == FITTED:
        from privmix.learning.model_io import load_model

        facts = load_model(folder).facts_
        subject, found = Subject(FITTED, facts.release_id), {"fitted_on": facts.release_id}
        return CheckedFolder(subject, found, "", _FITTED_UNCHECKED, wanted_model(facts.extractor))
    return _of(verify_certified(folder, progress))


def _of(held: Verification) -> CheckedFolder:
    """Return the verified facts of a folder with a certificate, in words."""
    files = "1 file" if held.files == 1 else f"{held.files} files"
    wanted = wanted_model(held.extractor)
    sealed = "" if held.sealed is None else sealed_words(held.sealed)
    return CheckedFolder(
        Subject.of(held), held.to_dict(), files, held.unchecked, wanted, held.warnings, held, sealed=sealed
    )


def sealed_key_of(certificate: Certificate) -> str:
    """Whether the key of a release's noise still exists, for whom and until when; empty where it was destroyed."""
    return "" if (sealed := commitment_of(certificate)) is None else sealed_words(sealed)


def remembered(found: list[CheckedFolder], progress: Progress = silent) -> Callable[[Path], Subject]:
    """:func:`check_folder` for signatures; what it found is put into the list, for printing."""

    def check(folder: Path) -> Subject:
        found.append(check_folder(folder, progress))
        return found[-1].subject

    return check
