"""What breaks at work on a cluster: machines, disks, the store of objects, and tiles that take long."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import FeatureStore, Source
from privmix.data.partial import TileFolder, tiles_of
from privmix.engine.cluster import ClusterLost
from privmix.engine.encoding import ClusterEncoder
from privmix.engine.ray import Cluster, RayReleaseEngine
from privmix.engine.rows import ReleaseEngine
from privmix.features.cache import write_features
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.releases.run import release_to_folder
from tests.engine.test_encoding import DIM, MADE_FROM, TILE, Doubled, N, data
from tests.releases.helpers import make_plan, make_records

# Nobody waits so long but on a machine that has much else to do.
TILES, SECONDS = 5, 120.0
COUNT = 2 * RECORD_TILE + 700


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return data(tmp_path)


@pytest.fixture
def whole(tmp_path: Path, source: Source) -> FeatureStore:
    return write_features(source, Doubled(), tmp_path / "whole", MADE_FROM)


def encoded(source: Source, cluster: Cluster, folder: Path) -> FeatureStore:
    with ClusterEncoder.on(cluster, source, Doubled()) as encoder:
        return write_features(source, Doubled(), folder / "STORE", MADE_FROM, encoder=encoder)


def same(made: FeatureStore, whole: FeatureStore) -> bool:
    """Whether two stores have the same bytes; what is written beside one is gone."""
    assert not tiles_of(made.path).exists()
    names = {file.name for file in whole.path.iterdir()}
    assert {file.name for file in made.path.iterdir()} == names
    return all((made.path / name).read_bytes() == (whole.path / name).read_bytes() for name in names - {"meta.json"})


def held_until(marks: Path, many: int) -> Callable[[], None]:
    """The first piece of work that begins ends when so many have begun: a thousand times as long as the others."""
    marks.mkdir()

    def hook() -> None:
        (marks / os.urandom(8).hex()).touch()
        try:
            os.close(os.open(f"{marks}-held", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        end = time.monotonic() + SECONDS
        while len(list(marks.iterdir())) < many:
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.02)

    return hook


def test_a_tile_that_takes_long_keeps_no_other_waiting(cluster: Any, tmp_path: Path) -> None:
    """It ends when all others were begun: also those that its worker had before it."""
    # A reader can begin at each tile.
    source = data(tmp_path, group=TILE)
    whole = write_features(source, Doubled(), tmp_path / "whole", MADE_FROM)
    slow = Cluster(on_task_start=held_until(tmp_path / "marks", TILES))
    assert same(encoded(source, slow, tmp_path), whole)


def test_a_sum_that_takes_long_keeps_no_other_waiting(cluster: Any, tmp_path: Path) -> None:
    plan, records = make_plan(COUNT, 3, rows=300, centre="none"), make_records(COUNT, 3)
    slow = Cluster(on_task_start=held_until(tmp_path / "marks", 3))
    engine = RayReleaseEngine(plan, records, SecretStreams.from_seed(3), cluster=slow)
    local = ReleaseEngine(plan, records, SecretStreams.from_seed(3))
    np.testing.assert_array_equal(*(np.concatenate([block.x for block in one.rows()]) for one in (engine, local)))


def test_a_full_disk_says_so_and_the_tiles_that_are_whole_stay(
    cluster: Any, tmp_path: Path, source: Source, whole: FeatureStore
) -> None:
    """A worker may write no file as large as a tile, from the third tile on."""
    place, is_full = tmp_path / "STORE", tmp_path / "is-full"
    is_full.touch()

    def full() -> None:
        import resource

        original = TileFolder.write

        def write(folder: TileFolder, *tile: Any) -> None:
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            # These bytes alone fail: Ray writes its own logs. A process goes on to other work later.
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000 if is_full.exists() else before[0], before[1]))
            try:
                original(folder, *tile)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

        if len(list(tiles_of(place).glob("tile-*"))) >= 2:
            TileFolder.write = write  # type: ignore[method-assign]

    with pytest.raises(ClusterLost, match=r"File too large: free space .* finished parts are kept"):
        encoded(source, Cluster(on_task_start=full), tmp_path)
    assert not place.exists()
    folder = TileFolder.at(place, None)
    left = folder.there()
    assert len(left) >= 2
    assert all(folder.read(number, min(TILE, N - number * TILE), DIM) is not None for number in left)
    is_full.unlink()
    marks = tmp_path / "marks"
    marks.mkdir()
    noting = Cluster(on_task_start=lambda: os.close(os.open(marks / os.urandom(8).hex(), os.O_CREAT)))
    assert same(encoded(source, noting, tmp_path), whole)
    # None is made again; a worker that was told to end may have ended one of its own first.
    assert 0 < len(list(marks.iterdir())) <= TILES - len(left)


def test_halves_that_a_kill_left_go_when_the_work_goes_on(tmp_path: Path) -> None:
    folder = TileFolder.beside(tmp_path / "S", {"a": 1})
    folder.write(0, np.ones((1, 2), np.float32), np.zeros(1, np.int64))
    folder.close()
    (tiles_of(tmp_path / "S") / ".tile-000000001.0011223344556677.draft").write_bytes(b"half")
    again = TileFolder.beside(tmp_path / "S", {"a": 1})
    assert {file.name for file in tiles_of(tmp_path / "S").iterdir()} == {"begin.json", "tile-000000000"}
    assert again.there() == {0}


# Last: Ray takes a while to know that a machine is lost, and its cores count meanwhile.


def dies_at_work(cluster: Any, node: Any, marks: Path) -> Callable[[], None]:
    """What is to be called as work begins: on that machine it holds on until the machine is gone."""
    doomed = node.node_id

    def hook() -> None:
        import ray

        if ray.get_runtime_context().get_node_id() == doomed:
            marks.touch()
            time.sleep(SECONDS)
        end = time.monotonic() + SECONDS
        while not marks.exists() and time.monotonic() < end:
            time.sleep(0.05)

    def lose() -> None:
        for _ in range(int(SECONDS / 0.05)):
            if marks.exists():
                cluster.remove_node(node, allow_graceful=False)
                return
            time.sleep(0.05)

    threading.Thread(target=lose, daemon=True).start()
    return hook


def test_a_machine_that_is_lost_while_it_encodes_costs_its_tiles_alone(
    cluster: Any, spare: Any, tmp_path: Path, source: Source, whole: FeatureStore
) -> None:
    """It does not come back, and nobody waits for it."""
    dying = Cluster(on_task_start=dies_at_work(cluster, spare, tmp_path / "began"))
    assert same(encoded(source, dying, tmp_path), whole)
    assert spare not in cluster.list_all_nodes()


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["summing", "publishing"])
def test_a_machine_that_is_lost_later_changes_no_byte(
    cluster: Any, spare: Any, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, records = make_plan(COUNT, 3, rows=300, centre="none"), make_records(COUNT, 3)
    facts: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (3,)}
    release_to_folder(plan, records, SecretStreams.from_seed(3), tmp_path / "local", **facts)
    if moment == "summing":
        dying = Cluster(on_task_start=dies_at_work(cluster, spare, tmp_path / "began"))
        monkeypatch.setattr("privmix.engine.engines.Cluster", lambda _address: dying)
    else:
        from privmix.mechanisms.run import Run

        original = Run.publish

        def losing(run: Run) -> None:
            cluster.remove_node(spare, allow_graceful=False)
            original(run)

        monkeypatch.setattr(Run, "publish", losing)
    release_to_folder(plan, records, SecretStreams.from_seed(3), tmp_path / "ray", engine="ray", **facts)
    assert spare not in cluster.list_all_nodes()
    shard = "data/train-00000-of-00001.parquet"
    assert (tmp_path / "ray" / shard).read_bytes() == (tmp_path / "local" / shard).read_bytes()
