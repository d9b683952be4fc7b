"""Make a release again from its records, by an auditor's key; and end that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.jobs.columns import Columns
from privmix.jobs.options import Local, ModelFiles
from privmix.jobs.release_options import as_in_release
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.certificate.keys import PrivateKey
    from privmix.certificate.sealed_key import AuditorKey
    from privmix.commands.replay.end import ReplayEnded
    from privmix.commands.replay.remake import Remade

SEALED_HELP: Final = "Sealed key. Default: RELEASE.sealed-key.json, next to the release."


@dataclass(frozen=True, eq=False, repr=False)
class Replay(Columns, ModelFiles, Command["Remade"]):
    """Recompute every byte of a release with an auditor's key.

    Detects other noise, records or plans with certainty. The key is the release's own, which `replay_for` of
    privmix.release sealed for an auditor. Exit code 4 if anything differs. Report no more than "equal": then the
    replay costs no privacy.

    Raises:
        InvalidInput: the release has no sealed key, or its day is past; a key is not its auditor's; it does not open;
            the release's certificate does not hold; the data have other inputs than the release.
        StorageError: something can't be read.
    """

    example = "privmix replay REL --data mnist --key auditor.pem"

    release: str | PathLike[str] = option(MISSING, "Folder from privmix release --replay-for.", argument=True)
    data: Any = option(MISSING, "Private dataset, given as for the release.")
    _: KW_ONLY
    feature_length: int | None = field(default=None, init=False)
    image_size: int | None = field(default=None, init=False)
    colour: str | None = field(default=None, init=False)
    key: str | Path | AuditorKey = option(
        MISSING, "Auditor's private key (PEM); passphrase by prompt or PRIVMIX_KEY_PASSPHRASE."
    )
    passphrase: bytes | None = option(None, "Passphrase of the key.", python=True)
    sealed_key: str | Path | None = option(None, SEALED_HELP)
    split: str = as_in_release("split")
    features_store: str | Path | None = option(
        None, "Feature store of the release, for extractors that differ on this machine."
    )
    spot_checks: int = option(256, "Number of records with recomputed features, with `features_store`.")
    engine: str | Local = as_in_release("engine")

    def run(self, progress: Progress) -> Remade:
        from privmix.commands.replay.remake import remade

        return remade(Path(self.release), self.data, self, progress)


@dataclass(frozen=True, eq=False, repr=False)
class EndReplay(Command["ReplayEnded"]):
    """Destroy a release's sealed key, and state so under a signature.

    No check can show that no copy is left: the statement rests on the signer. With `key`, the auditor's private key
    and all copies that only it opens end. Sign a signed release again afterwards.

    Formal guarantees:
        * That one: a file that is not the sealed key that the certificate commits to is neither removed nor stated.
        * In order: the statement is on disk before anything is removed, and in the release afterwards; after a kill the
          same call goes on.

    Raises:
        InvalidInput: the release has no sealed key, its end is stated already, or a file is another key's.
        StorageError: something can't be read or written.
    """

    example = "privmix end-replay REL --sign-key ana.pem --key auditor.pem"

    release: str | PathLike[str] = option(MISSING, "Folder from privmix release --replay-for.", argument=True)
    _: KW_ONLY
    sign_key: str | Path | PrivateKey = option(
        MISSING, "Signer's private key (PEM); passphrase by prompt or PRIVMIX_KEY_PASSPHRASE."
    )
    sealed_key: str | Path | None = option(None, SEALED_HELP)
    key: str | Path | None = option(None, "Auditor's private key (PEM) to destroy; ends every key sealed to it.")
    passphrase: Callable[[Path], bytes | None] | None = option(
        None, "Function from a key's file to its passphrase.", python=True
    )

    def run(self, progress: Progress) -> ReplayEnded:
        from privmix.certificate.keys import PrivateKey
        from privmix.commands.replay.end import ended

        passphrase = self.passphrase or (lambda _: None)
        sign_key = self.sign_key
        if not isinstance(sign_key, PrivateKey):
            sign_key = PrivateKey.read(Path(sign_key), passphrase(Path(sign_key)))
        return ended(Path(self.release), sign_key, self.sealed_key, self.key, passphrase)


replay: Final = function(Replay)
end_replay: Final = function(EndReplay)
