"""A process's place among the processes of a run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from privmix.errors import InvalidInput
from privmix.world import World, current_world
from tests.processes import two_processes


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("records", [0, 1, 5, 100])
@pytest.mark.parametrize("resting", [False, True])
def test_shards_hold_each_record_once(size: int, records: int, resting: bool) -> None:
    size += resting
    shards = [World(rank, size, resting_head=resting).shard(records) for rank in range(size)]
    assert not resting or shards[0] == (0, 0)
    assert [number for first, last in shards for number in range(first, last)] == list(range(records))


def test_alone_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with current_world() as world:
        assert (world, world.is_head) == (World(0, 1), True)
    tensor = torch.ones(2)
    assert world.sum(tensor) is tensor
    assert world.from_head(tensor) is tensor
    assert world.share(b"x") == b"x"


@pytest.mark.parametrize("given", [{"WORLD_SIZE": "two"}, {"WORLD_SIZE": "0"}, {"WORLD_SIZE": "2"}])
def test_half_a_world_is_refused(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=r"WORLD_SIZE"), current_world("cpu"):
        pass


def test_no_thread_of_the_group_outlives_the_block(tmp_path: Path) -> None:
    """One that did would end the process by SIGABRT, now and then, as the interpreter goes."""
    meet = """
    from pathlib import Path
    import time
    import torch
    from privmix.world import current_world

    def of_the_group():
        names = []
        for task in Path("/proc/self/task").iterdir():
            try:
                names.append(task.joinpath("comm").read_text())
            except OSError:
                pass  # ended meanwhile
        return sum("gloo" in name for name in names)

    with current_world("cpu") as world:
        import torch.distributed.nn  # as libraries do that are imported when first used
        world.sum(torch.ones(3))
        within = of_the_group()
    # A thread that was joined may be listed for a moment.
    until = time.monotonic() + 20
    while (after := of_the_group()) and time.monotonic() < until:
        time.sleep(0.01)
    print("threads:", within > 0, after)
    """
    done = two_processes(meet, tmp_path)
    assert [(process.returncode, process.stdout.splitlines()[-1]) for process in done] == [(0, "threads: True 0")] * 2


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [None, "gloo"])
def test_a_head_without_records_has_the_sums_of_the_others(tmp_path: Path, devices: str | None) -> None:
    """Of devices, too: here by gloo, where cards have NCCL."""
    meet = """
    import os, sys
    from pathlib import Path
    import torch
    from privmix.world import World, met_world
    place, devices = Path(sys.argv[1]), sys.argv[2] or None

    def part(rank):
        with met_world(place, rank, 4, interface="lo", devices=devices, look=lambda: None) as world:
            assert world == World(rank, 4, resting_head=True) and (world.computing, world.first) == (3, 1)
            first, last = world.shard(10)
            total = world.sum(torch.arange(10.0)[first:last].sum(0, keepdim=True))
            assert total.tolist() == [45.0], total
            assert world.from_head(torch.tensor([rank + 7.0])).tolist() == [7.0]
            assert world.share(b"abc" if rank == 1 else b"", source=1) == b"abc"
            world.wait()
        assert "GLOO_SOCKET_IFNAME" not in os.environ

    started = []
    for rank in range(4):
        if not (number := os.fork()):
            part(rank)
            os._exit(0)
        started.append(number)
    assert [os.waitpid(number, 0)[1] for number in started] == [0] * 4
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("GLOO_SOCKET_IFNAME", None)
    line = [sys.executable, "-c", textwrap.dedent(meet), str(tmp_path / "met"), devices or ""]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
