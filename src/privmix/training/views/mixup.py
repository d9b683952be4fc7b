"""Mixup and CutMix of the members of one small set, for many sets at once, and the naive mixup of microbatches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.fields import Positive, check_fields
from privmix.training.facts import ImageLayout
from privmix.training.views.config import MixingKind
from privmix.training.views.record_random import RecordRandom
from privmix.training.views.transforms import box_mask


@dataclass(frozen=True)
class Mixing:
    """``"mixup"`` (Zhang et al. 2018) or ``"cutmix"`` (Yun et al. 2019, images only), weights Beta(alpha, alpha)."""

    kind: MixingKind = "mixup"
    alpha: Positive = 0.2

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, members: Tensor, targets: Tensor, count: int, random: RecordRandom) -> tuple[Tensor, Tensor]:
        """Mix ``count`` pairs of members (b, s, ...), s >= 2, within each of b sets, and their targets.

        Formal guarantees:
            * Own set only: a set's mixes depend on its members, their targets and its seed.
            * Distinct: no member is mixed with itself; all ordered pairs are equally likely.
            * Labels follow: a mix's target has the weights of its members' shares in it.
        """
        first, second = random.pairs("pair", members.shape[1], count)
        weight = random.beta("weight", self.alpha, count)
        ours, theirs = _pick(members, first), _pick(members, second)
        if self.kind == "mixup":
            mixed = _weigh(ours, theirs, weight)
        else:
            box = _boxes(weight, (members.shape[-2], members.shape[-1]), random)
            mixed = torch.where(box[:, :, None], theirs, ours)
            # The edge may have cut the box: what counts is the area that the second member got.
            area = box.sum(dim=(-2, -1)).to(torch.float64) / (members.shape[-2] * members.shape[-1])
            weight = (1.0 - area).to(weight.dtype)
        return mixed, _weigh(_pick(targets, first), _pick(targets, second), weight)


@dataclass(frozen=True)
class MicrobatchMixer:
    """Mixup among the records of a microbatch: the approach that Bao et al. 2023 (section 3 and Table 1) warn of.

    A mix holds two records, so they share one clipped gradient. Adding or removing a record changes a whole group's
    gradient, and the sensitivity of the clipped sum is 2C rather than C. It is a baseline.

    Formal guarantees:
        * Own group only: views depend on the group's records and its seed.
        * Distinct: pairs are of different records; a group of one record stays itself.
    """

    # mixes: mixed views a group. keep: whether the records are views too (Bao et al. 2023 try both).

    classes: int
    layout: ImageLayout | None = None
    mixes: int = 1
    keep: bool = True
    mixing: Mixing = Mixing()

    def __post_init__(self) -> None:
        check_integer("classes", self.classes, low=1)
        check_integer("mixes of a microbatch", self.mixes, low=1)
        _check_kind(self.mixing, self.layout)

    def __call__(self, x: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """(g, d) records and (g,) labels of a group -> K views and targets; K is ``mixes``, plus g where kept."""
        # 1 in a group of one record.
        if x.dim() != 2 or len(x) == 0 or labels.shape != x.shape[:1]:
            raise InvalidInput("microbatch", WITHHELD, "at least one vector, and one label for each")
        images = x if self.layout is None else self.layout.to_images(x)
        targets = functional.one_hot(labels, self.classes).to(x.dtype)
        if len(x) == 1:
            return images, targets
        random = RecordRandom(torch.tensor([seed], dtype=torch.int64, device=x.device)).derive("microbatch")
        mixed, mixed_targets = (part[0] for part in self.mixing(images[None], targets[None], self.mixes, random))
        if not self.keep:
            return mixed, mixed_targets
        return torch.cat([images, mixed]), torch.cat([targets, mixed_targets])


def _check_kind(mixing: Mixing, layout: ImageLayout | None) -> None:
    if mixing.kind == "cutmix" and layout is None:
        raise InvalidInput("mixing", mixing.kind, "mixup: feature vectors have no boxes to cut")


def _pick(members: Tensor, index: Tensor) -> Tensor:
    """members[i, index[i]] for (b, count) indices."""
    return members[torch.arange(len(members), device=members.device)[:, None], index]


def _weigh(ours: Tensor, theirs: Tensor, weight: Tensor) -> Tensor:
    share = weight.to(ours.dtype)[(...,) + (None,) * (ours.dim() - 2)]
    # Not lerp: it may round otherwise at the end of a tensor, and a view would depend on its place in the batch.
    return ours * share + theirs * (1.0 - share)


def _boxes(weight: Tensor, shape: tuple[int, int], random: RecordRandom) -> Tensor:
    """(b, count, H, W) masks of boxes with area 1 - weight before the edge cuts them."""
    side = torch.sqrt(1.0 - weight.to(torch.float64))
    row = random.integers("row", shape[0], weight.shape[1])
    column = random.integers("column", shape[1], weight.shape[1])
    height, width = ((side * length).round().to(torch.int64) for length in shape)
    return box_mask(shape, row, column, height, width)
