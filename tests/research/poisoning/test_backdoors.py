"""Triggers lie where they belong, poisons are what their papers say, and strong settings succeed."""

from __future__ import annotations

import numpy as np
import pytest

from privmix.research.poisoning.base import ATTACKS, Attack
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.poisons.clean_label import CleanLabelBackdoor
from privmix.research.poisoning.poisons.hidden_trigger import HiddenTrigger
from privmix.research.poisoning.poisons.label_flips import LabelFlips
from privmix.research.poisoning.poisons.patch import PatchBackdoor
from privmix.research.poisoning.poisons.triggers import Trigger, side_of
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.victims.ordinary import Victim
from tests.refusals import refuses
from tests.research.poisoning.scenes import QUICK, extractor, needs_toolbox, scene


def drawn_for(attack: Attack, number: int = 0) -> PoisoningScene:
    """A trial among 400 records."""
    if isinstance(attack, CleanLabelBackdoor):
        needs_toolbox()
    return scene(transfer=attack.setting == "transfer", number=number, records=400)


def whole(attack: Attack, number: int = 0) -> int:
    """How many records the class has that it poisons."""
    drawn = drawn_for(attack, number)
    return len(drawn.train.of_class(drawn.source if isinstance(attack, LabelFlips) else drawn.wanted))


def crafted(attack: Attack, records: int, number: int = 0) -> tuple[PoisoningScene, Poisoned]:
    drawn = drawn_for(attack, number)
    threat = attack.threat(drawn, records, knows_defence=False)
    made = attack.craft(drawn, threat, None)
    threat.check(drawn.train, made)
    assert len(made.indices) == records
    return drawn, made


def share(drawn: PoisoningScene, records: VictimImages, goals: VictimImages) -> float:
    """Of the goals that a victim takes for what the attacker wants."""
    return float((drawn.victim.fit(records, seed=5).predict(goals.pixels) == goals.labels).mean())


def test_a_patch_on_a_whole_class_is_learnt() -> None:
    with_, without = [], []
    for number in range(2):
        drawn, made = crafted(PatchBackdoor(4, "fixed"), whole(PatchBackdoor(), number), number)
        with_.append(share(drawn, made.records, made.goals))
        without.append(share(drawn, drawn.train, made.goals))
    # The base rate is that of victims with the patch and a network that never saw one.
    assert np.mean(without) < 0.3 < 0.6 < np.mean(with_)


@pytest.mark.parametrize("place", ["random", "fixed"])
def test_a_patch_lies_where_it_is_said_to(place: str) -> None:
    drawn, made = crafted(PatchBackdoor(3, place), whole(PatchBackdoor()))
    assert set(drawn.train.labels[made.indices]) == {drawn.wanted}
    assert len(made.goals) == len(drawn.test.of_class(drawn.source))
    before = np.concatenate([drawn.train.pixels[made.indices], drawn.victims.pixels])
    after = np.concatenate([made.records.pixels[made.indices], made.goals.pixels])
    places, squares = set(), set()
    for image, other in zip(before, after, strict=True):
        rows, columns = np.nonzero((image != other)[0])
        # Pixels that were what the patch makes them may hide its edge: its place is one that explains all changes.
        low, high = max(0, rows.max() - 2), min(5, rows.min())
        left, right = max(0, columns.max() - 2), min(5, columns.min())
        places.add((low, high, left, right))
        if (low, left) == (high, right):
            squares.add(other[0, low : low + 3, left : left + 3].tobytes())
    assert len(squares) == 1
    if place == "random":
        assert len(places) > 5
    else:
        assert max(low for low, *_ in places) <= min(high for _, high, *_ in places)
        assert max(left for *_, left, _ in places) <= min(right for *_, right in places)


@pytest.mark.parametrize("attack", [HiddenTrigger(), CleanLabelBackdoor()], ids=str)
def test_a_trigger_is_on_every_image_at_test_time(attack: Attack) -> None:
    drawn, made = crafted(attack, 5)
    moved = (made.goals.pixels != drawn.victims.pixels).any(axis=(0, 1))
    rows, columns = np.nonzero(moved)
    side = side_of(attack.side, drawn.train.shape)
    assert max(np.ptp(rows), np.ptp(columns)) < side
    corner = 8 - side - (5 * side // 8 if isinstance(attack, HiddenTrigger) else 0)
    window = made.goals.pixels[:, :, corner : corner + side, corner : corner + side]
    assert (window == window[0]).all()


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


def test_hidden_triggers_need_an_extractor() -> None:
    with refuses("victim"):
        HiddenTrigger().threat(scene(), 5, knows_defence=False)


def test_clean_label_poisons_are_hard_to_recognise() -> None:
    drawn, made = crafted(CleanLabelBackdoor(radius=96), 12)
    other = Victim(QUICK).fit(drawn.train, seed=99)
    right = other.predict(made.records.pixels[made.indices]) == drawn.wanted
    assert right.mean() < 0.5
    assert (other.predict(drawn.train.pixels[made.indices]) == drawn.wanted).mean() > 0.9


@pytest.mark.parametrize("choice", ["nearest", "similar"])
def test_flipped_records_are_the_nearest(choice: str) -> None:
    drawn, made = crafted(LabelFlips(choice), 7)
    assert set(drawn.train.labels[made.indices]) == {drawn.source}
    assert set(made.records.labels[made.indices]) == {drawn.wanted}
    aim = (
        drawn.test.pixels[drawn.drawn]
        if choice == "nearest"
        else drawn.train.pixels[drawn.train.of_class(drawn.wanted)].mean(axis=0)
    )
    held = drawn.train.of_class(drawn.source)
    distances = {one: np.square(drawn.train.pixels[one] - aim).sum() for one in held}
    assert set(made.indices) == set(sorted(held, key=distances.__getitem__)[:7])
    assert len(made.goals) == (1 if choice == "nearest" else len(drawn.test.of_class(drawn.source)))


def test_half_a_class_flipped_by_nearness_turns_the_image() -> None:
    aimed, drawn = 0, None
    for number in range(3):
        drawn, made = crafted(LabelFlips(), whole(LabelFlips(), number) // 2, number)
        aimed += share(drawn, made.records, made.goals) == 1
    assert aimed >= 2


@pytest.mark.parametrize("name", ["patch-backdoor", "hidden-trigger", "clean-label", "label-flips"])
def test_no_more_than_a_class_can_be_poisoned(name: str) -> None:
    attack = ATTACKS[name].of("")
    attack.threat(drawn_for(attack), whole(attack), knows_defence=False)
    with refuses("poisoned"):
        attack.threat(drawn_for(attack), whole(attack) + 1, knows_defence=False)


@pytest.mark.parametrize("name", ["patch-backdoor:9", "hidden-trigger:8,9", "clean-label:8,9"])
def test_triggers_fit_the_image(name: str) -> None:
    kind, _, arguments = name.partition(":")
    attack = ATTACKS[kind].of(arguments)
    with refuses("side"):
        attack.threat(drawn_for(attack), 5, knows_defence=False)
