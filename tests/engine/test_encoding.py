"""Features made tile by tile, by workers that die: the bytes of a store that is made at one go, and no tile twice."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from privmix.data import FeatureStore, Source, open_dataset
from privmix.data.partial import TileFolder, tiles_of
from privmix.engine.encoding import ClusterEncoder, TilePlace, encode_tiles
from privmix.engine.ray import Cluster
from privmix.errors import InvalidInput, StorageError
from privmix.features.base import Extractor
from privmix.features.cache import write_features
from privmix.features.identity import Identity
from tests.engine.test_ray import die_once
from tests.refusals import refuses

N, DIM, TILE, CLASSES = 1100, 3, 256, ("a", "b")
MADE_FROM = {"split": "train", "files": [("d.parquet", "abc")]}


class Doubled(Identity):
    """Twice the numbers, a few at a time."""

    step: ClassVar[int] = 100

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        self.seen.append(len(x))
        return 2 * np.asarray(x, np.float32)


def data(folder: Path, records: int = N, group: int = 150) -> Source:
    rng = np.random.default_rng(0)
    table = pa.table(
        {name: rng.normal(size=records).astype(np.float32) for name in "pqr"} | {"label": rng.integers(0, 2, records)}
    )
    pq.write_table(table, folder / "d.parquet", row_group_size=group)
    return open_dataset(folder / "d.parquet", classes=CLASSES)


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


class Alone:
    """An encoder whose only worker is this process, and which is cut off after so many tiles."""

    def __init__(self, source: Source, extractor: Extractor, most: int = 10**9) -> None:
        self.source, self.extractor, self.most, self.made = source, extractor, most, list[int]()

    def runtime(self) -> dict[str, Any]:
        return {}

    def rows(self, source: Source, writer: Any) -> Any:
        folder = TileFolder.beside(writer.path, {**writer.facts, "tile": TILE})
        place = TilePlace(str(writer.path), TILE, writer.dim, folder.facts)
        for number in range(source.manifest().tiles(TILE)):
            if number not in folder.there():
                if len(self.made) == self.most:
                    raise KeyboardInterrupt
                encode_tiles(place, range(number, number + 1), source, self.extractor)
                self.made.append(number)
            tile = folder.read(number, min(TILE, N - number * TILE), writer.dim)
            assert tile is not None
            yield tile
        folder.discard()


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return data(tmp_path)


@pytest.fixture
def whole(tmp_path: Path, source: Source) -> FeatureStore:
    return write_features(source, Doubled(), tmp_path / "whole", MADE_FROM)


def test_tiles_give_the_store_that_one_process_makes(tmp_path: Path, source: Source, whole: FeatureStore) -> None:
    made = write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=Alone(source, Doubled()))
    assert files(made.path) == files(whole.path)
    assert np.array_equal(made.features, np.concatenate([2 * batch.x for batch in source.batches(500)]))
    assert {path.name for path in tmp_path.iterdir()} == {"d.parquet", "whole", "STORE"}


def test_what_is_there_is_not_made_again(tmp_path: Path, source: Source, whole: FeatureStore) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=Alone(source, Doubled(), 3))
    tiles = tiles_of(tmp_path / "STORE")
    assert tiles.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tiles.iterdir())
    extractor = Doubled()
    again = Alone(source, extractor)
    made = write_features(source, extractor, tmp_path / "STORE", MADE_FROM, encoder=again)
    assert again.made == [3, 4]
    assert sum(extractor.seen) == N - 3 * TILE
    assert files(made.path) == files(whole.path)
    assert not tiles.exists()


def test_tiles_are_gone_where_another_engine_finishes(tmp_path: Path, source: Source) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=Alone(source, Doubled(), 3))
    write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM)
    assert {path.name for path in tmp_path.iterdir()} == {"d.parquet", "STORE"}


def test_tiles_are_gone_though_a_worker_goes_on_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, late = TileFolder.beside(tmp_path / "S", {}), TileFolder.at(tmp_path / "S")
    rmdir, met = Path.rmdir, list[Path]()

    def once(path: Path) -> None:
        if not met:
            late.write(7, np.ones((1, 2), np.float32), np.zeros(1, np.int64))
        met.append(path)
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", once)
    folder.discard()
    assert not tiles_of(tmp_path / "S").exists()


def test_a_late_tile_of_an_attempt_before_is_none(tmp_path: Path) -> None:
    """A worker that was cut off goes on in a folder that is by now of other data. Nor is a renamed one."""
    path, tile = tmp_path / "S", (np.ones((2, 3), np.float32), np.zeros(2, np.int64))
    before = TileFolder.beside(path, {"data": 1})
    now = TileFolder.beside(path, {"data": 2})
    TileFolder.at(path, before.facts).write(0, *tile)
    assert now.there() == {0}
    assert now.read(0, 2, 3) is None
    TileFolder.at(path, now.facts).write(0, *tile)
    assert now.read(0, 2, 3) is not None
    place = tiles_of(path)
    (place / "tile-000000000").rename(place / "tile-000000001")
    assert now.read(1, 2, 3) is None


@pytest.mark.parametrize("change", ["facts", "torn", "edited", "another's"])
def test_tiles_of_something_else_are_not_taken(
    tmp_path: Path, source: Source, whole: FeatureStore, change: str
) -> None:
    path, made_from = tmp_path / "STORE", dict(MADE_FROM)
    with pytest.raises(KeyboardInterrupt):
        write_features(source, Doubled(), path, MADE_FROM, encoder=Alone(source, Doubled(), 2))
    tile = tiles_of(path) / "tile-000000001"
    content = tile.read_bytes()
    if change == "facts":
        made_from["split"] = "test"
        again = Alone(source, Doubled())
        write_features(source, Doubled(), path, made_from, encoder=again)
        assert again.made == [0, 1, 2, 3, 4]
        return
    tile.write_bytes({"torn": content[:-1], "edited": b"\1" + content[1:], "another's": b""}[change])
    folder = TileFolder.at(path, None)
    assert folder.read(1, TILE, DIM) is None
    assert folder.read(0, TILE, DIM) is not None
    assert folder.read(2, TILE, DIM) is None


def test_a_folder_with_anything_else_is_left_alone(tmp_path: Path, source: Source) -> None:
    place = tiles_of(tmp_path / "STORE")
    place.mkdir(mode=0o700)
    (place / "precious").touch()
    with refuses(".STORE.tiles"):
        write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=Alone(source, Doubled()))
    assert (place / "precious").exists()
    (place / "precious").unlink()
    place.rmdir()
    place.symlink_to(tmp_path)
    with refuses(".STORE.tiles"):
        write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=Alone(source, Doubled()))


def test_another_kind_of_machine_makes_no_tile(tmp_path: Path, source: Source) -> None:
    """Not even one that nobody looks at until the work has failed, and that the next attempt would take."""
    folder = TileFolder.beside(tmp_path / "S", {})
    other = TilePlace(str(tmp_path / "S"), TILE, DIM, folder.facts, runtime={"device": "another"})
    said = encode_tiles(other, range(1), source, Doubled())
    assert said == Doubled().runtime()
    assert folder.there() == set()
    assert encode_tiles(replace(other, runtime=said), range(1), source, Doubled()) == said
    assert folder.there() == {0}


def test_a_machine_without_the_folder_says_so(tmp_path: Path, source: Source) -> None:
    place = TilePlace(str(tmp_path / "elsewhere"), TILE, DIM, b"")
    with pytest.raises(StorageError, match="share the folder"):
        encode_tiles(place, range(1), source, Doubled())
    with pytest.raises(StorageError, match="share the folder"):
        TileFolder.at(tmp_path / "elsewhere", None)


def test_a_tile_that_two_make_is_whole(tmp_path: Path, source: Source) -> None:
    """The second one begins while the first is in the midst of its file."""
    folder = TileFolder.beside(tmp_path / "STORE", {})
    x, y = np.ones((TILE, DIM), np.float32), np.zeros(TILE, np.int64)
    with folder._folder.new("tile-000000000", draft=".tile-000000000.first.draft") as stream:
        stream.write(b"half")
        stream.flush()
        folder.write(0, x, y)
        found = folder.read(0, TILE, DIM)
        assert found is not None
        assert np.array_equal(found[0], x)
        stream.seek(0)
        stream.write((tiles_of(tmp_path / "STORE") / "tile-000000000").read_bytes())
    assert folder.read(0, TILE, DIM) is not None
    assert folder.there() == {0}


def test_a_record_that_does_not_fit_is_not_shown(tmp_path: Path) -> None:
    table = pa.table({"p": [1.0, float("inf"), 424242.0], "label": [0, 1, 1]})
    pq.write_table(table, tmp_path / "bad.parquet")
    source = open_dataset(tmp_path / "bad.parquet", classes=2)
    with pytest.raises(InvalidInput) as refused:
        write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=Alone(source, Doubled()))
    assert "424242" not in str(refused.value)


def test_a_worker_writes_no_tile_of_data_that_changed(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
    data(tmp_path)
    source = open_dataset(f"local://{tmp_path / 'd.parquet'}", classes=CLASSES)
    data(tmp_path)
    encoder = Alone(source, Doubled())
    with refuses("data"):
        write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=encoder)
    assert not encoder.made
    assert not (tmp_path / "STORE").exists()


def test_killed_workers_change_no_byte(cluster: Any, tmp_path: Path, source: Source, whole: FeatureStore) -> None:
    dying = Cluster(on_task_start=die_once(tmp_path / "died"))
    with ClusterEncoder.on(dying, source, Doubled()) as encoder:
        made = write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=encoder)
    assert (tmp_path / "died").exists()
    assert np.array_equal(made.features, whole.features)
    assert {path.name for path in tmp_path.iterdir()} == {"d.parquet", "whole", "STORE", "died"}


def test_workers_read_data_at_an_address_in_place(cluster: Any, tmp_path: Path, whole: FeatureStore) -> None:
    pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
    source = open_dataset(f"local://{tmp_path / 'd.parquet'}", classes=CLASSES)
    assert source.travels
    with ClusterEncoder.on(Cluster(), source, Doubled()) as encoder:
        made = write_features(source, Doubled(), tmp_path / "STORE", MADE_FROM, encoder=encoder)
    assert np.array_equal(made.features, whole.features)
