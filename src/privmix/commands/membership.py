"""Membership inference against a model: how well attackers recognise records of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.audits.defaults import ATTACKS
from privmix.commands.base import Command, function
from privmix.errors import InvalidInput
from privmix.jobs.columns import ModelColumns
from privmix.jobs.options import MODULE_HELP, ModelFiles, Recorded
from privmix.options import EXPERT, option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.membership import MembershipRisk


@dataclass(frozen=True, eq=False, repr=False)
class Membership(ModelColumns, ModelFiles, Recorded, Command["MembershipRisk"]):
    """Guess which records a model was trained on, and measure success.

    loss: members have a lower loss (Yeom et al. 2018). lira, rmia: confidence compared with that of reference
    models (Carlini et al. 2022; Zarifzadeh et al. 2024). The figures are private unless the data are public.

    Raises:
        InvalidInput: a value is out of range, the release is missing, superfluous or another one, or the data are not
            the model's.
        StorageError: something can't be read, or `work` not written.

    Example:
        >>> attack("MODEL", "mnist", references=0)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: references: got 0; allowed: an integer >= 1
    """

    example = "privmix attack membership MODEL --data mnist --attack loss,lira,rmia --release REL"

    model: str | Path = option(MISSING, "Folder of a model from privmix fit or privmix train.", argument=True)
    data: Any = option(
        MISSING,
        "Labelled dataset with the members: file, folder, pattern or address.",
        in_python="Also arrays, frames and tensors.",
    )
    _: KW_ONLY
    members: str = option("train", "Split with the members.")
    nonmembers: str = option("test", "Split with the non-members.")
    held_out: Any = option(None, "Dataset with the non-members. Default: the members' dataset.", EXPERT)
    attacks: str | Sequence[str] = option(
        "loss", f"Attacks: {','.join(ATTACKS)}; all but loss need references.", flag="attack"
    )
    references: int = option(16, "Number of reference models, each from its own release or training.")
    release: str | Path | None = option(None, "Release that the model was fitted on.")
    work: str | Path | None = option(
        None, "Private folder for reference models, to resume an interrupted attack.", EXPERT
    )
    confidence: float = option(0.95, "Confidence level of all intervals.", EXPERT)
    highest: int = option(10, "Number of members at the highest risk to list.", EXPERT)
    public_data: bool = option(False, "Declare the data public; single records are not listed.")
    module: Any = option(None, MODULE_HELP, EXPERT)

    def run(self, progress: Progress) -> MembershipRisk:
        import numpy as np

        from privmix.attacks.membership.attack import MembershipConfig, infer_membership
        from privmix.jobs.features import features_in_memory
        from privmix.jobs.membership import OWN_ONLY, STATEMENTS, MembershipRisk, Target
        from privmix.jobs.models import Model, has_splits, open_for_model
        from privmix.jobs.places import check_writable
        from privmix.jobs.recording import Measurement

        self.check_record()
        names = self.attacks.split(",") if isinstance(self.attacks, str) else self.attacks
        config = MembershipConfig(
            attacks=tuple(name.strip() for name in names),
            references=self.references,
            confidence=self.confidence,
            highest=self.highest,
        )
        release, work = (None if place is None else Path(place) for place in (self.release, self.work))
        target = Target.of(Path(self.model), release, config, self.module)
        if work is not None:
            check_writable("work", work)
        # Members on both sides would make every attack look like guessing.
        if self.members == self.nonmembers and self.held_out is None:
            raise InvalidInput("nonmembers", self.nonmembers, "a split other than that of the members")
        others, split = (self.data, self.nonmembers) if self.held_out is None else (self.held_out, "train")
        if self.held_out is not None and has_splits(self.held_out):
            split = self.nonmembers
        facts = target.model.facts_
        extractor = Model(target.model, self.features_model).extractor
        opened = [
            open_for_model(facts, extractor, data, part, self.as_columns())
            for data, part in ((self.data, self.members), (others, split))
        ]
        records = features_in_memory([one.source for one in opened], extractor, progress)
        inside = opened[0].schema.records
        # Records that the model never saw would count as members.
        target.check_count(inside)
        found = infer_membership(
            target.model,
            records,
            np.arange(len(records.labels)) < inside,
            classes=len(facts.classes),
            config=config,
            trainer=target.trainer,
            certificate=target.guarantee,
            work=work,
            progress=progress,
        )
        splits = {"members": self.members, "nonmembers": split}
        measurement = Measurement(
            "membership",
            target.subject,
            found.to_dict(owner=not self.public_data),
            private=not self.public_data,
            settings={**vars(config), **splits, "with_release": release is not None},
            title="Membership inference",
            statements=STATEMENTS if self.public_data else (*STATEMENTS, OWN_ONLY),
        )
        return MembershipRisk(measurement, found)


attack: Final = function(Membership, "attack")
