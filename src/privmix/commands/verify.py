"""Recompute the claims of the certificate of a release or trained model, and check who signed it."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.errors import WITHHELD, InvalidInput
from privmix.jobs.options import MODULE_HELP
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.checking import CheckedFolder


@dataclass(frozen=True, eq=False, repr=False)
class Verify(Command["CheckedFolder"]):
    """Check a release or model against its certificate.

    Recomputes epsilon, checks every byte and tests the noise; reports the tests, their confidence and their limits.
    With `key`, that key must have signed every file: take it from the owner's site, not from the folder. Without
    it, a signature is named and not checked. Exit code 2 on failure.

    Raises:
        InvalidInput: something does not hold.
        StorageError: a file is missing or can't be read.
    """

    example = "privmix verify REL --key ana.pub.pem"

    folder: str | PathLike[str] = option(
        MISSING, "Folder of a release, model or series, or a ledger statement.", argument=True
    )
    _: KW_ONLY
    key: str | Path | None = option(None, "Public key (PEM) that must have signed it.")
    full: bool = option(False, "Show every test, and every part that is not checked.", common=True)
    module: Any = option(None, MODULE_HELP)

    def run(self, progress: Progress) -> CheckedFolder:
        return replace(self._checked(progress), full=self.full)

    def _checked(self, progress: Progress) -> CheckedFolder:
        from privmix.certificate.certificate import MODEL
        from privmix.certificate.keys import PublicKey
        from privmix.certificate.ledger_total import is_total, read_total
        from privmix.certificate.signing import Subject, claimed_key, verify_signature
        from privmix.jobs.checking import CheckedFolder, check_folder
        from privmix.releases.series import is_series

        path = Path(self.folder)
        if is_total(path):
            total, statement = read_total(path, None if self.key is None else PublicKey.read(Path(self.key)))
            subject = Subject("ledger-total", total.digest, total.epsilon, total.delta, total.adjacency, total.unit)
            return CheckedFolder(subject, total=total, signature=statement.signer)
        if self.module is not None:
            # Verified first: a module of the user's gets no weights from a folder that fails.
            checked = replace(self, module=None)._checked(progress)
            if checked.held is None or checked.subject.kind != MODEL:
                raise InvalidInput("module", WITHHELD, "only for a trained model")
            from privmix.training.trained import load_trained
            from privmix.training.verify import NO_MODULE

            load_trained(path, self.module)
            left = tuple(text for text in checked.unchecked if text != NO_MODULE)
            return replace(checked, held=replace(checked.held, unchecked=left))
        if self.key is None:
            checked, claimed = check_folder(path, progress), claimed_key(path)
            return checked if claimed is None else replace(checked, signature={"key_id": claimed, "checked": False})
        if is_series(path):
            raise InvalidInput("key", str(self.key), "no key for a whole series: its releases are signed one by one")
        # The maker comes before the content.
        found: list[CheckedFolder] = []

        def check(folder: Path) -> Subject:
            found.append(check_folder(folder, progress))
            return found[-1].subject

        signed = verify_signature(path, PublicKey.read(Path(self.key)), check)
        return replace(found[-1], signature={"key_id": signed.key_id, "checked": True})


verify: Final = function(Verify)
