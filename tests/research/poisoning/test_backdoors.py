"""Triggers lie where they belong, poisons are what their papers say, and strong settings succeed."""

import numpy as np
import pytest

from privmix.research.poisoning.base import Attack
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.poisons.clean_label import CleanLabelBackdoor
from privmix.research.poisoning.poisons.hidden_trigger import HiddenTrigger
from privmix.research.poisoning.poisons.label_flips import LabelFlips
from privmix.research.poisoning.poisons.patch import PatchBackdoor
from privmix.research.poisoning.poisons.triggers import Trigger, side_of
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.victims.ordinary import Victim
from tests.research.poisoning.scenes import QUICK, extractor, needs_toolbox, scene


def crafted(attack: Attack, records: int | float, number: int = 0) -> tuple[PoisoningScene, Poisoned]:
    """A trial among 400 records, of which so many are poisoned, or this share of the class that it poisons."""
    drawn = scene(transfer=attack.setting == "transfer", number=number, records=400)
    if isinstance(records, float):
        own = drawn.train.of_class(drawn.source if isinstance(attack, LabelFlips) else drawn.wanted)
        records = int(records * len(own))
    threat = attack.threat(drawn, records, knows_defence=False)
    made = attack.craft(drawn, threat, None)
    threat.check(drawn.train, made)
    assert len(made.indices) == records
    return drawn, made


def share(drawn: PoisoningScene, records: VictimImages, goals: VictimImages) -> float:
    """Of the goals that a victim takes for what the attacker wants."""
    return float((drawn.victim.fit(records, seed=5).predict(goals.pixels) == goals.labels).mean())


def test_a_patch_on_a_whole_class_is_learnt() -> None:
    trials = [crafted(PatchBackdoor(4, "fixed"), 1.0, number) for number in range(2)]
    # The base rate is that of victims with the patch and a network that never saw one.
    without = np.mean([share(drawn, drawn.train, made.goals) for drawn, made in trials])
    assert without < 0.3 < 0.6 < np.mean([share(drawn, made.records, made.goals) for drawn, made in trials])


def test_hidden_poisons_have_the_features_of_triggered_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privmix.research.poisoning.poisons.hidden_trigger.BLOCK", 5)
    drawn, made = crafted(HiddenTrigger(radius=96, steps=60), 12)
    side = side_of(0, drawn.train.shape)
    trigger = Trigger.draw(drawn, side, margin=5 * side // 8, purpose="hidden-trigger")
    held = drawn.train.pixels[drawn.train.of_class(drawn.source)]
    wanted = extractor().features(trigger.on(held))

    def nearest(images: VictimImages) -> float:
        found = extractor().features(images.pixels[made.indices])
        return float(np.linalg.norm(found[:, None] - wanted[None], axis=2).min(axis=1).mean())

    assert nearest(made.records) < 0.6 * nearest(drawn.train)


def test_clean_label_poisons_are_hard_to_recognise() -> None:
    needs_toolbox()
    drawn, made = crafted(CleanLabelBackdoor(radius=96), 12)
    other = Victim(QUICK).fit(drawn.train, seed=99)
    right = other.predict(made.records.pixels[made.indices]) == drawn.wanted
    assert right.mean() < 0.5
    assert (other.predict(drawn.train.pixels[made.indices]) == drawn.wanted).mean() > 0.9


def test_half_a_class_flipped_by_nearness_turns_the_image() -> None:
    trials = [crafted(LabelFlips(), 0.5, number) for number in range(3)]
    assert sum(share(drawn, made.records, made.goals) == 1 for drawn, made in trials) >= 2
