"""The end of a sealed key: overwritten and removed, and a signed statement of that in the release."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from privmix import private_files
from privmix.certificate.certificate import CERTIFICATE_FILE, MOST_BYTES
from privmix.certificate.keys import PrivateKey
from privmix.certificate.sealed_key import ENDED_FILE, MOST_SEALED_BYTES, AuditorKey, Ending, read_end, state_end
from privmix.commands.replay.remake import read_sealed, sealed_in, sealed_place
from privmix.errors import InvalidInput, StorageError
from privmix.held_folders import hold
from privmix.mechanisms.run_folder import beside
from privmix.releases.verify import check_but_numbers
from privmix.shown import Shown
from privmix.untrusted import read_plain

_MOST_KEY_BYTES: Final = 2**16
_SIGN_ANEW: Final = "if the release is signed, sign it again (privmix sign --overwrite): it has one more file"


@dataclass(frozen=True, repr=False)
class ReplayEnded(Shown):
    """A sealed key that is gone, and the statement of it.

    Attributes:
        ending: what is stated.
        key_id: of the key that signed it.
        statement: its file, in the release.
    """

    ending: Ending
    key_id: str
    statement: Path = field(default_factory=Path)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what is stated, by whom."""
        return f"Release {self.ending.release}: the sealed key is destroyed", {
            "auditor's key destroyed": ", ".join(self.ending.auditor_keys) or "none",
            "signed by": self.key_id,
            "statement": self.statement,
            "proof": "the signer's statement; that no copy is left cannot be proven",
        }

    @property
    def details(self) -> tuple[str, ...]:
        """The statement, and the next step."""
        return (self.ending.says, _SIGN_ANEW)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"statement": str(self.statement), "key_id": self.key_id, **vars(self.ending)}


def ended(
    folder: Path,
    signing: PrivateKey,
    sealed_key: str | Path | None,
    key: str | Path | None,
    passphrase: Callable[[Path], bytes | None],
) -> ReplayEnded:
    """State it, and destroy the sealed key; and the auditor's in the file ``key``, too."""
    held = check_but_numbers(folder)
    sealed = sealed_in(held)
    place = sealed_place(folder, sealed_key)
    file = None if key is None else Path(key)
    opened = AuditorKey.read(file, passphrase(file)).public.key_id if file is not None and file.exists() else None
    if opened not in (None, sealed.auditor):
        raise InvalidInput("key", f"key {opened[:16]}", f"the key of {sealed.whom}")
    digest = hashlib.sha256(read_plain(folder / CERTIFICATE_FILE, "certificate", MOST_BYTES)).hexdigest()
    draft = beside(folder, ENDED_FILE)
    left = read_end(draft, held.certificate.id, sealed, digest)
    if os.path.lexists(place) or left is None:
        if file is not None and opened is None:
            raise StorageError(f"key: no file at {file}")
        if hashlib.sha256(read_sealed(place)).hexdigest() != sealed.sealed_sha256:
            raise InvalidInput("sealed key", place.name, "the file with the SHA-256 that the certificate states")
        today = datetime.now(UTC).date().isoformat()
        ending = Ending(held.certificate.id, sealed.sealed_sha256, () if opened is None else (opened,), today)
        with hold(folder.parent) as above:
            above.write(draft.name, state_end(ending, digest, signing).to_bytes(), shared=True)
        private_files.shred(place, "sealed key", MOST_SEALED_BYTES)
    elif file is None and left.ending.auditor_keys:
        raise InvalidInput("key", None, "the file of the interrupted call")
    if file is not None:
        private_files.shred(file, "key", _MOST_KEY_BYTES)
    with hold(folder.parent) as above, hold(folder) as inside:
        os.replace(draft.name, ENDED_FILE, src_dir_fd=above.descriptor, dst_dir_fd=inside.descriptor)
        inside.sync()
        above.sync()
    found = read_end(folder / ENDED_FILE, held.certificate.id, sealed, digest)
    assert found is not None
    return ReplayEnded(found.ending, found.key_id, folder / ENDED_FILE)
