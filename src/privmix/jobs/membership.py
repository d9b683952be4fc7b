"""Membership inference against a model: how well attackers tell who was in the data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix import training
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
from privmix.jobs.features import features_of_all
from privmix.jobs.kinds import kind_of
from privmix.jobs.model_data import has_splits, open_for_model
from privmix.jobs.models import Model
from privmix.jobs.options import MembershipOptions, ModelInputs
from privmix.jobs.places import check_writable
from privmix.jobs.recording import Measured, Measurement
from privmix.learning import load_model
from privmix.learning.base import ReleaseLearner
from privmix.progress import Progress, silent
from privmix.releases.certificate import read_certificate
from privmix.releases.verify import check_certificate

_ID = re.compile(r"[0-9a-f]{32}\Z")
STATEMENTS: Final = (
    "An attack that finds little proves little: others may find more. What bounds them all is the guarantee.",
    "Intervals are over records, for this one model; those of the ROC curve hold point by point.",
    "The bound is the most that any attack on one record can expect under the guarantee; a rate measured over the "
    "records of one model may lie above it by chance.",
    "The attack takes members and non-members for records of one kind: any other difference counts as membership.",
)
OWN_ONLY: Final = "Computed from private records, without any guarantee: for the data's owner only."


@dataclass(frozen=True, repr=False)
class Membership(Measured):
    """What membership inference found.

    Attributes:
        result: the figures of every attack.
    """

    result: MembershipResult

    def to_dict(self) -> dict[str, Any]:
        """JSON values; single records only where the data are not public."""
        return {**self.measurement.content, "private": self.measurement.private}


@dataclass(frozen=True, eq=False, kw_only=True)
class MembershipJob(ModelInputs, MembershipOptions):
    """Ask of each record whether the model was made of it, and measure how often that is right.

    ``loss``: members have a lower loss (Yeom et al. 2018). ``lira``, ``rmia``: each record's confidence beside that of
    reference models, which are made from other draws of the same records, as the model was (Carlini et al. 2022;
    Zarifzadeh et al. 2024). The figures are for the owner, unless the data are public.

    Attributes:
        model: folder of a model, trained or fitted on a release.
        data: dataset with labels.

    The rest: :class:`privmix.jobs.options.MembershipOptions` and :class:`privmix.jobs.options.ModelInputs`.
    """

    model: str | Path
    data: Any = field(repr=False)

    def run(self, progress: Progress | None = None) -> Membership:
        """Attack.

        Args:
            progress: called with (stage, done, total).

        Raises:
            InvalidInput: a value is out of range, the release is missing, superfluous or another one, or the data are
                not the model's.
            StorageError: something can't be read, or ``work`` not written.
        """
        config = self._config()
        release, work = (None if place is None else Path(place) for place in (self.release, self.work))
        target = _Target.of(Path(self.model), release, config, self.module)
        if work is not None:
            check_writable("work", work)
        if self.members == self.nonmembers and self.held_out is None:
            raise InvalidInput("nonmembers", self.nonmembers, "another split than that of the members")
        facts, tell = target.model.facts_, progress or silent
        extractor = Model(target.model, self.features_model, self.trust_features_model).extractor
        opened = [
            open_for_model(facts, extractor, data, split, self.classes, self.columns)
            for data, split in ((self.data, self.members), self._others())
        ]
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
            work=work,
            progress=tell,
        )
        return Membership(self._measurement(target, found), found)

    def _others(self) -> tuple[Any, str]:
        """Where the non-members are, and which split of it."""
        if self.held_out is None:
            return self.data, self.nonmembers
        return self.held_out, self.nonmembers if has_splits(self.held_out) else "train"

    def _config(self) -> MembershipConfig:
        attacks = self.attacks.split(",") if isinstance(self.attacks, str) else self.attacks
        return MembershipConfig(
            attacks=tuple(name.strip() for name in attacks),
            references=self.references,
            confidence=self.confidence,
            highest=self.highest,
        )

    def _measurement(self, target: _Target, found: MembershipResult) -> Measurement:
        splits = {"members": self.members, "nonmembers": self._others()[1]}
        return Measurement(
            "membership",
            target.subject,
            found.to_dict(owner=not self.public_data),
            private=not self.public_data,
            settings={**vars(self._config()), **splits, "with_release": self.release is not None},
            title="Membership inference",
            statements=STATEMENTS if self.public_data else (*STATEMENTS, OWN_ONLY),
        )


@dataclass(frozen=True)
class _Target:
    """The attacked model, how its like are made, and what was guaranteed for it."""

    model: ReleaseLearner | training.TrainedModel
    subject: dict[str, Any]
    certificate: Mapping[str, Any] | None = field(repr=False)
    trainer: ReferenceTrainer | None

    @classmethod
    def of(cls, folder: Path, release: Path | None, config: MembershipConfig, module: Any) -> _Target:
        """The model and what it was made by."""
        if kind_of(folder) == MODEL:
            if release is not None:
                raise InvalidInput("release", str(release), "none: the model was trained on records, not on a release")
            trained = training.load_trained(folder, module)
            training.verify_trained(folder)
            trainer = DpSgdTrainer.of(trained, module=module) if config.needs_references else None
            return cls(trained, {"kind": MODEL, "id": trained.certificate.id}, trained.certificate, trainer)
        if release is not None and kind_of(release) == MODEL:
            raise InvalidInput("release", str(release), "a release's folder, not a trained model's")
        if module is not None:
            raise InvalidInput("module", WITHHELD, "nothing for a model that was fitted on a release")
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
        """The certificate, if what it guarantees limits attacks on records: noise from a seed limits none."""
        certificate = self.certificate
        if certificate is None or certificate["insecure_seed"]:
            return None
        # What a person's being there tells is limited, not what one of their records does.
        return None if certificate["plan"].get("per_person") is not None else certificate

    def check_count(self, members: int) -> None:
        """Raise unless the members are as many as the certificate says, where it states the real count."""
        certificate = self.certificate
        if certificate is None:
            return
        plan = certificate["plan"]
        if not plan["records_declared"] and plan.get("records_noise_multiplier") is None and members != plan["records"]:
            raise InvalidInput("members", WITHHELD, f"the {plan['records']} records that the model was made of")
