"""A process's place among the processes of a run."""

from pathlib import Path

import pytest

from privmix.errors import InvalidInput
from privmix.world import World, current_world
from tests.processes import two_processes


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("records", [0, 1, 5, 100])
def test_shards_hold_each_record_once(size: int, records: int) -> None:
    shards = [World(rank, size).shard(records) for rank in range(size)]
    assert [number for first, last in shards for number in range(first, last)] == list(range(records))


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
