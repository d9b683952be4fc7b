"""What a data owner chooses, and the search for the noise that makes it private."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privmix.accounting import calibrate
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.release.count import small_query_noise
from privmix.release.moments_plan import MOMENTS, MomentsPlan
from privmix.release.plan import CENTRES, DESIGNS, NOISES, Plan, ReleasePlan
from privmix.release.pricing import budget_after_count

# Rows sampled from released moments: enough for any classifier, little enough to carry.
_SAMPLED_ROWS = 10_000


@dataclass(frozen=True)
class ReleaseConfig:
    """Every choice of a release but its noise. All of it is public.

    Attributes:
        records: the record count n, taken as public.
        dim: feature dimension d.
        classes: K class names.
        design: how rows are drawn: ``"poisson"`` (DPMix, DPFMix, NeuroMixGDP), ``"fixed"`` (DP-InstaHide, Lee et al.
            2019), ``"hierarchical"`` (NeuroMixGDP-HS), ``"classwise"`` (rows of one class, public labels),
            ``"random-weight"`` (Dirichlet weights on fixed-size draws) or ``"moments"`` (no rows are drawn: the
            records' second moments are released, and rows sampled from them).
        mixup_degree: expected number m of records in a row; for ``"fixed"`` and ``"random-weight"`` the exact number.
        rows: number T of rows released; None means n (K for full-batch class sums, at most 10,000 sampled rows for
            ``"moments"``).
        clip_norm: bound C_x on a record's feature norm.
        centre: ``"private"`` releases the mean first and mixes what is left; ``"none"`` mixes features as they are.
            None picks private for Gaussian and none for Laplace noise.
        residual_clip_norm: bound on a centred record's norm, as a share of ``clip_norm``.
        noise: ``"gaussian"``, or ``"laplace"`` with L1 clipping (``"fixed"`` only).
        label_noise_ratio: lambda = s_y / s_x (004, Lemma C.3).
        expected_classes: hierarchical only: expected number of classes in a row.
        full_batch: classwise only: one row a class that holds every record of it.
        dirichlet_alpha: random-weight only: concentration of the weights.
        max_weight: random-weight only: weights are cut to this, which bounds the sensitivity.
        label_share: moments only: share of the budget for X'Y; X'X gets the rest.
        count_share: moments only: share of the budget for the label sums, taken first.
        lattice_bits: features and noise are multiples of 2^-bits of the clipping bound. Fewer are used for moments
            of more than 2^23 records, so that their sums stay exact.
        records_noise_multiplier: where ``records`` is a private estimate: the noise of the query that made it, which
            the plan then pays for. See :func:`privmix.release.count.private_record_count`.

    Example:
        >>> config = ReleaseConfig(records=60_000, dim=784, classes=tuple("0123456789"), mixup_degree=64, centre="none")
        >>> plan = config.calibrate(epsilon=1.0, delta=1e-5)
        >>> plan.rows, round(plan.noise_multiplier, 3), plan.adjacency.value
        (60000, 1.187, 'add_remove')
    """

    records: int
    dim: int
    classes: tuple[str, ...]
    design: str = "poisson"
    mixup_degree: int = 64
    rows: int | None = None
    clip_norm: float = 1.0
    centre: str | None = None
    residual_clip_norm: float = 0.55
    noise: str = "gaussian"
    label_noise_ratio: float = 1.0
    expected_classes: float = 3.0
    full_batch: bool = False
    dirichlet_alpha: float = 1.0
    max_weight: float = 1.0
    label_share: float = 0.5
    count_share: float = 0.002
    lattice_bits: int = 15
    records_noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        check_integer("records", self.records, low=1)
        check_integer("dim", self.dim, low=1)
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise InvalidInput("classes", len(self.classes), "at least two class names, all different")
        check_choice("design", self.design, DESIGNS)
        check_choice("noise", self.noise, NOISES)
        check_integer("mixup_degree", self.mixup_degree, low=1, high=self.records)
        if self.rows is not None:
            check_integer("rows", self.rows, low=1)
        if self.centre is not None:
            check_choice("centre", self.centre, CENTRES)
        check_number("clip_norm", self.clip_norm, low=1e-9, high=1e9)
        check_number("residual_clip_norm", self.residual_clip_norm, low=0, high=2, low_open=True)
        check_number("label_noise_ratio", self.label_noise_ratio, low=1e-3, high=1e3)
        check_number("dirichlet_alpha", self.dirichlet_alpha, low=1e-3, high=1e6)
        check_number("max_weight", self.max_weight, low=0, high=1, low_open=True)
        for name in ("label_share", "count_share"):
            check_number(name, getattr(self, name), low=0, high=1, low_open=True, high_open=True)
        check_integer("lattice_bits", self.lattice_bits, low=8, high=24)
        self._check_combination()

    def _check_combination(self) -> None:
        if self.noise == "laplace" and self.design != "fixed":
            raise InvalidInput(
                "noise", self.noise, f"gaussian for design {self.design}; laplace goes with design fixed"
            )
        if self.noise == "laplace" and self.centre == "private":
            raise InvalidInput("centre", self.centre, "none with laplace noise")
        if self.records_noise_multiplier is not None:
            check_number("records_noise_multiplier", self.records_noise_multiplier, low=0, low_open=True)
            if self.design in ("fixed", "random-weight"):
                raise InvalidInput("design", self.design, "one whose sampling needs no exact record count")
        if self.full_batch and self.design != "classwise":
            raise InvalidInput("full_batch", self.full_batch, "False unless the design is classwise")
        if self.design == "hierarchical":
            check_number("expected_classes", self.expected_classes, low=0, high=len(self.classes), low_open=True)
        if self.design in ("hierarchical", "classwise") and not self.full_batch and self.record_rate > 1:
            raise InvalidInput(
                "mixup_degree",
                self.mixup_degree,
                f"a degree that keeps a record's rate within its class at most 1 (here {self.record_rate:.3g})",
            )

    @property
    def record_rate(self) -> float:
        """Probability that a record joins a row that may hold it; made of public numbers only."""
        overall = self.mixup_degree / self.records
        if self.design == "hierarchical":
            return overall * len(self.classes) / self.expected_classes
        if self.design == "classwise":
            return 1.0 if self.full_batch else overall * len(self.classes)
        return overall

    def calibrate(self, epsilon: float, delta: float) -> Plan:
        """Find the least noise that meets (``epsilon``, ``delta``) and return the plan. Reads no data.

        Args:
            epsilon: > 0.
            delta: in (0, 1); 0 asks for pure DP and needs Laplace noise.

        Raises:
            InvalidInput: a target out of range, or one that no noise meets.
        """
        check_number("epsilon", epsilon, low=0, low_open=True)
        pure = self.noise == "laplace" and delta == 0
        check_number("delta", delta, low=0, high=1, low_open=not pure, high_open=True)
        draft = self.with_noise(1.0, small_query_noise(epsilon))
        if self.records_noise_multiplier is not None:
            epsilon, delta = budget_after_count(self.records_noise_multiplier, epsilon, delta)
        found = calibrate(
            lambda s: self.with_noise(s, draft.centre_noise_multiplier).event_after_count,
            epsilon,
            delta,
            accountant="pure" if pure else "pld",
            adjacency=draft.adjacency,
        )
        return self.with_noise(found.noise_multiplier, draft.centre_noise_multiplier)

    def with_noise(self, noise_multiplier: float, centre_noise_multiplier: float | None = None) -> Plan:
        """The plan at a given joint noise multiplier s (and, with private centring, the mean query's)."""
        centre = self.centre or ("none" if self.noise == "laplace" else "private")
        if centre == "private" and centre_noise_multiplier is None:
            centre_noise_multiplier = small_query_noise(1.0)
        if self.design == MOMENTS:
            return self._moments(noise_multiplier, centre_noise_multiplier if centre == "private" else None)
        fallback = len(self.classes) if self.full_batch else self.records
        # Full-batch class sums hold about n/K records: the public divisor that makes them means.
        degree = max(1, round(self.records / len(self.classes))) if self.full_batch else self.mixup_degree
        return ReleasePlan(
            records=self.records,
            dim=self.dim,
            classes=self.classes,
            design=self.design,
            mixup_degree=degree,
            rows=self.rows or fallback,
            record_rate=self.record_rate,
            class_rate=self.expected_classes / len(self.classes) if self.design == "hierarchical" else None,
            clip_norm=float(self.clip_norm),
            residual_clip_norm=self._residual if centre == "private" else None,
            noise=self.noise,
            noise_multiplier=float(noise_multiplier),
            centre_noise_multiplier=centre_noise_multiplier if centre == "private" else None,
            label_noise_ratio=float(self.label_noise_ratio),
            dirichlet_alpha=float(self.dirichlet_alpha) if self.design == "random-weight" else None,
            max_weight=float(self.max_weight) if self.design == "random-weight" else None,
            lattice_bits=self.lattice_bits,
            records_noise_multiplier=self.records_noise_multiplier,
        )

    def _moments(self, noise_multiplier: float, centre_noise_multiplier: float | None) -> MomentsPlan:
        # A sum of n products of 2 * bits bits must stay below 2^53; one bit is left for a declared count being low.
        bits = min(self.lattice_bits, (52 - self.records.bit_length()) // 2)
        # Much noise needs no fine grid, and must stay within what float64 counts exactly.
        most = MomentsPlan.largest_noise(self.label_share, self.count_share) / noise_multiplier
        bits = max(8, min(bits, math.floor(math.log(most, 4)) if most > 1 else 0))
        return MomentsPlan(
            records=self.records,
            dim=self.dim,
            classes=self.classes,
            design=MOMENTS,
            rows=self.rows or min(self.records, _SAMPLED_ROWS),
            clip_norm=float(self.clip_norm),
            residual_clip_norm=None if centre_noise_multiplier is None else self._residual,
            noise_multiplier=float(noise_multiplier),
            centre_noise_multiplier=centre_noise_multiplier,
            lattice_bits=bits,
            records_noise_multiplier=self.records_noise_multiplier,
            label_share=float(self.label_share),
            count_share=float(self.count_share),
        )

    @property
    def _residual(self) -> float:
        return float(self.residual_clip_norm * self.clip_norm)
