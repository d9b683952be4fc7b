"""From one record to its K views: self-augmentation, public examples and mixes of these (DP-Mix, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.training.examples import PublicData
from privmix.training.layout import ImageLayout
from privmix.training.views.augment import SELF_AUGMENTATIONS, augmentations_of
from privmix.training.views.augmentation import Augmentation, augment, check_augmentations, check_channels
from privmix.training.views.mixup import MicrobatchMixer, Mixing
from privmix.training.views.record_random import RecordRandom

__all__ = ["MicrobatchMixer", "ViewConfig", "ViewPipeline"]


@dataclass(frozen=True)
class ViewConfig:
    """Which views a record gives. All of them share one clipped gradient, so they cost no privacy.

    S holds ``k_base`` augmentations of the record and ``k_diff`` public examples; the views are S and ``k_self`` mixes
    of two different members of S.

    Attributes:
        k_base: K_BASE, augmented copies of the record.
        k_self: K_SELF, mixes.
        k_diff: K_DIFF, examples drawn from the pool without replacement, as they are.
        augmentations: applied in this order to each of the ``k_base`` copies; images only.
        mixing: ``"mixup"``, or ``"cutmix"`` for images.
        alpha: weights of the mixes are Beta(alpha, alpha).
        keep_first: leave the first of the ``k_base`` copies as it is.

    Example:
        >>> ViewConfig.dp_mix_diff().views
        36
        >>> ViewConfig(k_base=1, k_self=2)
        Traceback (most recent call last):
            ...
        privmix.errors.InvalidInput: k_self: got 2; allowed: 0, or `k_base` + `k_diff` >= 2: a mix needs two views
    """

    k_base: int = 1
    k_self: int = 0
    k_diff: int = 0
    augmentations: tuple[Augmentation, ...] = ()
    mixing: str = "mixup"
    alpha: float = 0.2
    keep_first: bool = False

    def __post_init__(self) -> None:
        for name in ("k_base", "k_self", "k_diff"):
            check_integer(name, getattr(self, name), low=0)
        Mixing(self.mixing, self.alpha)
        check_augmentations(self.augmentations)
        if self.k_base + self.k_diff == 0:
            raise InvalidInput("k_base, k_diff", (0, 0), "at least one view")
        if self.k_self > 0 and self.k_base + self.k_diff < 2:
            raise InvalidInput("k_self", self.k_self, "0, or `k_base` + `k_diff` >= 2: a mix needs two views")

    @classmethod
    def from_fingerprint(cls, settings: Mapping[str, Any]) -> ViewConfig:
        """The views that :meth:`fingerprint` described.

        Raises:
            InvalidInput: these are not the settings of views.
        """
        try:
            return cls(**{**settings, "augmentations": augmentations_of(settings["augmentations"])})
        except (TypeError, KeyError):
            raise InvalidInput("views", type(settings).__name__, "settings of views of this version") from None

    @classmethod
    def plain(cls) -> ViewConfig:
        """The record itself: DP-SGD of Abadi et al. (2016)."""
        return cls()

    @classmethod
    def self_aug(cls, k: int = 16, augmentations: Sequence[Augmentation] = SELF_AUGMENTATIONS) -> ViewConfig:
        """Self-Aug: ``k`` augmentations of the record (De et al. 2022)."""
        return cls(k_base=k, augmentations=tuple(augmentations))

    @classmethod
    def dp_mix_self(
        cls, k_base: int = 16, k_self: int = 16, augmentations: Sequence[Augmentation] = SELF_AUGMENTATIONS
    ) -> ViewConfig:
        """DP-MIX_SELF (Bao et al. 2023, sections 3.1 and 6.2): augmentations of the record, and mixes of these.

        Labels are those of the record throughout.
        """
        return cls(k_base, k_self, 0, tuple(augmentations))

    @classmethod
    def dp_mix_diff(
        cls,
        k_base: int = 16,
        k_self: int = 18,
        k_diff: int = 2,
        augmentations: Sequence[Augmentation] = SELF_AUGMENTATIONS,
    ) -> ViewConfig:
        """DP-MIX_DIFF (DP-Mix, sections 3.1 and 6.5): public examples take part in the mixes and are views too."""
        return cls(k_base, k_self, k_diff, tuple(augmentations))

    @classmethod
    def pure_diff(cls, k_diff: int = 18, k_self: int = 18) -> ViewConfig:
        """Pure-DP-MIX_DIFF (Bao et al. 2023, appendix B.3 and Table 12): public examples and their mixes only.

        No view holds anything of the record, neither pixels nor label. What is left of it is that it was sampled: each
        sampled record stands for one random draw of public views. Training without private data, on such draws and
        without noise, would learn the same or better, so this is a baseline to compare with and nothing to use.
        """
        return cls(0, k_self, k_diff)

    @property
    def views(self) -> int:
        """K, the number of views of a record."""
        return self.k_base + self.k_self + self.k_diff

    def fingerprint(self) -> dict[str, Any]:
        """Every setting as JSON values: a run resumes only with the same."""
        return {
            "k_base": self.k_base,
            "k_self": self.k_self,
            "k_diff": self.k_diff,
            "augmentations": [augmentation.spec() for augmentation in self.augmentations],
            "mixing": self.mixing,
            "alpha": self.alpha,
            "keep_first": self.keep_first,
        }


class ViewPipeline:
    """Makes the views and soft targets of a batch, record by record.

    Formal guarantees:
        * Own record only: a record's views and targets depend on that record, its seed and public data. Changing,
          adding or removing other records changes nothing: bit for bit on the CPU.
        * Chunks change nothing: a batch that is cut in pieces gives the same views.
        * Distinct pairs: a mix is of two different members of S.
        * Labels follow: a mix's target has the weights of its members' shares; base views have the record's label.

    Args:
        config: which views.
        layout: how the records' vectors are images; None: they are feature vectors, which can be copied, drawn from a
            bank and mixed, but neither augmented nor cut.
        classes: number of classes.
        pool: public examples; needed just where ``k_diff > 0``.

    Raises:
        InvalidInput: these do not fit together.

    Example:
        >>> pipeline = ViewPipeline(ViewConfig.dp_mix_self(4, 2), ImageLayout(1, 8, 8), classes=10)
        >>> views, targets = pipeline(torch.rand(3, 64), torch.tensor([0, 1, 2]), torch.tensor([5, 6, 7]))
        >>> tuple(views.shape), tuple(targets.shape)
        ((3, 6, 1, 8, 8), (3, 6, 10))
    """

    def __init__(
        self, config: ViewConfig, layout: ImageLayout | None = None, *, classes: int, pool: PublicData | None = None
    ) -> None:
        self.config, self.layout, self.pool = config, layout, pool
        self.classes = check_integer("classes", classes, low=1)
        self._mixing = Mixing(config.mixing, config.alpha)
        if layout is None:
            _refuse_images_only(config)
        else:
            check_channels(config.augmentations, layout.channels)
        if (pool is None) != (config.k_diff == 0):
            allowed = "none: `k_diff` is 0" if pool is not None else f"a pool to draw `k_diff` = {config.k_diff} from"
            raise InvalidInput("pool", "a pool" if pool is not None else None, allowed)
        if pool is not None:
            pool.check(classes=classes, layout=layout)
            if pool.size < config.k_diff:
                raise InvalidInput("k_diff", config.k_diff, f"at most {pool.size}, the number of the pool's examples")

    @property
    def views(self) -> int:
        """K."""
        return self.config.views

    def __call__(self, x: Tensor, labels: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """The views of b records; b may be 0.

        Args:
            x: (b, d), or (b, V, d) with a bank of V precomputed views of each record, of which ``k_base`` are drawn
                without replacement.
            labels: (b,) int64.
            seeds: (b,) int64, one for each record and step.

        Returns:
            Views (b, K, C, H, W) with a layout and (b, K, d) without, in the order base, pool, mixes; targets
            (b, K, classes).

        Raises:
            InvalidInput: wrong shapes, or fewer than ``k_base`` views in the bank. No message holds the number of
                records, which is private where sampling is Poisson.
        """
        self._check(x, labels, seeds)
        config, random = self.config, RecordRandom(seeds)
        members = self._base(x, random)
        targets = functional.one_hot(labels, self.classes).to(x.dtype)
        targets = targets[:, None].expand(-1, config.k_base, -1)
        if self.pool is not None:
            chosen = random.subset("pool", self.pool.size, config.k_diff)
            examples, their_targets = self.pool.take(chosen)
            members = torch.cat([members, self._shaped(examples.to(x.dtype))], dim=1)
            targets = torch.cat([targets, their_targets.to(x.dtype)], dim=1)
        if config.k_self > 0:
            mixed, mixed_targets = self._mixing(members, targets, config.k_self, random.derive("mix"))
            members, targets = torch.cat([members, mixed], dim=1), torch.cat([targets, mixed_targets], dim=1)
        return members, targets

    def _base(self, x: Tensor, random: RecordRandom) -> Tensor:
        """The ``k_base`` views that come from the record alone."""
        config = self.config
        if x.dim() == 3:
            chosen = random.subset("bank", x.shape[1], config.k_base)
            x = x[torch.arange(len(x), device=x.device)[:, None], chosen]
        else:
            x = x[:, None].expand(-1, config.k_base, -1)
        views = self._shaped(x)
        if not config.augmentations or config.k_base == 0:
            return views
        changed = augment(views, config.augmentations, random.derive("augment"))
        return torch.cat([views[:, :1], changed[:, 1:]], dim=1) if config.keep_first else changed

    def _shaped(self, x: Tensor) -> Tensor:
        return x if self.layout is None else self.layout.to_images(x)

    def check_records(self, shape: Sequence[int]) -> None:
        """Raise :class:`InvalidInput` unless records of this shape, (d,) or (V, d) with a bank, can be viewed.

        For callers who want to know before they have a batch; every call checks it as well.
        """
        if len(shape) not in (1, 2):
            raise InvalidInput("shape of a record", tuple(shape), "(d,), or (V, d) with a bank of V views")
        if self.layout is not None and shape[-1] != self.layout.dim:
            raise InvalidInput("features", shape[-1], f"{self.layout.dim}, the pixels of an image")
        if self.pool is not None:
            self.pool.check_dim(shape[-1])
        config = self.config
        if len(shape) == 2 and shape[0] < config.k_base:
            raise InvalidInput("views in the bank", shape[0], f"at least k_base = {config.k_base}")
        if len(shape) == 1 and config.k_self > 0 and config.k_diff == 0 and not config.augmentations:
            allowed = "0, or augmentations, a bank of views or k_diff > 0: mixing equal copies of a record does nothing"
            raise InvalidInput("k_self", config.k_self, allowed)

    def _check(self, x: Tensor, labels: Tensor, seeds: Tensor) -> None:
        if not x.is_floating_point():
            raise InvalidInput("records", str(x.dtype), "floats")
        self.check_records(x.shape[1:])
        if labels.shape != x.shape[:1] or labels.dtype != torch.int64 or seeds.shape != x.shape[:1]:
            raise InvalidInput("labels and seeds", WITHHELD, "one int64 label and one int64 seed a record")


def _refuse_images_only(config: ViewConfig) -> None:
    if config.augmentations:
        names = ",".join(augmentation.name for augmentation in config.augmentations)
        raise InvalidInput("augmentations", names, "none: the records are feature vectors, not images")
    if config.mixing == "cutmix":
        raise InvalidInput("mixing", config.mixing, "mixup: the records are feature vectors, not images")
