"""What the certificate of a release or a trained model claims, recomputed, and who signed it."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix import training
from privmix.commands.base import Command, function
from privmix.errors import WITHHELD, InvalidInput
from privmix.jobs.options import MODULE_HELP
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.certificate import PublicKey
    from privmix.jobs.checking import Checked

_TOTAL_UNCHECKED: Final = (
    "that the ledger says so, which is the word of whoever signed it (privmix ledger verify --statement compares)",
    "that everything that was made of the data was charged to this budget",
    "charges since that date",
)


@dataclass(frozen=True, eq=False, repr=False)
class Verify(Command["Checked"]):
    """Recompute epsilon, check every byte and test the noise.

    Every byte of every file is checked, and the released numbers are tested for their noise. Exit code 2 if anything
    does not hold. Says what was tested, how sure that is, and what can't be checked.

    With `key`, that key must have signed every file of the folder. Take the key from where its owner publishes it, not
    from beside the folder. Without `key`, a signature is named and not checked.

    Of a trained network of your own `module` names the module: whether it treats each record alone, and fits.

    A series (privmix series begin): every release is checked, and that they are the steps of one plan.

    A ledger's total (privmix ledger statement): the form is checked, and with `key` whose it is.

    Raises:
        InvalidInput: something does not hold.
        StorageError: a file is missing or can't be read.
    """

    example = "privmix verify REL --key ana.pub.pem"

    folder: str | PathLike[str] = option(
        MISSING,
        "Folder that privmix release, privmix train or privmix fit wrote, or of a series; or the file of privmix "
        "ledger statement.",
        argument=True,
    )
    _: KW_ONLY
    key: str | Path | None = option(None, "Public key (PEM) of whoever must have signed it; see privmix sign.")
    module: Any = option(None, MODULE_HELP)

    def run(self, progress: Progress) -> Checked:
        """Verify."""
        from privmix.certificate import PublicKey, Subject, claimed_key, verify_signature
        from privmix.certificate.certificate import MODEL
        from privmix.certificate.ledger_total import is_total, read_total
        from privmix.jobs.checking import Checked, check_folder, remembered
        from privmix.releases.series import is_series

        path = Path(self.folder)
        if is_total(path):
            total, statement = read_total(path, None if self.key is None else PublicKey.read(Path(self.key)))
            subject = Subject("ledger-total", total.digest, total.epsilon, total.delta, total.adjacency, total.unit)
            signer = statement.signer
            return Checked(subject, total.to_dict(), "", _TOTAL_UNCHECKED, None, total=total, signature=signer)
        if self.module is not None:
            checked = replace(self, module=None).run(progress)
            if checked.subject.kind != MODEL:
                raise InvalidInput("module", WITHHELD, "nothing but for a trained model")
            from privmix.training.verify import NO_MODULE

            training.load_trained(path, self.module)
            left = tuple(text for text in checked.unchecked if text != NO_MODULE)
            return replace(checked, unchecked=left, found={**checked.found, "unchecked": list(left)})
        if self.key is None:
            checked, claimed = check_folder(path, progress), claimed_key(path)
            return checked if claimed is None else replace(checked, signature={"key_id": claimed, "checked": False})
        if is_series(path):
            raise InvalidInput("key", str(self.key), "none for a whole series: its releases are signed one by one")
        # Who made it comes before what it says.
        found: list[Checked] = []
        public = PublicKey.read(Path(self.key))
        signed = verify_signature(path, public, remembered(found, progress))
        return replace(_end_checked(found[-1], public), signature={"key_id": signed.key_id, "checked": True})


verify = function(Verify)


def _end_checked(checked: Checked, key: PublicKey) -> Checked:
    """The same, once a statement that the sealed key was destroyed is found to be signed by ``key``, if it says so.

    Raises:
        InvalidInput: it says so, and is not.
    """
    from privmix.certificate.replay_end import ENDED_FILE, sealed_words

    held = checked.held
    if held is None or held.sealed is None or held.ended is None or held.ended.key_id != key.key_id:
        return checked
    held.ended.statement.checked_by(key, ENDED_FILE)
    stated = {**checked.found["sealed_key"], "ended": {**checked.found["sealed_key"]["ended"], "checked": True}}
    words = sealed_words(held.sealed, held.ended, checked=True)
    return replace(checked, found={**checked.found, "sealed_key": stated}, sealed=words)
