"""The papers' views, as presets."""

from __future__ import annotations

from typing import ClassVar

from privmix.training.views.pipeline import ViewConfig
from privmix.training.views.preset import PRESETS, Preset


@PRESETS.register
class Plain(Preset):
    """See :meth:`ViewConfig.plain`."""

    name: ClassVar[str] = "plain"

    @classmethod
    def views(cls) -> ViewConfig:
        return ViewConfig.plain()


@PRESETS.register
class SelfAug(Preset):
    """See :meth:`ViewConfig.self_aug`."""

    name: ClassVar[str] = "self-aug"
    words: ClassVar[str] = "De et al."

    @classmethod
    def views(cls) -> ViewConfig:
        return ViewConfig.self_aug()


@PRESETS.register
class DpMixSelf(Preset):
    """See :meth:`ViewConfig.dp_mix_self`."""

    name: ClassVar[str] = "dp-mix-self"
    words: ClassVar[str] = "DP-Mix"

    @classmethod
    def views(cls) -> ViewConfig:
        return ViewConfig.dp_mix_self()


@PRESETS.register
class DpMixDiff(Preset):
    """See :meth:`ViewConfig.dp_mix_diff`."""

    name: ClassVar[str] = "dp-mix-diff"
    words: ClassVar[str] = "DP-Mix, with `pool`"

    @classmethod
    def views(cls) -> ViewConfig:
        return ViewConfig.dp_mix_diff()


@PRESETS.register
class PureDiff(Preset):
    """See :meth:`ViewConfig.pure_diff`."""

    name: ClassVar[str] = "pure-diff"
    words: ClassVar[str] = "with `pool`"

    @classmethod
    def views(cls) -> ViewConfig:
        return ViewConfig.pure_diff()
