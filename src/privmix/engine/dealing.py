"""Runs of tiles, dealt to the workers of a cluster as they get free: nobody waits for who is slow or gone.

A run that is made twice is the same, so it is dealt again as soon as it may have been lost, and while it waits behind a
long one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from privmix.engine.cluster import KEPT, ClusterLost
from privmix.engine.ray import _checked

# Runs that a worker has before it, so that it never waits for the next one.
_AHEAD: Final = 2
# Of a call that waits until its actor is back.
_FOREVER: Final = -1


def asks_until_back(actor: Any, parts: Any) -> Any:
    """What becomes the actor's ``runtime(parts)`` once it is there, however long that takes."""
    return actor.runtime.options(max_task_retries=_FOREVER).remote(parts)


@dataclass(eq=False)
class Dealing:
    """Deals runs of tiles to actors.

    Formal guarantees:
        * Lost: what an actor had before it when it died, alone or with its machine, goes to the others at once. It gets
          more when it is back, and has said that its machine is like the others.
        * Bounded: a run that was lost more than ``retries`` times ends the work.
        * Slow: a run that takes long holds up itself alone; what waits behind it goes to who has nothing to do.

    Args:
        actors: who makes runs: ``encode(place, run, parts)``, and ``runtime(parts)``.
        place, parts: what they are called with.
        runs: not dealt yet.
        retries: how often a run may be lost.
        check: called with what an actor says of its machine; raises where that is not like the others.
        away: what asks actors that are not there yet, by their numbers.
    """

    actors: list[Any]
    place: Any
    parts: Any
    runs: deque[range]
    retries: int
    check: Callable[[Mapping[str, Any]], None]
    away: dict[Any, int] = field(default_factory=dict)
    _free: deque[int] = field(init=False)
    _under_way: dict[Any, tuple[int, range]] = field(default_factory=dict, init=False)
    _lost: Counter[range] = field(default_factory=Counter, init=False)
    _twice: set[range] = field(default_factory=set, init=False)
    _made: set[range] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._free = deque([one for one in range(len(self.actors)) if one not in self.away.values()] * _AHEAD)

    def add(self, run: range) -> None:
        """Have these made next, again."""
        self._made.discard(run)
        self.runs.appendleft(run)

    @property
    def ended(self) -> bool:
        """Whether nothing is to be waited for."""
        return not self.runs and not self._under_way

    def done(self, *, wait: bool) -> set[int]:
        """Tiles that were made since it was asked last; where it is to wait, it does so until something has happened.

        Raises:
            ClusterLost: no actor is left, or one is not like the others.
            RayError: a run was lost too often.
        """
        import ray

        self._deal()
        if self.runs and not self._under_way and not self.away:
            raise ClusterLost(f"ray: no worker is left; {KEPT}")
        waiting = [*self._under_way, *self.away]
        ended = ray.wait(waiting, num_returns=1, timeout=None if wait else 0)[0] if waiting else []
        found: set[int] = set()
        for one in ended:
            if one in self.away:
                self._back(one)
            else:
                found |= self._result(one)
        return found

    def _deal(self) -> None:
        while self.runs and self._free:
            self._give(self._free.popleft(), self.runs.popleft())
        for actor in {actor for actor in self._free if self._free.count(actor) == _AHEAD}:
            if (run := self._behind_another()) is not None:
                self._twice.add(run)
                self._free.remove(actor)
                self._give(actor, run)

    def _give(self, actor: int, run: range) -> None:
        call = self.actors[actor].encode.remote(self.place, run, self.parts)
        self._under_way[call] = actor, run

    def _behind_another(self) -> range | None:
        """A run that an actor can't have begun with, and nobody else has."""
        busy: set[int] = set()
        for actor, run in self._under_way.values():
            if actor in busy and run not in self._twice:
                return run
            busy.add(actor)
        return None

    def _result(self, one: Any) -> set[int]:
        import ray

        actor, run = self._under_way.pop(one)
        try:
            said = ray.get(one)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError:
            self._lost[run] += 1
            if self._lost[run] > self.retries:
                raise
            self._without(actor)
            if run not in self._made and all(run != other for _, other in self._under_way.values()):
                self.runs.appendleft(run)
            return set()
        self.check(_checked(said))
        if actor not in self.away.values():
            self._free.append(actor)
        self._made.add(run)
        return set(run)

    def _without(self, actor: int) -> None:
        """Give an actor nothing until it is back."""
        if actor in self.away.values():
            return
        self._free = deque(one for one in self._free if one != actor)
        self.away[asks_until_back(self.actors[actor], self.parts)] = actor

    def _back(self, one: Any) -> None:
        import ray

        actor = self.away.pop(one)
        try:
            said = ray.get(one)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError:
            # It is not started again.
            return
        self.check(_checked(said))
        still = sum(actor == other for other, _ in self._under_way.values())
        self._free.extend([actor] * (_AHEAD - still))
