"""Signatures over a whole folder: every file of a release or model, and no file that was added later."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from privmix import __version__
from privmix.certificate.keys import PrivateKey, PublicKey, Statement
from privmix.certificate.verification import Verification
from privmix.errors import InvalidInput, StorageError
from privmix.fields import Checked, Choice, printable
from privmix.folders import storage_errors, write_durably
from privmix.mechanisms.plan import PERSON, RECORD
from privmix.untrusted import open_plain

ATTESTATION_FILE: Final = "attestation.dsse.json"
PREDICATE_TYPE: Final = "urn:privmix:guarantee:v1"
KINDS: Final = ("release", "model", "fitted-model", "ledger-total")
# Allowance for a file's name and digest in a statement, and for the parts that occur once.
_BYTES_A_FILE, _BYTES_ONCE = 2048, 2**16
_PRIVATE_KEY, _MARK_BYTES = re.compile(rb"\s*-----BEGIN [A-Z ]*PRIVATE KEY-----"), 128
_TOOL = re.compile(r"privmix [\w.+-]{1,40}\Z")


@dataclass(frozen=True)
class Subject(Checked):
    """Content of a folder, by its own check; a fitted model has the id of its release."""

    # epsilon, delta, adjacency: as certified; None without a certificate. unit: the statement omits "record".

    kind: Annotated[str, Choice(*KINDS)]
    id: str
    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    unit: Annotated[str, Choice(RECORD.one, PERSON.one)] = RECORD.one

    @classmethod
    def of(cls, verified: Verification) -> Subject:
        """Subject of `verify_release` or `verify_trained`."""
        unit = verified.unit.one
        return cls(verified.kind, verified.id, verified.epsilon, verified.delta, verified.adjacency, unit)

    @property
    def guarantee(self) -> dict[str, Any] | None:
        """The certified figures as JSON values."""
        if self.epsilon is None:
            return None
        bound = self.epsilon if math.isfinite(self.epsilon) else None
        unit = {} if self.unit == RECORD.one else {"unit": self.unit}
        return {"epsilon": bound, "delta": self.delta, "adjacency": self.adjacency, **unit}


Check = Callable[[Path], Subject]
"""Verifies a folder, raises on any fault, and returns its subject."""


@dataclass(frozen=True)
class Signature:
    """A checked signature: its key, number of files and the signer's tool."""

    key_id: str
    files: int
    tool: str


def sign_folder(folder: str | os.PathLike[str], key: PrivateKey, check: Check, *, overwrite: bool = False) -> Signature:
    """Sign every file of a release or model after ``check`` passed.

    Formal guarantees:
        * Whole: the statement names every file below the folder, with its SHA-256, but the attestation itself; a link
          or anything that is no plain file is refused.
        * Checked: what is signed holds by ``check``, and its bytes were the same before and after that.
        * Atomic: the attestation is written whole or not at all, and an earlier one is replaced only with
          ``overwrite``.
        * Nothing is signed that holds a private key in PEM; the key itself is used in memory alone.
    """
    root = Path(folder)
    if not overwrite and os.path.lexists(root / ATTESTATION_FILE):
        raise InvalidInput(str(root), "a folder that is signed already", "a folder without signature (or `overwrite`)")
    files = _files(root)
    digests = _digests(files)
    for name, path in files.items():
        with open_plain(path, _shown(name)) as stream:
            if _PRIVATE_KEY.match(stream.read(_MARK_BYTES)):
                raise InvalidInput(
                    _shown(name), "a private key", "a folder without private keys: move the key elsewhere"
                )
    subject = check(root)
    if _digests(_files(root)) != digests:
        raise InvalidInput(str(root), "files that change", "a folder that no process writes to meanwhile")
    tool = f"privmix {__version__}"
    made = Statement.of(PREDICATE_TYPE, digests, _predicate(subject, tool), key)
    try:
        write_durably(root / ATTESTATION_FILE, made.to_bytes())
    except OSError as error:
        (root / f".{ATTESTATION_FILE}.draft").unlink(missing_ok=True)
        raise StorageError(f"signature: cannot write {root / ATTESTATION_FILE}: {error.strerror}") from None
    return Signature(key.public.key_id, len(digests), tool)


def verify_signature(folder: str | os.PathLike[str], key: PublicKey, check: Check) -> Signature:
    """Check that the owner of ``key`` signed exactly what is in the folder.

    Formal guarantees:
        * the signature over payload and payload type is ``key``'s, and so is the key id in the envelope, which is
          not signed: no other is shown;
        * the folder holds the signed files with the signed bytes, and no others;
        * what was signed about them (kind, id, guarantee) is what ``check`` finds now, so a signature of another
          release or model is refused.
    """
    # A signature does not show that the signer was truthful, nor that the key was not stolen.
    root = Path(folder)
    files = _files(root)
    statement = _read(root, len(files))
    if statement is None:
        raise InvalidInput(str(root), "a folder without signature", f"one with {ATTESTATION_FILE}, from privmix sign")
    signed, predicate = statement.checked_by(key, ATTESTATION_FILE).parts(PREDICATE_TYPE, ATTESTATION_FILE)
    tool = predicate.get("tool")
    if not isinstance(tool, str) or not _TOOL.match(tool):
        raise InvalidInput(f"{ATTESTATION_FILE} tool", tool, "privmix and its version")
    # Names first: unsigned files are not even read.
    for name in sorted(signed.keys() ^ files.keys()):
        if name in signed:
            raise InvalidInput(_shown(name), "no such file", "all files that were signed")
        raise InvalidInput(_shown(name), "a file that was not signed", "only the files that were signed")
    digests = _digests(files)
    for name, digest in digests.items():
        if signed[name] != digest:
            raise InvalidInput(_shown(name), "other content", "the bytes that were signed")
    # The maker comes before the content: a check reads what an attacker may have made.
    subject = check(root)
    if statement.payload != Statement.of(PREDICATE_TYPE, digests, _predicate(subject, tool)).payload:
        raise InvalidInput(ATTESTATION_FILE, "a statement about something else", "a statement about this folder")
    return Signature(key.key_id, len(digests), tool)


def claimed_key(folder: str | os.PathLike[str]) -> str | None:
    """Return the unchecked key id of a folder's signature; None where the folder is not signed."""
    root = Path(folder)
    statement = _read(root, len(_files(root)))
    return None if statement is None else statement.key_id


def _read(root: Path, files: int) -> Statement | None:
    path = root / ATTESTATION_FILE
    if not os.path.lexists(path):
        return None
    # A folder of few files has a short statement.
    return Statement.read(path, ATTESTATION_FILE, _BYTES_ONCE + _BYTES_A_FILE * files)


def _predicate(subject: Subject, tool: str) -> dict[str, Any]:
    return {"kind": subject.kind, "id": subject.id, "guarantee": subject.guarantee, "tool": tool}


def _files(root: Path) -> dict[str, Path]:
    """Names (with ``/``) and paths of all files but the attestation, sorted; anything but plain ones is refused."""
    found: dict[str, Path] = {}
    # A list and no recursion: folders of a stranger's may nest deeply.
    waiting = [("", root)]
    while waiting:
        above, here = waiting.pop()
        with storage_errors("folder", "read", here):
            entries = list(os.scandir(here))
        for entry in entries:
            name = f"{above}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append((f"{name}/", Path(entry.path)))
            elif not entry.is_file(follow_symlinks=False):
                raise InvalidInput("folder", _shown(name), "plain files and folders: no links")
            elif name != ATTESTATION_FILE:
                found[name] = Path(entry.path)
    return dict(sorted(found.items()))


def _digests(files: Mapping[str, Path]) -> dict[str, str]:
    digests = {}
    for name, path in files.items():
        with open_plain(path, _shown(name)) as stream:
            digests[name] = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    return digests


def _shown(name: str) -> str:
    # A stranger's file name: it may hold control characters, and be of any length.
    return printable(name[:80])
