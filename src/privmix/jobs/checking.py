"""What a folder holds, verified: one way for the verbs that check and the one that signs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from privmix import jobs, training
from privmix.bars import Asked, callback, shows_bars
from privmix.certificate import Certificate, PublicKey, Subject, Verification, claimed_key, verify_signature
from privmix.certificate.certificate import MODEL
from privmix.certificate.ledger_total import LedgerTotal, is_total, read_total
from privmix.certificate.replay_end import ENDED_FILE, read_end, sealed_words
from privmix.certificate.sealed_key import commitment_of
from privmix.errors import WITHHELD, InvalidInput
from privmix.features import wanted_model
from privmix.jobs.kinds import FITTED, certified, kind_of
from privmix.progress import Progress, silent
from privmix.releases.series import is_series
from privmix.releases.series_chain import Chain, verify_series
from privmix.shown import Bars, Shown

_FITTED_UNCHECKED: Final = (
    "that it was fitted on that release. A fitted model has no guarantee of its own: verify the release, whose "
    "guarantee is the model's too if it saw nothing else",
)
_TOTAL_UNCHECKED: Final = (
    "that the ledger says so, which is the word of whoever signed it (privmix ledger verify --statement compares)",
    "that everything that was made of the data was charged to this budget",
    "charges since that date",
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
        title, signed = f"{self.subject.kind} {self.subject.id}: holds", self.signature
        facts: Mapping[str, object] = {}
        if self.total is not None:
            title = f"Budget of {self.total.dataset}: well formed"
            facts = jobs.ledger_total.words(self.total)
        if self.held is not None:
            _, facts = self.held.shown()
        if self.series is not None:
            facts = {**facts, "series": str(self.series)}
        if self.sealed:
            facts = {**facts, "sealed key": self.sealed}
        by = "" if signed is None else f"by key {signed['key_id']}"
        return title, {
            **facts,
            "signature": f"{by}, {'checked' if signed['checked'] else 'not checked'}" if signed else "none",
            "not checked": f"{len(self.unchecked)} things, see `unchecked`",
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def picture(self) -> Bars | None:
        """Epsilon as stated and recomputed, or what is gone of a budget."""
        if self.total is not None:
            return jobs.ledger_total.total_bars(self.total)
        return None if self.held is None else self.held.picture()


@shows_bars
def verify(
    folder: str | PathLike[str], *, key: str | Path | None = None, module: Any = None, progress: Asked = None
) -> Checked:
    """Recompute epsilon, check every byte of every file, and test the released numbers for their noise.

    Of a ledger's total (:func:`privmix.ledger_total`) the form is checked, and whose it is.

    Args:
        folder: a release, or the folder of one, of a series of them, of a trained model, or of a model fitted on a
            release; or the file of a ledger's total.
        key: public key (PEM) of whoever must have signed it. Without it a signature is named and not checked.
        module: of a model that is a network of your own: the module that was trained, as of :func:`privmix.load`. It is
            checked as before training, and the weights must be its. Without it the result says that this is open.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Returns:
        what was found, and what can't be checked.

    Raises:
        InvalidInput: something does not hold.
        StorageError: a file is missing or can't be read.
    """
    path, tell = Path(folder), callback(progress)
    if is_total(path):
        total, statement = read_total(path, None if key is None else PublicKey.read(Path(key)))
        subject = Subject("ledger-total", total.digest, total.epsilon, total.delta, total.adjacency, total.unit)
        return Checked(subject, total.to_dict(), "", _TOTAL_UNCHECKED, None, total=total, signature=statement.signer)
    if module is not None:
        checked = verify(path, key=key, progress=tell)
        if checked.subject.kind != MODEL:
            raise InvalidInput("module", WITHHELD, "nothing but for a trained model")
        from privmix.training.verify import NO_MODULE

        training.load_trained(path, module)
        left = tuple(text for text in checked.unchecked if text != NO_MODULE)
        return replace(checked, unchecked=left, found={**checked.found, "unchecked": list(left)})
    if key is None:
        checked, claimed = check_folder(path, tell), claimed_key(path)
        return checked if claimed is None else replace(checked, signature={"key_id": claimed, "checked": False})
    if is_series(path):
        raise InvalidInput("key", str(key), "none for a whole series: its releases are signed one by one")
    # Who made it comes before what it says.
    found: list[Checked] = []
    public = PublicKey.read(Path(key))
    signed = verify_signature(path, public, remembered(found, tell))
    return replace(_end_checked(found[-1], public), signature={"key_id": signed.key_id, "checked": True})


def _end_checked(checked: Checked, key: PublicKey) -> Checked:
    """The same, once a statement that the sealed key was destroyed is found to be signed by ``key``, if it says so.

    Raises:
        InvalidInput: it says so, and is not.
    """
    held = checked.held
    if held is None or held.sealed is None or held.ended is None or held.ended.key_id != key.key_id:
        return checked
    held.ended.statement.checked_by(key, ENDED_FILE)
    stated = {**checked.found["sealed_key"], "ended": {**checked.found["sealed_key"]["ended"], "checked": True}}
    words = sealed_words(held.sealed, held.ended, checked=True)
    return replace(checked, found={**checked.found, "sealed_key": stated}, sealed=words)


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
