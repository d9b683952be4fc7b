"""A key to sign releases and models with, or to replay releases with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import Any, Final

from privmix.commands.base import Command, function
from privmix.errors import WITHHELD, InvalidInput
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown

# Folders with one of these are shared with others.
_PUBLISHED: Final = ("certificate.json", "model.json")


@dataclass(frozen=True, repr=False)
class KeyFiles(Shown):
    """Both halves of a new key.

    Attributes:
        private, public: their files.
        key_id: names the key.
        auditor: whether it is an auditor's.
    """

    private: Path
    public: Path
    key_id: str
    auditor: bool

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Files and owner of the keys."""
        others = "for the publisher of the release" if self.auditor else "publish it"
        facts = {"private key": f"{self.private} (keep it secret)", "public key": f"{self.public} ({others})"}
        return "New auditor's key" if self.auditor else "New key", {**facts, "key id": self.key_id}

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
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

        if self.passphrase is True:
            raise InvalidInput("passphrase", WITHHELD, "the passphrase itself, as bytes")
        private, public = Path(f"{self.name}.pem"), Path(f"{self.name}.pub.pem")
        if any((parent / mark).is_file() for parent in private.resolve().parents for mark in _PUBLISHED):
            raise InvalidInput(
                "name", str(private), "a place outside of release and model folders, which are shared with others"
            )
        made = AuditorKey.new() if self.auditor else PrivateKey.new()
        key = new_key_files(private, public, self.passphrase or None, made)
        return KeyFiles(private, public, key.key_id, self.auditor)


keygen = function(Keygen)
