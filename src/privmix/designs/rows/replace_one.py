"""Worst cases of the designs with rows of a fixed size, where one record is replaced by another."""
# All other records are alike, so a row without the canary is known but for its noise. Without centring they are like
# the replaced record: the new one shows by twice a record's bound. With centring they lie at the origin.

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import roots_jacobi

from privmix.audits.bounds import Scores
from privmix.audits.worst_case import LONG, Mask, WorstCase, exact_pairs
from privmix.engine.rows import Engine, PrivateRecords, RowBlock
from privmix.mechanisms.sampling import log_mixture
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform

_NODES: Final = 24


@dataclass(frozen=True)
class ReplaceCase(WorstCase[ReleasePlan]):
    """One canary a run, since members of one row depend on each other."""

    @property
    def _feature_of_others(self) -> float:
        return 0.0 if self.plan.centred else -self.plan.clip_norm

    def records(self, present: Mask) -> PrivateRecords:
        features = np.full((self.plan.records, 1), self._feature_of_others)
        labels = np.ones(self.plan.records, np.int64)
        features[-1] = LONG * (self.plan.clip_norm if present[0] else -self.plan.clip_norm)
        labels[-1] = 0 if present[0] else 1
        return PrivateRecords(features, labels)

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        plan = self.plan
        if not plan.kind.averages:
            # Weights differ from row to row: no difference is known beforehand.
            return np.zeros(1)
        others, new = self.contribution(transform, np.array([[self._feature_of_others], [plan.clip_norm]]))[:, 0]
        unit = plan.final_clip_norm / plan.divisor
        pairs = exact_pairs(x, unit * 2.0**-plan.lattice_bits, unit * float(new - others))
        return np.asarray(pairs.sum(axis=0))

    def of_rest(self, engine: Engine) -> Scores:
        plan = self.plan
        if plan.centre_noise_multiplier is None or engine.transform.centre is None:
            return np.zeros((2, 1))
        # The others lie at the origin: the sum is the canary's, on one side or the other.
        own = float(self.contribution(RecordTransform(plan.clip_norm), np.full((1, 1), plan.clip_norm))[0, 0])
        seen = float(engine.transform.centre[0]) * plan.records / plan.clip_norm
        return np.array([[2 * own * seen / plan.centre_noise_multiplier**2], [0.0]])

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        plan = self.plan
        ends = np.array([[self._feature_of_others], [-plan.clip_norm], [plan.clip_norm]])
        others, old, new = self.contribution(transform, ends)[:, 0]
        labels = np.eye(plan.num_classes)[[1, 1, 0]] - plan.label_offset
        # A row without the canary holds others only; weights of a row add up to 1, and to m without weights.
        whole = float(plan.mixup_degree) if plan.kind.averages else 1.0
        feature = block.x[:, 0].astype(np.float64) * (plan.divisor / plan.final_clip_norm) - whole * others
        label = block.y.astype(np.float64) * plan.divisor - whole * labels[0]
        left = np.concatenate([feature[:, None], label], axis=1)
        noise = np.full(1 + plan.num_classes, plan.noise_std_y * plan.divisor)
        noise[0] = plan.noise_std_x * plan.divisor / plan.final_clip_norm
        shifts = [np.concatenate([[to - others], of - labels[0]]) for to, of in ((old, labels[1]), (new, labels[2]))]
        before, after = (self._row_gain(left, shift, noise) for shift in shifts)
        linear = (left / noise**2) @ (shifts[1] - shifts[0])
        return np.array([[(after - before).sum()], [linear.sum()]])

    def _row_gain(self, left: Scores, shift: Scores, noise: Scores) -> Scores:
        """(rows,) log-likelihood ratio of a record that moves a row by ``shift`` against one like the others."""
        if not shift.any():
            return np.zeros(len(left))
        rate, touched = self.plan.record_rate, shift != 0
        left, shift, noise = left[:, touched], shift[touched], noise[touched]
        if self.plan.noise == "laplace":
            scale = noise / math.sqrt(2)
            return log_mixture(rate, ((np.abs(left) - np.abs(left - shift)) / scale).sum(axis=1))
        towards, square = (left / noise**2) @ shift, float(((shift / noise) ** 2).sum())
        if self.plan.kind.averages:
            return log_mixture(rate, towards - square / 2)
        nodes, weights = self._weight_law()
        inner = np.log(weights) + towards[:, None] * nodes - square * nodes**2 / 2
        return log_mixture(rate, np.logaddexp.reduce(inner, axis=1))

    def _weight_law(self) -> tuple[Scores, Scores]:
        """Nodes and probabilities that stand for the law of one member's weight: a Beta distribution, cut."""
        plan = self.plan
        assert plan.dirichlet_alpha is not None
        assert plan.max_weight is not None
        if plan.mixup_degree == 1:
            return np.array([plan.max_weight]), np.ones(1)
        rest = (plan.mixup_degree - 1) * plan.dirichlet_alpha
        x, found = roots_jacobi(_NODES, rest - 1, plan.dirichlet_alpha - 1)
        kept = found > 0
        return np.minimum((1 + x[kept]) / 2, plan.max_weight), found[kept] / found[kept].sum()


def replace_case(plan: ReleasePlan) -> ReplaceCase:
    shared = math.gcd(plan.records, plan.mixup_degree) if plan.kind.averages else 1
    degree, records = plan.mixup_degree // shared, plan.records // shared
    names = plan.classes if plan.centred else ("new", "old")
    reduced = replace(plan, dim=1, classes=names, records=records, mixup_degree=degree, record_rate=degree / records)
    assert math.isclose(reduced.record_rate, plan.record_rate, rel_tol=1e-12)
    assert reduced.row_query == plan.row_query
    return ReplaceCase(reduced, 1)
