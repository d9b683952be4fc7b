"""Membership inference on models: loss, LiRA and RMIA attacks, with reference models made from releases."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.attacks.membership.attack import AttackResult, MembershipConfig, MembershipResult, infer_membership
    from privmix.attacks.membership.references import train_references
    from privmix.attacks.membership.roc import Roc, TprAt, auc_interval, roc_with_band, tpr_at, tpr_bound
    from privmix.attacks.membership.scores import (
        ReferenceModels,
        fit_temperature,
        lira_scores,
        rmia_scores,
        true_class_logits,
    )
    from privmix.attacks.membership.trainers import DpSgdTrainer, EstimatorTrainer, ReferenceTrainer, ReleaseTrainer
    from privmix.audits.defaults import ATTACKS
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ATTACKS",
    "AttackResult",
    "DpSgdTrainer",
    "EstimatorTrainer",
    "MembershipConfig",
    "MembershipResult",
    "ReferenceModels",
    "ReferenceTrainer",
    "ReleaseTrainer",
    "Roc",
    "TprAt",
    "auc_interval",
    "fit_temperature",
    "infer_membership",
    "lira_scores",
    "rmia_scores",
    "roc_with_band",
    "tpr_at",
    "tpr_bound",
    "train_references",
    "true_class_logits",
]
