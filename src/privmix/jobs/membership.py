"""Membership inference against a model: how well attackers tell who was in the data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix.attacks.membership import (
    DpSgdTrainer,
    MembershipConfig,
    MembershipResult,
    ReferenceTrainer,
    ReleaseTrainer,
    infer_membership,
)
from privmix.certificate.certificate import MODEL
from privmix.errors import WITHHELD, InvalidInput
from privmix.features import from_spec
from privmix.jobs.columns import Columns
from privmix.jobs.evaluation import open_for_model
from privmix.jobs.features import features_of_all
from privmix.jobs.kinds import kind_of
from privmix.jobs.places import check_writable
from privmix.jobs.progress import Progress, silent
from privmix.jobs.recording import Measured, Measurement
from privmix.learning import load_model
from privmix.learning.base import ReleaseLearner
from privmix.releases.certificate import read_certificate
from privmix.releases.verify import check_certificate
from privmix.training import TrainedModel, load_trained
from privmix.training.verify import verify_trained

_ID = re.compile(r"[0-9a-f]{32}\Z")
STATEMENTS: Final = (
    "An attack that finds little proves little: others may find more. What bounds them all is the guarantee.",
    "Intervals are over records, for this one model; those of the ROC curve hold point by point.",
    "The bound is the most that any attack on one record can expect under the guarantee; a rate measured over the "
    "records of one model may lie above it by chance.",
    "Members and non-members are taken as records of one kind: whatever else tells them apart counts as membership.",
)
OWN_ONLY: Final = "Computed from private records, without any guarantee: for the data's owner only."


@dataclass(frozen=True)
class Membership(Measured):
    """What membership inference found.

    Attributes:
        result: the figures of every attack.
    """

    result: MembershipResult

    def to_dict(self) -> dict[str, Any]:
        """JSON values; single records only where the data are not public."""
        return {**self.measurement.content, "private": self.measurement.private}


def membership(
    model: str | Path,
    data: Any,
    *,
    members: str = "train",
    nonmembers: str = "test",
    attacks: str | Sequence[str] = "loss",
    references: int = 16,
    release: str | Path | None = None,
    work: str | Path | None = None,
    confidence: float = 0.95,
    highest: int = 10,
    public_data: bool = False,
    classes: Any = None,
    columns: Columns | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    progress: Progress | None = None,
) -> Membership:
    """Ask of each record whether the model was made of it, and measure how often that is right.

    ``loss``: members have a lower loss (Yeom et al. 2018). ``lira``, ``rmia``: each record's confidence beside that of
    reference models, which are made from other draws of the same records, as the model was (Carlini et al. 2022;
    Zarifzadeh et al. 2024). The figures are for the owner, unless the data are public.

    Args:
        model: folder of a model, trained or fitted on a release.
        data: dataset with labels.
        members: split that the model was made of.
        nonmembers: split of the same kind that it was not made of.
        attacks: which, as a list or with commas: loss, lira, rmia; all but loss need references.
        references: reference models to make; each is a release and a fit, or a training run.
        release: the release that the model was fitted on; references are made by its plan.
        work: private folder for finished references: the same call goes on with what is there.
        confidence: of all intervals.
        highest: members at the highest risk to list, for the owner.
        public_data: the data are public: single records are not listed.
        classes: number or names of the classes, where the model's are not meant.
        columns: what is declared of columns and images.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        progress: called with (stage, done, total).

    Raises:
        InvalidInput: a value is out of range, the release is missing, superfluous or another one, or the data are not
            the model's.
        StorageError: something can't be read, or ``work`` not written.
    """
    config = MembershipConfig(
        attacks=tuple(name.strip() for name in (attacks.split(",") if isinstance(attacks, str) else attacks)),
        references=references,
        confidence=confidence,
        highest=highest,
    )
    target = _Target.of(Path(model), None if release is None else Path(release), config)
    if work is not None:
        check_writable("work", Path(work))
    if members == nonmembers:
        raise InvalidInput("nonmembers", nonmembers, "another split than that of the members")
    facts = target.model.facts_
    extractor = from_spec(facts.extractor, features_model, trust_model=trust_features_model)
    opened = [open_for_model(facts, extractor, data, split, classes, columns) for split in (members, nonmembers)]
    tell = progress or silent
    records = features_of_all([one.source for one in opened], extractor, tell)
    inside = opened[0].schema.records
    target.check_count(inside)
    found = infer_membership(
        target.model,
        records,
        np.arange(len(records.labels)) < inside,
        classes=len(facts.classes),
        config=config,
        trainer=target.trainer,
        certificate=target.guarantee,
        work=None if work is None else Path(work),
        progress=tell,
    )
    measurement = Measurement(
        "membership",
        target.subject,
        found.to_dict(owner=not public_data),
        private=not public_data,
        settings={**vars(config), "members": members, "nonmembers": nonmembers, "with_release": release is not None},
        title="Membership inference",
        statements=STATEMENTS if public_data else (*STATEMENTS, OWN_ONLY),
    )
    return Membership(measurement, found)


@dataclass(frozen=True)
class _Target:
    """The attacked model, how its like are made, and what was guaranteed for it."""

    model: ReleaseLearner | TrainedModel
    subject: dict[str, Any]
    certificate: Mapping[str, Any] | None = field(repr=False)
    trainer: ReferenceTrainer | None

    @classmethod
    def of(cls, folder: Path, release: Path | None, config: MembershipConfig) -> _Target:
        """The model and what it was made by."""
        if kind_of(folder) == MODEL:
            if release is not None:
                raise InvalidInput("release", str(release), "none: the model was trained on records, not on a release")
            trained = load_trained(folder)
            verify_trained(folder)
            trainer = DpSgdTrainer.of(trained) if config.needs_references else None
            return cls(trained, {"kind": MODEL, "id": trained.certificate.id}, trained.certificate, trainer)
        if release is not None and kind_of(release) == MODEL:
            raise InvalidInput("release", str(release), "a release's folder, not a trained model's")
        learner = load_model(folder)
        made_of = learner.facts_.release_id
        subject = {"kind": "release", "id": made_of if _ID.match(made_of) else None}
        if release is None:
            if config.needs_references:
                asked = ", ".join(name for name in config.attacks if name != "loss")
                raise InvalidInput("release", None, f"the release that the model was fitted on, for {asked}")
            return cls(learner, subject, None, None)
        certificate = read_certificate(release)
        # Bounds are taken from it.
        check_certificate(certificate)
        return cls(learner, subject, certificate, ReleaseTrainer.of(learner, certificate))

    @property
    def guarantee(self) -> Mapping[str, Any] | None:
        """The certificate, if what it guarantees limits attacks: noise from a seed limits none."""
        certificate = self.certificate
        return None if certificate is None or certificate["insecure_seed"] else certificate

    def check_count(self, members: int) -> None:
        """Raise unless the members are as many as the certificate says, where it states the real count."""
        certificate = self.certificate
        if certificate is None:
            return
        plan = certificate["plan"]
        if not plan["records_declared"] and plan.get("records_noise_multiplier") is None and members != plan["records"]:
            raise InvalidInput("members", WITHHELD, f"the {plan['records']} records that the model was made of")
