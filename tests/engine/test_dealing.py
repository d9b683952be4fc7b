"""Who gets which tiles when: by actors whose calls end as a test says."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from privmix.engine.cluster import ClusterLost
from privmix.engine.dealing import Dealing

ray = pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
DIED = ray.exceptions.ActorDiedError()


class Call:
    def __init__(self, actor: Actor, run: range | None) -> None:
        self.actor, self.run, self.result = actor, run, None
        self.over = False


class Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self.actor, self.name = actor, name

    def options(self, **_: Any) -> Method:
        return self

    def remote(self, *given: Any) -> Call:
        call = Call(self.actor, given[1] if self.name == "encode" else None)
        self.actor.calls.append(call)
        return call


class Actor:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.encode, self.runtime = Method(self, "encode"), Method(self, "runtime")

    def runs(self) -> list[int]:
        """What it has before it."""
        return [call.run.start for call in self.calls if call.run is not None and not call.over]

    def end(self, run: int | None, result: Any = "like the others") -> None:
        """Have its call for that run end, or the one that asks whether it is back."""
        (call,) = [one for one in self.calls if not one.over and (None if one.run is None else one.run.start) == run]
        call.over, call.result = True, result


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> list[Actor]:
    def wait(calls: list[Call], num_returns: int, timeout: float | None) -> tuple[list[Call], list[Call]]:
        return [call for call in calls if call.over][:num_returns], []

    def get(call: Any) -> Any:
        if isinstance(call.result, Exception):
            raise call.result
        return call.result

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    return [Actor(), Actor()]


def dealing(actors: list[Actor], runs: int, retries: int = 1, **more: Any) -> Dealing:
    made = Dealing(actors, "place", "parts", deque(range(i, i + 1) for i in range(runs)), retries, checked, **more)
    made.done(wait=False)
    return made


def checked(said: Any) -> None:
    if said != "like the others":
        raise ClusterLost("machines differ")


def test_what_waits_behind_a_long_run_goes_to_who_is_idle_once(actors: list[Actor]) -> None:
    slow, other = actors
    made = dealing(actors, 5)
    assert (slow.runs(), other.runs()) == ([0, 2], [1, 3])
    for run in (1, 3):
        other.end(run)
        assert made.done(wait=True) == {run}
    made.done(wait=False)
    assert other.runs() == [4]
    other.end(4)
    assert made.done(wait=True) == {4}
    made.done(wait=False)
    assert other.runs() == [2], "the run that waits; not the one that is under way"
    other.end(2)
    assert made.done(wait=True) == {2}
    made.done(wait=False)
    assert other.runs() == []
    assert not made.ended
    slow.end(0)
    slow.end(2)
    assert made.done(wait=True) | made.done(wait=True) == {0, 2}
    assert made.ended


def test_what_a_dead_actor_had_goes_to_the_others_and_it_comes_back(actors: list[Actor]) -> None:
    dead, other = actors
    made = dealing(actors, 4)
    for run in (0, 2):
        dead.end(run, DIED)
        assert made.done(wait=True) == set()
    assert (dead.runs(), other.runs()) == ([], [1, 3])
    for run in (1, 3):
        other.end(run)
        made.done(wait=True)
    made.done(wait=False)
    assert sorted(other.runs()) == [0, 2]
    dead.end(None)
    made.done(wait=True)
    made.done(wait=False)
    assert dead.runs() == [other.runs()[1]], "it is idle, and takes what waits"


def test_one_that_comes_back_on_another_kind_of_machine_ends_the_work(actors: list[Actor]) -> None:
    made = dealing(actors, 4)
    actors[0].end(0, DIED)
    made.done(wait=True)
    actors[0].end(None, "another library")
    with pytest.raises(ClusterLost, match="differ"):
        made.done(wait=True)


def test_a_run_that_is_lost_too_often_ends_the_work(actors: list[Actor]) -> None:
    made = dealing(actors, 1)
    actors[0].end(0, DIED)
    made.done(wait=True)
    made.done(wait=False)
    actors[1].end(0, DIED)
    with pytest.raises(ray.exceptions.RayError):
        made.done(wait=True)


def test_nobody_is_waited_for_who_is_not_started_again(actors: list[Actor]) -> None:
    made = dealing(actors, 2, retries=9)

    def all_die() -> None:
        for _ in range(9):
            for call in (*actors[0].calls, *actors[1].calls):
                call.over, call.result = True, call.result or DIED
            made.done(wait=True)

    with pytest.raises(ClusterLost, match="no worker is left"):
        all_die()


def test_one_that_is_late_gets_work_when_it_is_there(actors: list[Actor]) -> None:
    call = actors[1].runtime.remote("parts")
    made = dealing(actors, 5, away={call: 1})
    assert (actors[0].runs(), actors[1].runs()) == ([0, 1], [])
    actors[1].end(None)
    made.done(wait=True)
    made.done(wait=False)
    assert actors[1].runs() == [2, 3]


def test_a_tile_whose_bytes_are_others_is_made_again(actors: list[Actor]) -> None:
    made = dealing(actors, 1)
    actors[0].end(0)
    assert made.done(wait=True) == {0}
    assert made.ended
    made.add(range(1))
    assert not made.ended
    made.done(wait=False)
    assert actors[0].runs() + actors[1].runs() == [0]
