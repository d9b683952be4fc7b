"""Verify a folder: one way for the commands that check and the one that signs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.certificate.ledger_total import LedgerTotal
from privmix.certificate.sealed_key import sealed_words
from privmix.certificate.signing import Subject
from privmix.certificate.verification import Verification
from privmix.features.spec import wanted_model
from privmix.jobs.kinds import FITTED, kind_of, verify_certified
from privmix.progress import Progress, silent
from privmix.releases.series import is_series
from privmix.releases.series_chain import Chain, verify_series
from privmix.rounding import rounded_up
from privmix.shown import Bars, Shown, spent_bars

_FITTED_UNCHECKED: Final = (
    "that the model was fitted on that release. Verify the release: its guarantee covers a model that used no other "
    "private data",
)
_TOTAL_UNCHECKED: Final = (
    "that the ledger matches: the figures are the signer's statement (privmix ledger verify --statement compares them)",
    "that every use of the data was charged to this budget",
    "charges since that date",
)
# Things that are not checked, shown without `full`.
_MOST: Final = 4


@dataclass(frozen=True, repr=False)
class CheckedFolder(Shown):
    """The result of checking a folder, or the statement of a ledger's total, that holds."""

    # `held`: of a certificate; of a `series`, that of its newest release, whose figures hold for all steps together.
    # `wanted`: a model that its features need, from elsewhere.
    subject: Subject
    held: Verification | None = None
    wanted: str | None = None
    series: Chain | None = None
    total: LedgerTotal | None = None
    signature: dict[str, Any] | None = None
    full: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        return () if self.held is None else self.held.warnings

    @property
    def unchecked(self) -> tuple[str, ...]:
        if self.held is not None:
            return self.held.unchecked
        return _FITTED_UNCHECKED if self.total is None else _TOTAL_UNCHECKED

    @property
    def files(self) -> str:
        """Whose hashes were compared."""
        releases = [self.held] if self.series is None else self.series.releases
        count = sum(one.files for one in releases if one is not None)
        return f"{count} file{'s' * (count != 1)}"

    @property
    def sealed(self) -> str:
        return "" if self.held is None else sealed_words(self.held.sealed)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        facts: Mapping[str, object]
        if self.held is not None:
            title, facts = self.held.shown()
            facts = {**facts, "files": f"the hashes of {self.files}"}
        elif self.total is not None:
            # Takes the ledger's database, which a folder's check needs not.
            from privmix.jobs.ledger_total import words

            title, facts = f"PASS: budget of {self.total.dataset}, in its form", words(self.total)
        else:
            title = "WARNING: a fitted model has no guarantee of its own: verify the release that it was fitted on"
            facts = {"fitted on": f"release {self.subject.id}"}
        latest = "the figures are of the newest step and hold for all steps together"
        more = {
            "series": self.series and f"{self.series}; {latest}",
            "key of the noise": self.sealed,
            "signature": self._signature(),
            "to use it": self.wanted and f"you need {self.wanted}",
            "not checked": f"{len(self.unchecked)} item{'s' * (len(self.unchecked) != 1)}",
            "warnings": "; ".join(self.warnings),
        }
        first = {name: fact for name, fact in facts.items() if name != "warnings"}
        return title, {**first, **{name: text for name, text in more.items() if text}}

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
        lines = []
        for test in self.held.tests if self.held is not None else ():
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
        checked = self.held or self.total
        found = {"fitted_on": self.subject.id} if checked is None else checked.to_dict()
        series = {} if self.series is None else {"series": self.series.to_dict()}
        more = {"warnings": list(self.warnings), "features_model": self.wanted, "signature": self.signature}
        return {**found, **series, **more}

    def picture(self) -> Bars | None:
        """Epsilon as stated and recomputed, or what is gone of a budget."""
        if self.total is not None:
            return spent_bars(self.total.epsilon, self.total.spent, self.total.share)
        return None if self.held is None else self.held.picture()


def check_folder(folder: Path, progress: Progress = silent) -> CheckedFolder:
    """Verify a release, a trained model, a model fitted on a release, or all releases of a series."""
    series = None
    if is_series(folder):
        series = verify_series(folder, progress)
        held = series.releases[-1]
    elif kind_of(folder) == FITTED:
        from privmix.learning.model_io import load_model

        facts = load_model(folder).facts_
        return CheckedFolder(Subject(FITTED, facts.release_id), wanted=wanted_model(facts.extractor))
    else:
        held = verify_certified(folder, progress)
    return CheckedFolder(Subject.of(held), held, wanted_model(held.extractor), series)
