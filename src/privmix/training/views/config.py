"""Options of views: which a record gives, by number or by the name of a preset; importing this takes no time."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

from privmix._registry import Registry
from privmix.errors import InvalidInput
from privmix.fields import Choice, Coded, Positive, Size, check_fields
from privmix.options import described, option

if TYPE_CHECKING:
    from privmix.training.views.augmentation import Augmentation

    Augmentations: TypeAlias = tuple[Augmentation, ...]
else:
    Augmentations = tuple

MIXINGS: Final = ("mixup", "cutmix")
MixingKind = Annotated[str, Choice(*MIXINGS)]


def _from_descriptions(specs: Sequence[Mapping[str, Any]]) -> Augmentations:
    from privmix.training.views.augment import augmentations_of

    return augmentations_of(specs)


def read_augmentations(given: str | Augmentations) -> Augmentations:
    """Augmentations from their names, with ``+`` between them, or as they are."""
    from privmix.training.views.augment import parse_augmentations

    return parse_augmentations(given.replace("+", ",")) if isinstance(given, str) else given


STORED: Final = Coded(lambda augmentations: [one.spec() for one in augmentations], _from_descriptions)
"""Augmentations in JSON: their descriptions."""


def self_augmentations() -> Augmentations:
    """Return the augmentations of De et al. (2022): the default where views need some and none are named."""
    from privmix.training.views.augment import SELF_AUGMENTATIONS

    return SELF_AUGMENTATIONS


def check_augmentations(augmentations: Augmentations) -> None:
    """Raise :class:`InvalidInput` where a kind of augmentation is there twice."""
    if augmentations:
        from privmix.training.views import augmentation

        augmentation.check_augmentations(augmentations)


@described
@dataclass(frozen=True)
class ViewConfig:
    """The views of a record. All of them share one clipped gradient, so they cost no privacy.

    S holds ``k_base`` augmentations of the record and ``k_diff`` public examples; the views are S and ``k_self`` mixes
    of two different members of S. Augmentations are applied in their order; examples are drawn without replacement.
    """

    k_base: Size = option(1, "Number of augmented copies of a record. Default: by NAME.")
    k_self: Size = option(0, "Number of mixes of two views. Default: by NAME.")
    k_diff: Size = option(0, "Number of public examples from `pool`. Default: by NAME.")
    augmentations: Annotated[Augmentations, STORED] = option(
        (), "Augmentations: flip+crop, others, or none. Default: flip+crop for such views.", read=read_augmentations
    )
    mixing: MixingKind = option("mixup", "Mixing of images: mixup or cutmix.")
    alpha: Positive = option(0.2, "Alpha of the mixing weights, Beta(alpha, alpha).")
    keep_first: bool = option(False, "Leave the first augmented copy unchanged.")

    def __post_init__(self) -> None:
        check_fields(self)
        check_augmentations(self.augmentations)
        if self.k_base + self.k_diff == 0:
            raise InvalidInput("k_base, k_diff", (0, 0), "at least one view")
        if self.k_self > 0 and self.k_base + self.k_diff < 2:
            raise InvalidInput("k_self", self.k_self, "0, or `k_base` + `k_diff` >= 2: a mix needs two views")

    @classmethod
    def named(cls, name: str) -> ViewConfig:
        """Return a preset by its name, such as self-aug or dp-mix-self; raise for an unknown one."""
        return PRESETS[name].views()

    @classmethod
    def plain(cls) -> ViewConfig:
        """Return the record itself: DP-SGD of Abadi et al. (2016)."""
        return cls()

    @classmethod
    def self_aug(cls, k: int = 16, augmentations: Sequence[Augmentation] | None = None) -> ViewConfig:
        """Self-Aug: ``k`` augmentations of the record (De et al. 2022)."""
        return cls(k_base=k, augmentations=_or_usual(augmentations))

    @classmethod
    def dp_mix_self(
        cls, k_base: int = 16, k_self: int = 16, augmentations: Sequence[Augmentation] | None = None
    ) -> ViewConfig:
        """DP-MIX_SELF (Bao et al. 2023, sections 3.1, 6.2): augmentations of a record and their mixes, its label."""
        return cls(k_base, k_self, 0, _or_usual(augmentations))

    @classmethod
    def dp_mix_diff(
        cls, k_base: int = 16, k_self: int = 18, k_diff: int = 2, augmentations: Sequence[Augmentation] | None = None
    ) -> ViewConfig:
        """DP-MIX_DIFF (DP-Mix, sections 3.1 and 6.5): public examples take part in the mixes and are views too."""
        return cls(k_base, k_self, k_diff, _or_usual(augmentations))

    @classmethod
    def pure_diff(cls, k_diff: int = 18, k_self: int = 18) -> ViewConfig:
        """Pure-DP-MIX_DIFF (Bao et al. 2023, appendix B.3, Table 12): public examples and mixes only."""
        # No view holds anything of the record; only its sampling remains. Training on such draws without noise would
        # learn the same or better, so this is a baseline only.
        return cls(0, k_self, k_diff)

    @property
    def views(self) -> int:
        """K, the number of views of a record."""
        return self.k_base + self.k_self + self.k_diff


def _or_usual(augmentations: Sequence[Augmentation] | None) -> Augmentations:
    return self_augmentations() if augmentations is None else tuple(augmentations)


class Preset(ABC):
    """Views by the name in option ``views``, known by ``PRESETS.register``; help adds ``words`` in brackets."""

    name: ClassVar[str]
    words: ClassVar[str] = ""

    views: ClassVar[Callable[[], ViewConfig]]


PRESETS: Final[Registry[type[Preset]]] = Registry("views", "privmix.training.views", "privmix.views")


@PRESETS.register
class Plain(Preset):
    name: ClassVar[str] = "plain"
    views: ClassVar[Callable[[], ViewConfig]] = ViewConfig.plain


@PRESETS.register
class SelfAug(Preset):
    name: ClassVar[str] = "self-aug"
    words: ClassVar[str] = "De et al."
    views: ClassVar[Callable[[], ViewConfig]] = ViewConfig.self_aug


@PRESETS.register
class DpMixSelf(Preset):
    name: ClassVar[str] = "dp-mix-self"
    words: ClassVar[str] = "DP-Mix"
    views: ClassVar[Callable[[], ViewConfig]] = ViewConfig.dp_mix_self


@PRESETS.register
class DpMixDiff(Preset):
    name: ClassVar[str] = "dp-mix-diff"
    words: ClassVar[str] = "DP-Mix, with `pool`"
    views: ClassVar[Callable[[], ViewConfig]] = ViewConfig.dp_mix_diff


@PRESETS.register
class PureDiff(Preset):
    name: ClassVar[str] = "pure-diff"
    words: ClassVar[str] = "with `pool`"
    views: ClassVar[Callable[[], ViewConfig]] = ViewConfig.pure_diff
