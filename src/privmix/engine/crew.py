"""Actors on a Ray cluster that work together with this process, step by step; whoever is lost is replaced.

This process is the head of their world (:mod:`privmix.world`): it has the key, draws the noise, and leaves the records
to the others. That is why the actors are plain ones: Ray Train puts all processes of a training on the cluster, the
first one too, which would take the key there. What they sum goes from process to process, and never by Ray.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from privmix.engine.cluster import ClusterLost, check_ray
from privmix.engine.ray import Cluster, Failure, _checked, _guarded
from privmix.errors import HeadFailed, InvalidInput
from privmix.private_files import no_core_dumps
from privmix.world import INTERFACE, ProcessLost, World, met_world

# Seconds that a place for a worker is waited for, and that others have to notice that one was lost.
_PLACED: Final = 600.0
_SETTLED: Final = 60.0
_DEVICES: Final = "nccl"
_LOOPBACK: Final = ("127.0.0.1", "::1")
# By what a worker ends because another process did.
_WITH_OTHERS: Final = (ProcessLost.__name__, HeadFailed.__name__)


class Part(Protocol):
    """What each worker does. It travels to them by Ray: no record and no key is in it."""

    def prepare(self) -> Any:
        """Get ready, without a record; returns JSON values that are the same on all machines."""

    def take_part(self, world: World) -> None:
        """Do this process's part; again after another process was lost."""


@dataclass(frozen=True)
class Meeting:
    """How the processes find each other.

    Attributes:
        place: of the file that they use.
        size: how many they are.
        interface, devices: see :func:`privmix.world.met_world`.
    """

    place: str
    size: int
    interface: str | None
    devices: str | None

    def join(self, rank: int, look: Callable[[], None] | None = None) -> AbstractContextManager[World]:
        """The world, joined."""
        place, means = Path(self.place), {"interface": self.interface, "devices": self.devices}
        return met_world(place, rank, self.size, look=look, **means)


class Member:
    """What an actor is. Holds private records while it takes part."""

    def __init__(self, folder: str, part: Part, on_start: Callable[[], None] | None) -> None:
        no_core_dumps()
        # Names of files may be relative.
        with suppress(OSError):
            os.chdir(folder)
        self._part, self._on_start = part, on_start

    def prepare(self) -> Any:
        """What :meth:`Part.prepare` says, or why it gave up."""
        import torch

        torch.set_num_threads(1)
        return _guarded(self._part.prepare)

    def take_part(self, meeting: Meeting, rank: int) -> Failure | None:
        """Meet the others and do its part; returns why it gave up, if it did."""

        def work() -> None:
            if self._on_start is not None:
                self._on_start()
            with meeting.join(rank) as world:
                self._part.take_part(world)

        return _guarded(work)


class Crew:
    """Workers on a cluster; a context manager that ends them.

    Formal guarantees:
        * Past Ray: what goes by Ray is the part, the way to the meeting, and names of errors.
        * All or none: they work together while all are there; where one is lost all stop, and :meth:`replace_lost` has
          another one in its place.
        * Ended: no worker is left behind, however the block is left.

    Args:
        cluster: that this process is connected to.
        part: what each of them does.
        place: an existing folder that all machines share, as this user's.
        workers: how many; None, or more than there are: as many as there are CPUs, or GPUs.
        on_gpu: each has a GPU.

    Attributes:
        said: what :meth:`Part.prepare` said, on all of them.

    Raises:
        ClusterLost: there is no room for them, or they differ.
        InvalidInput: a worker refused the part; or Ray's TLS is on, and no network is named for what goes past it.
    """

    said: Any = None

    def __init__(
        self, cluster: Cluster, part: Part, place: Path, *, workers: int | None = None, on_gpu: bool = False
    ) -> None:
        check_ray()
        self._cluster, self._given, self._place = cluster, part, place
        self._workers, self._on_gpu = workers, on_gpu
        self._actors: list[Any] = []
        self._under_way: list[Any] = []
        self._meetings = 0

    def __enter__(self) -> Self:
        import ray

        library: Any = ray
        self._done = ExitStack()
        try:
            there = library.cluster_resources()
            many = max(1, int(there.get("GPU" if self._on_gpu else "CPU", 1)))
            self._interface = _interface(library.nodes())
            self._folder = Path(tempfile.mkdtemp(prefix=".pmx-meeting-", dir=self._place.absolute()))
            self._done.callback(shutil.rmtree, self._folder, ignore_errors=True)
            # Put once, for all of them.
            self._part = library.put(self._given)
            self._actors = [None] * (many if self._workers is None else min(self._workers, many))
            self._done.callback(self.end)
            self._fill()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.__exit__(kind, error, trace)

    def end(self) -> None:
        """End all workers now."""
        import ray

        for place, actor in enumerate(self._actors):
            if actor is not None:
                ray.kill(actor)
            self._actors[place] = None

    def _fill(self) -> None:
        """Have a worker in each place, ready."""
        import ray

        made: Any = ray.remote(Member)
        made = made.options(num_cpus=1, num_gpus=1 if self._on_gpu else 0, max_restarts=0)
        new = [place for place, actor in enumerate(self._actors) if actor is None]
        for place in new:
            self._actors[place] = made.remote(os.getcwd(), self._part, self._cluster.on_task_start)
        asked = [self._actors[place].prepare.remote() for place in new]
        _, late = ray.wait(asked, num_returns=len(asked), timeout=_PLACED)
        if late:
            raise ClusterLost("ray: the cluster has no room for the workers")
        for one in asked:
            found = _outcome(one)
            if found is _LOST:
                raise ClusterLost("ray: a worker ended while it got ready; is the same privmix on all machines?")
            _checked(found)
            self.said = found if self.said is None else self.said
            if found != self.said:
                raise ClusterLost("ray: machines differ in what they make of the job")

    @contextmanager
    def together(self) -> Iterator[World]:
        """This process and the workers as one world, for the block, in which they do their part.

        Raises:
            ProcessLost: one was lost. Other errors end the workers.
        """
        size, self._meetings = len(self._actors) + 1, self._meetings + 1
        devices = _DEVICES if self._on_gpu else None
        meeting = Meeting(str(self._folder / str(self._meetings)), size, self._interface, devices)
        self._under_way = [actor.take_part.remote(meeting, rank) for rank, actor in enumerate(self._actors, 1)]
        with meeting.join(0, self._look) as world:
            try:
                yield world
            except ProcessLost:
                raise
            except BaseException:
                # Leaving the world waits for what is under way.
                self.end()
                raise

    def _look(self) -> None:
        """Raise where one of the workers has given up or is gone."""
        import ray

        ended, _ = ray.wait(self._under_way, num_returns=len(self._under_way), timeout=0)
        if any(_outcome(one) is not None for one in ended):
            raise ProcessLost("a worker of the cluster gave up")

    def replace_lost(self) -> None:
        """Have others in the places of those that were lost.

        Raises:
            InvalidInput, ClusterLost: one was not lost, but gave up, and would again.
        """
        import ray

        until = time.monotonic() + _SETTLED
        ray.wait(self._under_way, num_returns=len(self._under_way), timeout=_SETTLED)
        for place, one in enumerate(self._under_way):
            ended, _ = ray.wait([one], timeout=max(0.0, until - time.monotonic()))
            found = _outcome(one) if ended else _LOST
            if isinstance(found, Failure) and (found.field is not None or found.allowed not in _WITH_OTHERS):
                _checked(found)
            if found is _LOST:
                ray.kill(self._actors[place])
                self._actors[place] = None
        self._fill()


_LOST: Final = object()


def _outcome(one: Any) -> Any:
    """What an actor gave for one call; ``_LOST`` where it is gone."""
    import ray

    try:
        return ray.get(one)
    except ray.exceptions.RayError:
        # Its text holds tracebacks of workers.
        return _LOST


def _interface(nodes: list[Any]) -> str | None:
    """By which network the processes reach each other; None leaves it to the name of each machine."""
    addresses = {node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    if addresses <= set(_LOOPBACK):
        return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    named = os.environ.get(INTERFACE)
    if named is None and len(addresses) > 1 and os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):
        allowed = (
            "the interface of a private network: sums go from process to process, and Ray's TLS does not cover them"
        )
        raise InvalidInput(INTERFACE, None, allowed)
    return named
