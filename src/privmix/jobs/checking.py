"""What a folder holds, verified: one way for the commands that check and the one that signs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from privmix import jobs
from privmix.certificate import Certificate, Subject, Verification
from privmix.certificate.ledger_total import LedgerTotal
from privmix.certificate.replay_end import ENDED_FILE, read_end, sealed_words
from privmix.certificate.sealed_key import commitment_of
from privmix.features import wanted_model
from privmix.jobs.kinds import FITTED, certified, kind_of
from privmix.progress import Progress, silent
from privmix.releases.series import is_series
from privmix.releases.series_chain import Chain, verify_series
from privmix.rounding import rounded_up
from privmix.shown import Bars, Shown

_FITTED_UNCHECKED: Final = (
    "that it was fitted on that release. A fitted model has no guarantee of its own: verify the release, whose "
    "guarantee is the model's too if it saw nothing else",
)


@dataclass(frozen=True, repr=False)
class Checked(Shown):
    """A folder that holds.

    Attributes:
        subject: what it is.
        found: figures for machines.
        files: whose hashes were compared, in words; empty where there are none.
        unchecked: what this check leaves open, in words.
        wanted: a model that its features need, from elsewhere.
        warnings: of the certificate.
        held: what was verified; None where there is no certificate.
        total: of a ledger, where that is what was checked.
        signature: whose it says it is, and whether that was checked; None where there is none, or nobody looked.
        series: where all releases of one were checked, of which ``held`` is the newest.
        sealed: of a release whose key was sealed for auditors: whether it still exists, in words; empty elsewhere.
    """

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

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What holds."""
        title = f"{self.subject.kind} {self.subject.id}: holds"
        facts: Mapping[str, object] = {}
        if self.total is not None:
            title, facts = f"Budget of {self.total.dataset}: well formed", jobs.ledger_total.words(self.total)
        if self.subject.kind == FITTED:
            title, facts = "Fitted model: well formed", {"fitted on": f"release {self.subject.id}"}
        if self.held is not None:
            _, facts = self.held.shown()
            facts = {**facts, "files": f"the hashes of {self.files}"}
        if self.series is not None:
            facts = {**facts, "series": f"{self.series}; the figures are of the newest, and hold for all together"}
        if self.sealed:
            facts = {**facts, "key of the noise": self.sealed}
        return title, {
            **{name: value for name, value in facts.items() if name != "warnings"},
            "signature": self._signature(),
            **({} if self.wanted is None else {"to use it": f"you need {self.wanted}"}),
            "not checked": f"{len(self.unchecked)} things",
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def _signature(self) -> str:
        signature = self.signature
        if signature is None:
            way = "privmix sign" if self.total is None else "privmix ledger statement"
            return f"none, so who made it is not checked ({way} makes one)"
        if signature["checked"]:
            return f"of every {'file' if self.total is None else 'byte'}, by key {signature['key_id']}: checked"
        return f"it says by key {signature['key_id']}: not checked (give `key`)"

    @property
    def details(self) -> tuple[str, ...]:
        """What was tested, what it would have caught, and what is not checked."""
        lines = []
        for test in () if self.held is None else self.held.tests:
            lowest, caught = ("-" if one is None else f"{one:.3f}" for one in (test.lowest, test.caught))
            lines.append(
                f"tested {test.name}: {test.tests:,} tests, least noise found {lowest}, caught below {caught} (shares "
                "of the certified noise)"
            )
        if self.held is not None and lines:
            alarm = rounded_up(self.held.false_alarm, 2)
            lines.append(
                f"an honest release fails one of these with probability {alarm} at most, "
                "whatever its data. If the data add no variation of their own, noise below the last share is detected "
                "99% of the time. Variation in the data can hide missing noise of the same size"
            )
        if self.held is not None and not self.held.epsilon:
            # Of a model of public data, whose maker alone says that they are public.
            lines.append("no private record was read, and public data were compared with none")
        return (*lines, *(f"not checked: {text}" for text in self.unchecked))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        more = {"warnings": list(self.warnings), "features_model": self.wanted, "signature": self.signature}
        return {**self.found, **more}

    def picture(self) -> Bars | None:
        """Epsilon as stated and recomputed, or what is gone of a budget."""
        if self.total is not None:
            return jobs.ledger_total.total_bars(self.total)
        return None if self.held is None else self.held.picture()


def check_folder(folder: Path, progress: Progress = silent) -> Checked:
    """Verify a release, a trained model, a model fitted on a release, or all releases of a series.

    Raises:
        InvalidInput: something does not hold.
        StorageError: a file is missing or can't be read.
    """
    if is_series(folder):
        chain = verify_series(folder, progress)
        checked, files = _of(chain.releases[-1]), sum(one.files for one in chain.releases)
        return replace(
            checked, found={**checked.found, "series": chain.to_dict()}, files=f"{files} files", series=chain
        )
    if kind_of(folder) == FITTED:
        from privmix.learning import load_model

        facts = load_model(folder).facts_
        subject, found = Subject(FITTED, facts.release_id), {"fitted_on": facts.release_id}
        return Checked(subject, found, "", _FITTED_UNCHECKED, wanted_model(facts.extractor))
    return _of(certified(folder).verify(folder, progress))


def _of(held: Verification) -> Checked:
    """What was verified of a folder with a certificate, in words."""
    files = "1 file" if held.files == 1 else f"{held.files} files"
    wanted = wanted_model(held.extractor)
    sealed = "" if held.sealed is None else sealed_words(held.sealed, held.ended)
    return Checked(Subject.of(held), held.to_dict(), files, held.unchecked, wanted, held.warnings, held, sealed=sealed)


def sealed_key_of(folder: str | Path, certificate: Certificate) -> str:
    """Whether the key of a release's noise still exists, for whom and until when; empty where it was destroyed at once.

    As the certificate and whoever states its end say: neither is checked here.

    Raises:
        InvalidInput: the statement is malformed, or about something else.
        StorageError: it can't be read.
    """
    if (sealed := commitment_of(certificate)) is None:
        return ""
    digest = hashlib.sha256(certificate.to_bytes()).hexdigest()
    return sealed_words(sealed, read_end(Path(folder) / ENDED_FILE, certificate.id, sealed, digest))


def remembered(found: list[Checked], progress: Progress = silent) -> Callable[[Path], Subject]:
    """:func:`check_folder` for signatures; what it found is put into the list, for printing."""

    def check(folder: Path) -> Subject:
        found.append(check_folder(folder, progress))
        return found[-1].subject

    return check
