"""From one record to its K views: self-augmentation, public examples and mixes of these (DP-Mix, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.training.examples import PublicData
from privmix.training.facts import ImageLayout
from privmix.training.views.augmentation import augment, check_channels
from privmix.training.views.config import ViewConfig
from privmix.training.views.mixup import MicrobatchMixer, Mixing
from privmix.training.views.record_random import RecordRandom

__all__ = ["MicrobatchMixer", "ViewPipeline"]


class ViewPipeline:
    """Makes the views and soft targets of a batch, record by record.

    Formal guarantees:
        * Own record only: a record's views and targets depend on that record, its seed and public data. Changing,
          adding or removing other records changes nothing: bit for bit on the CPU.
        * Chunks change nothing: a batch that is cut in pieces gives the same views.
        * Distinct pairs: a mix is of two different members of S.
        * Labels follow: a mix's target has the weights of its members' shares; base views have the record's label.
    """

    # layout: of images in the records' vectors; None: feature vectors, which are neither augmented nor cut.

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
        return self.config.views

    def __call__(self, x: Tensor, labels: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Return the views (b, K, C, H, W) or (b, K, d), in order base, pool, mixes, and targets (b, K, classes)."""
        # ``x`` is (b, d), or (b, V, d) with a bank, of which ``k_base`` views are drawn without replacement; b may be
        # 0. ``seeds`` (b,): one for each record and step. No message holds the number of records, private under Poisson
        # sampling.
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
        """Return the ``k_base`` views that come from the record alone."""
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
        """Raise :class:`InvalidInput` unless records of this shape, (d,) or (V, d) with a bank, can be viewed."""
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
