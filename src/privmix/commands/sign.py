"""Sign every file of a release or model, and make keys for signatures and replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from privmix.commands.base import Command, function
from privmix.errors import WITHHELD, InvalidInput
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown


@dataclass(frozen=True, repr=False)
class Signed(Shown):
    """A signature of a folder, in ``file``."""

    file: Path
    files: int
    key_id: str

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return f"Signed: {self.files:,} file{'s' * (self.files != 1)}", {"key": self.key_id, "signature": self.file}

    def to_dict(self) -> dict[str, Any]:
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
        from privmix.jobs.checking import check_folder

        folder, key = Path(self.folder), Path(self.key)
        # Links are resolved, because a key behind a link into the folder would be shared as well.
        if folder.resolve() in key.resolve().parents:
            raise InvalidInput("key", str(key), "a key outside of the folder, which is shared with others")
        # The key is read before the folder is checked, which may take long: a wrong passphrase fails at once.
        private = PrivateKey.read(key, self.passphrase)
        found = sign_folder(
            folder, private, lambda path: check_folder(path, progress).subject, overwrite=self.overwrite
        )
        return Signed(folder / ATTESTATION_FILE, found.files, found.key_id)


sign: Final = function(Sign)


@dataclass(frozen=True, repr=False)
class KeyFiles(Shown):
    """Files of both halves of a new key."""

    private: Path
    public: Path
    key_id: str
    auditor: bool

    def shown(self) -> tuple[str, Mapping[str, object]]:
        others = "for the publisher of the release" if self.auditor else "publish it"
        facts = {"private key": f"{self.private} (keep it secret)", "public key": f"{self.public} ({others})"}
        return "New auditor's key" if self.auditor else "New key", {**facts, "key id": self.key_id}

    def to_dict(self) -> dict[str, Any]:
        return {"private": str(self.private), "public": str(self.public), "key_id": self.key_id}


@dataclass(frozen=True, eq=False, repr=False)
class Keygen(Command[KeyFiles]):
    """Make a key pair for signing, or for an auditor.

    Publish NAME.pub.pem where partners find it without you. Keep NAME.pem private, outside every folder that you
    share. An auditor uses one key (`auditor`) per release: it opens the sealed key, which removes all noise;
    destroying it ends every sealed copy.

    Raises:
        InvalidInput: a file is there already, or lies in a release or model.
        StorageError: a file can't be written.
    """

    example = "privmix keygen ana\nprivmix keygen auditor --auditor --passphrase"

    name: str | Path = option(MISSING, "Path without ending, for NAME.pem and NAME.pub.pem.", argument=True)
    _: KW_ONLY
    passphrase: bool | bytes = option(
        False,
        "Encrypt the private key (passphrase prompt, or PRIVMIX_KEY_PASSPHRASE).",
        in_python="In Python: the passphrase.",
    )
    auditor: bool = option(False, "Make an auditor's key, for privmix release --replay-for.")

    def run(self, progress: Progress) -> KeyFiles:
        from privmix.certificate.keys import PrivateKey, new_key_files
        from privmix.certificate.sealed_key import AuditorKey
        from privmix.jobs.places import check_unpublished

        # The command line replaces True by the passphrase that it prompts for; a call from Python has no prompt.
        if self.passphrase is True:
            raise InvalidInput("passphrase", WITHHELD, "the passphrase itself, as bytes")
        private, public = Path(f"{self.name}.pem"), Path(f"{self.name}.pub.pem")
        # A key in such a folder would be shared with it.
        check_unpublished("name", private)
        made = AuditorKey.new() if self.auditor else PrivateKey.new()
        key = new_key_files(private, public, self.passphrase or None, made)
        return KeyFiles(private, public, key.key_id, self.auditor)


keygen: Final = function(Keygen)
