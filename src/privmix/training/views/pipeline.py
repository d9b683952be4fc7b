"""From one record to its K views: self-augmentation and mixes (DP-Mix, Bao et al. 2023), or a bank of views."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from privmix.data.dataset import Source
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.features.base import Extractor
from privmix.features.identity import unit_range
from privmix.features.projected import Continued
from privmix.fields import Positive, check_fields
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.training.examples import ImageLayout, PublicData
from privmix.training.views.augmentation import Augmentation, RecordRandom, augment, box_mask
from privmix.training.views.config import MixingKind, ViewConfig


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
            # Boxes with area 1 - weight before the edge cuts them.
            shape, side = (members.shape[-2], members.shape[-1]), torch.sqrt(1.0 - weight.to(torch.float64))
            row, column = random.integers("row", shape[0], count), random.integers("column", shape[1], count)
            height, width = ((side * length).round().to(torch.int64) for length in shape)
            box = box_mask(shape, row, column, height, width)
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

    def __call__(self, x: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """(g, d) records and (g,) labels of a group -> K views and targets; K is ``mixes``, plus g where kept."""
        # 1 in a group of one record.
        images = x if self.layout is None else self.layout.to_images(x)
        targets = functional.one_hot(labels, self.classes).to(x.dtype)
        if len(x) == 1:
            return images, targets
        random = RecordRandom(torch.tensor([seed], dtype=torch.int64, device=x.device)).derive("microbatch")
        mixed, mixed_targets = (part[0] for part in Mixing()(images[None], targets[None], self.mixes, random))
        if not self.keep:
            return mixed, mixed_targets
        return torch.cat([images, mixed]), torch.cat([targets, mixed_targets])


def _pick(members: Tensor, index: Tensor) -> Tensor:
    """members[i, index[i]] for (b, count) indices."""
    return members[torch.arange(len(members), device=members.device)[:, None], index]


def _weigh(ours: Tensor, theirs: Tensor, weight: Tensor) -> Tensor:
    share = weight.to(ours.dtype)[(...,) + (None,) * (ours.dim() - 2)]
    # Not lerp: it may round otherwise at the end of a tensor, and a view would depend on its place in the batch.
    return ours * share + theirs * (1.0 - share)


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
        self.config: Final = config
        self.layout: Final = layout
        self.pool: Final = pool
        self.classes: Final = check_integer("classes", classes, low=1)
        self._mixing = Mixing(config.mixing, config.alpha)
        check_images(layout, config.augmentations, config.mixing, "", "the records are feature vectors")
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


def check_images(
    layout: ImageLayout | None, augmentations: Sequence[Augmentation], mixing: str | None, of: str, why: str
) -> None:
    """Raise :class:`InvalidInput` where views are made of images, and there are none, or with other channels."""
    if layout is not None:
        for augmentation in augmentations:
            augmentation.check_channels(layout.channels)
    elif augmentations:
        names = ",".join(augmentation.name for augmentation in augmentations)
        raise InvalidInput(f"augmentations{of}", names, f"none: {why}, not images")
    elif mixing == "cutmix":
        raise InvalidInput(f"mixing{of}", mixing, f"mixup: {why}, not images")


# Extracting every view of every step again would cost more than all of the training; a step draws from the bank.


class ViewBank(Continued):
    """The features of ``views`` augmented copies of each image, one after the other; x (n, V * d).

    Formal guarantees:
        * Own record only: a record's views depend on that record and its own seed.
        * Secret seeds: a record's seed is drawn from the run's streams, not from its place in the dataset. So the views
          of all other records have one law whether it is there or not.
        * Runs that share a store compose: given the seeds, which no record decides, each has its own guarantee.
    """

    step: ClassVar[int] = 256

    def __init__(
        self, inner: Extractor, changes: Sequence[Augmentation], views: int, streams: SecretStreams, seed: int | None
    ) -> None:
        # Not in the class: a name there would register it for `features`.
        vars(self)["name"] = f"views, {inner.name}"
        self._inner, self._augmentations, self._views = inner, tuple(changes), views
        self._streams, self._seed = streams, seed

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        return self._views * self._inner.output_dim(input_shape)

    def spec(self) -> dict[str, Any]:
        """Identify a store: by the seed too, so that views by a known seed never enter a private run."""
        changes = [one.spec() for one in self._augmentations]
        return {**self._inner.spec(), "bank": {"views": self._views, "augmentations": changes, "seed": self._seed}}

    def rows(self, source: Source, first: int = 0) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        tiles = range(-(-source.schema.records // RECORD_TILE))
        drawn = [self._streams.generator("bank seeds", tile).integers(2**63, size=RECORD_TILE) for tile in tiles]
        seeds = torch.from_numpy(np.concatenate(drawn)[first:])
        layout, shape = ImageLayout.of_input(source.schema.input_shape), source.schema.input_shape
        for batch in source.batches(self.step, first):
            count = len(batch.y)
            images = torch.from_numpy(unit_range(batch.x)).reshape(count, -1)
            copies = layout.to_images(images)[:, None].expand(-1, self._views, -1, -1, -1)
            changed = augment(copies, self._augmentations, RecordRandom(seeds[:count]))
            inputs = changed.movedim(-3, -1).reshape(-1, *shape).numpy()
            yield self._inner.transform(inputs).reshape(count, -1), batch.y
            seeds = seeds[count:]

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        raise NotImplementedError("views need their seeds: see `rows`")
