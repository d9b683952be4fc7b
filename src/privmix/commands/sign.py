"""Vouch for every file of a release or model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown


@dataclass(frozen=True, repr=False)
class Signed(Shown):
    """A signature of a folder.

    Attributes:
        file: holds it.
        files: how many files were signed.
        key_id: by which key.
    """

    file: Path
    files: int
    key_id: str

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return f"Signed: {self.files:,} file{'s' * (self.files != 1)}", {"key": self.key_id, "signature": self.file}

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"file": str(self.file), "files": self.files, "key_id": self.key_id}


@dataclass(frozen=True, eq=False, repr=False)
class Sign(NewFile, Command[Signed]):
    """Sign every file of a release or model, once it verifies.

    Adds an in-toto statement in a DSSE envelope (Ed25519) to the folder. The signature identifies the signer; it
    does not make the guarantee stronger. Sign again after any change.

    Raises:
        InvalidInput: the folder does not verify, has links, or is signed already; or the key is none, or in the folder.
        StorageError: something can't be read or written.
    """

    example = "privmix sign REL --key ana.pem"

    folder: str | PathLike[str] = option(MISSING, "Folder from privmix release, train or fit.", argument=True)
    key: str | Path = option(
        MISSING, "Private key (PEM) for the signature; passphrase by prompt or PRIVMIX_KEY_PASSPHRASE."
    )
    _: KW_ONLY
    passphrase: bytes | None = option(None, "Passphrase of the key.", python=True)

    def run(self, progress: Progress) -> Signed:
        from privmix.certificate.keys import PrivateKey
        from privmix.certificate.signing import ATTESTATION_FILE, sign_folder
        from privmix.jobs.checking import remembered

        folder, key = Path(self.folder), Path(self.key)
        if folder.resolve() in key.resolve().parents:
            raise InvalidInput("key", str(key), "a key outside of the folder, which is shared with others")
        private = PrivateKey.read(key, self.passphrase)
        found = sign_folder(folder, private, remembered([], progress), overwrite=self.overwrite)
        return Signed(folder / ATTESTATION_FILE, found.files, found.key_id)


sign = function(Sign)
