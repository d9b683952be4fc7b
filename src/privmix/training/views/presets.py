"""The papers' views, as presets: each is described by its class method of :class:`ViewConfig`."""

from __future__ import annotations

from typing import ClassVar

from privmix.training.views.config import PRESETS, Preset, ViewConfig


@PRESETS.register
class Plain(Preset):
    name: ClassVar[str] = "plain"
    views = ViewConfig.plain


@PRESETS.register
class SelfAug(Preset):
    name: ClassVar[str] = "self-aug"
    words: ClassVar[str] = "De et al."
    views = ViewConfig.self_aug


@PRESETS.register
class DpMixSelf(Preset):
    name: ClassVar[str] = "dp-mix-self"
    words: ClassVar[str] = "DP-Mix"
    views = ViewConfig.dp_mix_self


@PRESETS.register
class DpMixDiff(Preset):
    name: ClassVar[str] = "dp-mix-diff"
    words: ClassVar[str] = "DP-Mix, with `pool`"
    views = ViewConfig.dp_mix_diff


@PRESETS.register
class PureDiff(Preset):
    name: ClassVar[str] = "pure-diff"
    words: ClassVar[str] = "with `pool`"
    views = ViewConfig.pure_diff
