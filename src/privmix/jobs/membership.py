"""Membership inference against a model: how well attackers recognise members of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.attacks.membership.attack import AttackResult, MembershipConfig, MembershipResult
from privmix.attacks.membership.references import DpSgdTrainer, ReferenceTrainer, ReleaseTrainer
from privmix.certificate.certificate import MODEL
from privmix.errors import WITHHELD, InvalidInput
from privmix.jobs.kinds import kind_of
from privmix.jobs.models import is_trained, model_in, subject_of
from privmix.jobs.recording import Measured
from privmix.learning.base import ReleaseLearner
from privmix.releases.certificate import read_certificate
from privmix.releases.verify import check_certificate

if TYPE_CHECKING:
    from privmix.training.trained import TrainedModel

STATEMENTS: Final = (
    "A weak attack is no proof of privacy: another attack may find more. The guarantee bounds all attacks.",
    "Intervals are over the records of this one model; those of the ROC curve hold for each point separately.",
    "The bound limits the expected success of any attack on one record under the guarantee. A rate measured over the "
    "records of one model may exceed it by chance.",
    "The attack assumes that members and non-members are alike: it counts any other difference as membership.",
)
OWN_ONLY: Final = "Computed from private records, without any guarantee: for the data's owner only."


@dataclass(frozen=True, repr=False)
class MembershipRisk(Measured):
    """The figures of every membership attack."""

    result: MembershipResult

    def shown(self) -> tuple[str, Mapping[str, object]]:
        found, level = self.result, f"{100 * self.result.confidence:g}%"
        shares = f"members {100 * found.train_accuracy:.2f}%, non-members {100 * found.test_accuracy:.2f}%"
        gap = f"{100 * found.gap:.2f} points ({100 * found.gap_low:.2f} to {100 * found.gap_high:.2f})"
        return f"{self.measurement.title} ({level} intervals)", {
            "accuracy": f"{shares}; gap {gap}",
            **{one.name: _in_words(one) for one in found.attacks},
        }

    @property
    def details(self) -> tuple[str, ...]:
        """Caveats of the figures; for the owner, also the members at the highest risk."""
        places = ", ".join(str(place) for place, _ in self.result.highest_risk)
        listed = places and self.measurement.private
        risk = [f"members at the highest risk (places in their split, from 0): {places}"] if listed else []
        return (*STATEMENTS, *risk)

    @property
    def warnings(self) -> tuple[str, ...]:
        return (OWN_ONLY,) if self.measurement.private else ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values; single records only where the data are not public."""
        return {**self.measurement.content, "private": self.measurement.private}


def _in_words(attack: AttackResult) -> str:
    rates = []
    for number, point in enumerate(attack.tpr_at):
        bound = "" if attack.bounds is None else f", bound {100 * attack.bounds[0][number]:.3g}%"
        found = f"{100 * point.tpr:.2f}% ({100 * point.low:.2f} to {100 * point.high:.2f}{bound})"
        rates.append(f"{found} found at {100 * point.fpr:g}% false alarms")
    return "; ".join([f"AUC {attack.auc:.4f} ({attack.auc_low:.4f} to {attack.auc_high:.4f})", *rates])


@dataclass(frozen=True)
class Target:
    """The attacked model, how its like are made, and what was guaranteed for it."""

    model: ReleaseLearner | TrainedModel
    subject: dict[str, Any]
    certificate: Mapping[str, Any] | None = field(repr=False)
    trainer: ReferenceTrainer | None

    @classmethod
    def of(cls, folder: Path, release: Path | None, config: MembershipConfig, module: Any) -> Target:
        model = model_in(folder, module=module).classifier
        if is_trained(model):
            if release is not None:
                raise InvalidInput("release", str(release), "no release: the model was trained on records")
            from privmix.training.verify import verify_trained

            # Bounds are taken from its certificate.
            verify_trained(folder)
            trainer = DpSgdTrainer.of(model, module=module) if config.needs_references else None
            return cls(model, subject_of(model), model.certificate, trainer)
        if release is None:
            if config.needs_references:
                asked = ", ".join(name for name in config.attacks if name != "loss")
                raise InvalidInput("release", None, f"the release that the model was fitted on, for {asked}")
            return cls(model, subject_of(model), None, None)
        if kind_of(release) == MODEL:
            raise InvalidInput("release", str(release), "the folder of a release, not of a trained model")
        certificate = read_certificate(release)
        # Bounds are taken from it.
        check_certificate(certificate)
        return cls(model, subject_of(model), certificate, ReleaseTrainer.of(model, certificate))

    @property
    def guarantee(self) -> Mapping[str, Any] | None:
        """The certificate, if what it guarantees limits attacks on records: noise from a seed limits none."""
        certificate = self.certificate
        if certificate is None or certificate["insecure_seed"]:
            return None
        # The guarantee limits what a person's presence reveals, not what one of their records reveals.
        return None if certificate["plan"].get("per_person") is not None else certificate

    def check_count(self, members: int) -> None:
        """Raise unless the number of members is the certificate's, where it states the real count."""
        certificate = self.certificate
        if certificate is None:
            return
        plan = certificate["plan"]
        # A comparison with a declared or private count would show how far the real one is from it.
        if not plan["records_declared"] and plan.get("records_noise_multiplier") is None and members != plan["records"]:
            raise InvalidInput("members", WITHHELD, f"the {plan['records']} records that the model was trained on")
