"""Several processes as one: what each computes of a share is summed, one writes, all take the same step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from privmix.errors import HeadFailed, InvalidInput, StorageError

# Where processes meet; WORLD_SIZE alone says that there are others.
_DESCRIBED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
_GO, _FAILED = b"go", b"failed"
# Processes that are ready meet within the first; one that reads or computes may let others wait for the second.
_MEETING, _WAITING = timedelta(minutes=5), timedelta(days=30)
# Seconds between looks at what is waited for, at the least and at the most, and at the others.
_SOON, _LATER, _OTHERS = 1e-4, 0.02, 1.0
_HERE: Final = "here"
INTERFACE: Final = "GLOO_SOCKET_IFNAME"
"""Names the network that processes reach each other by."""


class ProcessLost(StorageError):
    """Another process of the run is gone, or can't be reached; the run can be resumed."""

    keeps_run = True


@dataclass(frozen=True)
class World:
    """This process's place among the processes of a run; by default it is alone.

    Formal guarantees:
        * Once each: shards of all ranks cover every record once.

    Attributes:
        rank: 0 to ``size - 1``; rank 0, the head, alone holds keys, draws noise and writes results.
        size: how many processes.
        resting_head: the head leaves all records to the others.
        look: called now and then while others are waited for; it raises where that is in vain.
        devices: the group of those that have records, where their devices sum; the head meets the first of them alone.
        link: the group of these two.
    """

    rank: int = 0
    size: int = 1
    resting_head: bool = False
    look: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    devices: Any = field(default=None, repr=False, compare=False)
    link: Any = field(default=None, repr=False, compare=False)

    @property
    def is_head(self) -> bool:
        """Whether this process is the one that draws noise and writes."""
        return self.rank == 0

    @property
    def first(self) -> int:
        """The first rank that has records."""
        return int(self.resting_head)

    @property
    def computing(self) -> int:
        """How many processes have records."""
        return self.size - self.first

    def shard(self, records: int) -> tuple[int, int]:
        """First record and one after the last of this process's share.

        Example:
            >>> [World(rank, 3).shard(10) for rank in range(3)]
            [(0, 3), (3, 6), (6, 10)]
            >>> [World(rank, 3, resting_head=True).shard(10) for rank in range(3)]
            [(0, 0), (0, 5), (5, 10)]
        """
        place = self.rank - self.first
        return records * max(0, place) // self.computing, records * (place + 1) // self.computing

    def sum(self, tensor: Tensor) -> Tensor:
        """Add ``tensor`` over all processes, in place.

        Raises:
            ProcessLost: one is gone; so do the next three.
        """
        if self.devices is not None:
            self._by_devices(tensor, add=True)
        elif self.size > 1:
            with _at_hand(tensor) as held:
                self._done(lambda: dist.all_reduce(held, async_op=True))
        return tensor

    def from_head(self, tensor: Tensor) -> Tensor:
        """Overwrite ``tensor`` with that of rank 0."""
        if self.devices is not None:
            self._by_devices(tensor, add=False)
        elif self.size > 1:
            with _at_hand(tensor) as held:
                self._sent(held, 0)
        return tensor

    def _by_devices(self, tensor: Tensor, *, add: bool) -> None:
        """What the devices sum goes to the head by the first of them, and what the head has comes back that way."""
        if add and not self.is_head:
            self._done(lambda: dist.all_reduce(tensor, group=self.devices, async_op=True))
        if self.rank <= self.first:
            held = tensor.cpu()
            self._done(lambda: _linked(held, self.link, add=add))
            tensor.copy_(held)
        if not self.is_head:
            self._done(lambda: dist.broadcast(tensor, src=self.first, group=self.devices, async_op=True))

    def share(self, content: bytes, source: int = 0) -> bytes:
        """The bytes that one rank gives, on every process; what others give is not looked at."""
        if self.size == 1:
            return content
        length = torch.tensor([len(content)], dtype=torch.int64, device=_device())
        self._sent(length, source)
        held = torch.zeros(int(length), dtype=torch.uint8, device=_device())
        if self.rank == source and content:
            held.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self._sent(held, source)
        return held.cpu().numpy().tobytes()

    def wait(self) -> None:
        """Go on when all processes have come here."""
        if self.size > 1:
            nothing = torch.zeros(1, device=_device())
            self._done(lambda: dist.all_reduce(nothing, async_op=True))

    def _sent(self, tensor: Tensor, source: int) -> None:
        self._done(lambda: dist.broadcast(tensor, src=source, async_op=True))

    def _done(self, start: Callable[[], Any]) -> None:
        """Start something with the others, and wait until it is done."""
        pause, looked = _SOON, time.monotonic()
        try:
            work = start()
            while self.look is not None and not work.is_completed():
                time.sleep(pause)
                pause = min(2 * pause, _LATER)
                if time.monotonic() - looked > _OTHERS:
                    self.look()
                    looked = time.monotonic()
            work.wait()
        except RuntimeError:
            # Its text has addresses.
            raise ProcessLost("another process of the run is gone, or can't be reached") from None

    @contextmanager
    def others_wait(self) -> Iterator[None]:
        """The head's part of :meth:`wait_for_head`: the others go on after the block, or end where it fails."""
        try:
            yield
        except Exception:
            # What went wrong here is what is told, also where one of the others is lost meanwhile.
            with suppress(ProcessLost):
                self.share(_FAILED)
            raise
        self.share(_GO)

    def wait_for_head(self) -> None:
        """Wait until the head is through its block of :meth:`others_wait`.

        Raises:
            HeadFailed: it failed there.
        """
        if self.share(b"") != _GO:
            raise HeadFailed("the first process failed, and says why")


def _linked(tensor: Tensor, link: Any, *, add: bool) -> Any:
    start = dist.all_reduce(tensor, group=link, async_op=True) if add else None
    return start or dist.broadcast(tensor, src=0, group=link, async_op=True)


@contextmanager
def _at_hand(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor where the backend takes it, and what became of it there put back."""
    if tensor.is_cuda and dist.get_backend() == "gloo":
        held = tensor.cpu()
        yield held
        tensor.copy_(held)
    else:
        yield tensor


def _device() -> torch.device | None:
    """Where a backend takes its tensors from."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else None


def _environment(name: str, default: int = 1) -> int:
    given = os.environ.get(name, str(default))
    if not given.isdecimal():
        raise InvalidInput(name, given, "a whole number, as torchrun sets it")
    return int(given)


@contextmanager
def current_world(device: str | None = None) -> Iterator[World]:
    """The world that torchrun describes in the environment, joined for the block; alone without it.

    CUDA machines use NCCL with one device a process, others gloo.

    Args:
        device: ``cpu`` keeps off CUDA where there is some.

    Raises:
        InvalidInput: the environment describes half a world.
    """
    if _environment("WORLD_SIZE") == 1:
        yield World()
        return
    if dist.is_initialized():
        yield World(dist.get_rank(), dist.get_world_size())
        return
    for name in _DESCRIBED:
        if name not in os.environ:
            raise InvalidInput("environment", f"WORLD_SIZE and no {name}", "all that torchrun sets, or none of it")
    _environment("RANK")
    cuda = torch.cuda.is_available() and device != "cpu"
    if cuda:
        torch.cuda.set_device(_environment("LOCAL_RANK", 0))
    with _joined("nccl" if cuda else "gloo"):
        yield World(dist.get_rank(), dist.get_world_size())


@contextmanager
def _joined(backend: str, **where: Any) -> Iterator[None]:
    """Be in the group of processes for the block."""
    # Imported within the block, whoever needs it, this module would keep the group for ever: its functions take as
    # their default the group that is there as they are read. The group's threads then outlive the interpreter, and
    # one that still lets go of a tensor aborts the process.
    import_module("torch.distributed.nn.functional")
    dist.init_process_group(backend, **where)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _all_there(store: Any, size: int, look: Callable[[], None] | None) -> None:
    """Wait until all processes have come to the store: who joins a group waits for the others, and looks at none."""
    here, until = store.add(_HERE, 1), time.monotonic() + _MEETING.total_seconds()
    while here < size:
        if look is not None:
            look()
        if time.monotonic() > until:
            raise ProcessLost("a process of the run did not come")
        time.sleep(_LATER)
        here = store.add(_HERE, 0)


@contextmanager
def met_world(
    place: Path,
    rank: int,
    size: int,
    *,
    interface: str | None = None,
    devices: str | None = None,
    look: Callable[[], None] | None = None,
) -> Iterator[World]:
    """The world of processes that find each other by a file, joined for the block; its head has no records.

    Args:
        place: of the file, which no process has made; they all see it, and nobody else does.
        rank, size: of this process.
        interface: of the network that they are reached by; None: the one of this machine's name.
        devices: the backend by which devices sum, such as nccl; None: sums are made in memory, by gloo.
        look: see :class:`World`.

    Raises:
        ProcessLost: they do not meet.
    """
    with ExitStack() as ends:
        ends.enter_context(_through(interface))
        try:
            store = torch.distributed.FileStore(str(place), size)  # type: ignore[attr-defined]
            _all_there(store, size, look)
            ends.enter_context(_joined("gloo", store=store, rank=rank, world_size=size, timeout=_MEETING))
            # Who is gone shows otherwise.
            dist.distributed_c10d._set_pg_timeout(_WAITING, dist.group.WORLD)
            groups = {}
            if devices is not None:
                groups["link"] = dist.new_group([0, 1], backend="gloo", timeout=_WAITING)
                groups["devices"] = dist.new_group(list(range(1, size)), backend=devices, timeout=_WAITING)
        except RuntimeError:
            raise ProcessLost("the processes of the run do not reach each other") from None
        yield World(rank, size, resting_head=True, look=look, **groups)


@contextmanager
def _through(interface: str | None) -> Iterator[None]:
    """Have backends use a network, for the block."""
    before = {name: os.environ.get(name) for name in (INTERFACE, "NCCL_SOCKET_IFNAME")}
    if interface is not None:
        os.environ |= dict.fromkeys(before, interface)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)
