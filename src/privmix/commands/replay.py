"""Make a release again from its records, by an auditor's key."""

from __future__ import annotations

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
    from privmix.certificate.sealed_key import AuditorKey
    from privmix.jobs.replay import Remade


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
    # The release states the shape of its inputs.
    feature_length: int | None = field(default=None, init=False)
    image_size: int | None = field(default=None, init=False)
    colour: str | None = field(default=None, init=False)
    key: str | Path | AuditorKey = option(
        MISSING, "Auditor's private key (PEM); passphrase by prompt or PRIVMIX_KEY_PASSPHRASE."
    )
    passphrase: bytes | None = option(None, "Passphrase of the key.", python=True)
    sealed_key: str | Path | None = option(None, "Sealed key. Default: RELEASE.sealed-key.json, next to the release.")
    split: str = as_in_release("split")
    features_store: str | Path | None = option(
        None, "Feature store of the release, for extractors that differ on this machine."
    )
    spot_checks: int = option(256, "Number of records with recomputed features, with `features_store`.")
    engine: str | Local = as_in_release("engine")

    def run(self, progress: Progress) -> Remade:
        from privmix.jobs.replay import remade

        return remade(Path(self.release), self.data, self, progress)


replay: Final = function(Replay)
