"""Distribute runs of tiles to the workers of a cluster as they become free, without waiting for slow or lost ones."""
# A run that is made twice is the same: it is dealt again when it may be lost or waits behind a long one.

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from privmix.engine.cluster import KEPT, ClusterLost
from privmix.engine.ray import _checked

# Runs that a worker has before it, so that it never waits for the next one.
_AHEAD: Final = 2
# Retries of a call that waits until its actor is back.
_FOREVER: Final = -1


def asks_until_back(actor: Any, parts: Any) -> Any:
    """Return a reference to the result of the actor's ``runtime(parts)``, ready once the actor is there."""
    return actor.runtime.options(max_task_retries=_FOREVER).remote(parts)


@dataclass(eq=False)
class Dealing:
    """Distributes runs of tiles to actors.

    Formal guarantees:
        * Lost: the runs of an actor that died, alone or with its machine, go to the others at once. It gets more when
          it is back, and has reported that its machine is like the others.
        * Bounded: a run that was lost more than ``retries`` times ends the work.
        * Slow: a run that takes long holds up itself alone; what waits behind it goes to who has nothing to do.
    """

    # check: called with an actor's description of its machine; raises where machines differ. away: asks actors that are
    # not there yet, by number. retries: how often a run may be lost.

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
        """Return the number of tiles made since the last call; wait for an event where asked to."""
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
        """Return a run that its actor cannot have started, and no other actor has."""
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
