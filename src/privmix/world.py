"""Several processes as one: what each computes of a share is summed, one writes, all take the same step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privmix.errors import HeadFailed, InvalidInput, StorageError
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor

# Variables of the place where processes meet; WORLD_SIZE alone shows that there are others.
_DESCRIBED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
_GO, _FAILED = b"go", b"failed"


class ProcessLost(StorageError):
    """Another process of the run is gone, or can't be reached; the run can be resumed."""


@dataclass(frozen=True)
class World:
    """This process's place among the processes of a run; alone by default.

    Formal guarantees:
        * Once each: shards of all ranks cover every record once.
    """

    # Rank 0, the head, alone holds keys, draws noise and writes results.

    rank: int = 0
    size: int = 1

    @property
    def is_head(self) -> bool:
        """Whether this process is the one that draws noise and writes."""
        return self.rank == 0

    def shard(self, records: int) -> tuple[int, int]:
        """Return the first record and one after the last of this process's share."""
        return records * self.rank // self.size, records * (self.rank + 1) // self.size

    def sum(self, tensor: Tensor) -> Tensor:
        """Add ``tensor`` over all processes, in place; raises ProcessLost, as do the next three."""
        if self.size > 1:
            with _at_hand(tensor) as held:
                self._done(lambda: torch.distributed.all_reduce(held, async_op=True))
        return tensor

    def from_head(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            with _at_hand(tensor) as held:
                self._sent(held, 0)
        return tensor

    def share(self, content: bytes, source: int = 0) -> bytes:
        """Return the bytes that one rank gives, on every process; what others give is not looked at."""
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
            self._done(lambda: torch.distributed.all_reduce(nothing, async_op=True))

    def _sent(self, tensor: Tensor, source: int) -> None:
        self._done(lambda: torch.distributed.broadcast(tensor, src=source, async_op=True))

    def _done(self, start: Callable[[], Any]) -> None:
        """Start something with the others, and wait until it is done."""
        try:
            start().wait()
        except RuntimeError:
            # Its text has addresses.
            raise ProcessLost("another process of the run ended or cannot be reached") from None

    @contextmanager
    def others_wait(self) -> Iterator[None]:
        """Run the head's part of :meth:`wait_for_head`: the others continue after the block, or end where it fails."""
        try:
            yield
        except Exception:
            # The error here is the one to report, also if one of the others is lost meanwhile.
            with suppress(ProcessLost):
                self.share(_FAILED)
            raise
        self.share(_GO)

    def wait_for_head(self) -> None:
        """Wait until the head leaves its block of :meth:`others_wait`; raise HeadFailed if it failed there."""
        if self.share(b"") != _GO:
            raise HeadFailed("the first process failed; see its error")


@contextmanager
def _at_hand(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the tensor where the backend takes it; write the result back."""
    if tensor.is_cuda and torch.distributed.get_backend() == "gloo":
        held = tensor.cpu()
        yield held
        tensor.copy_(held)
    else:
        yield tensor


def _device() -> torch.device | None:
    return torch.device("cuda", torch.cuda.current_device()) if torch.distributed.get_backend() == "nccl" else None


def _environment(name: str, default: int = 1) -> int:
    given = os.environ.get(name, str(default))
    if not given.isdecimal():
        raise InvalidInput(name, given, "a whole number, as torchrun sets it")
    return int(given)


def is_first() -> bool:
    """Whether this is the first process of those that torchrun started, or the only one."""
    return _environment("WORLD_SIZE") == 1 or _environment("RANK", 0) == 0


@contextmanager
def current_world(device: str | None = None) -> Iterator[World]:
    """Join the world that torchrun describes in the environment for the block; alone without it."""
    # CUDA machines use NCCL with one device a process, others gloo; device "cpu" avoids CUDA.
    if _environment("WORLD_SIZE") == 1:
        yield World()
        return
    if torch.distributed.is_initialized():
        yield World(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return
    for name in _DESCRIBED:
        if name not in os.environ:
            allowed = "all variables that torchrun sets, or none: start with torchrun"
            raise InvalidInput("environment", f"WORLD_SIZE and no {name}", allowed)
    _environment("RANK")
    cuda = torch.cuda.is_available() and device != "cpu"
    if cuda:
        torch.cuda.set_device(_environment("LOCAL_RANK", 0))
    # If a library imported this module within the block, it would keep the group for ever. Its functions take as their
    # default the group that is there as they are read. The group's threads then outlive the interpreter, and one that
    # still lets go of a tensor aborts the process.
    import_module("torch.distributed.nn.functional")
    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield World(torch.distributed.get_rank(), torch.distributed.get_world_size())
    finally:
        torch.distributed.destroy_process_group()
