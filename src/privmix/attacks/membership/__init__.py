"""Membership inference: who was in the data behind a model? Loss, LiRA and RMIA, with reference models on releases.

The attacker knows the mechanism, its settings and records of the same kind, and asks of each record whether it was
among those that the model was made of. What is measured is one attacker's success: a lower bound on what a model gives
away, beside the upper bound that a guarantee sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.attacks.membership.attack import (
        AttackResult,
        MembershipConfig,
        MembershipResult,
        infer_membership,
    )
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
