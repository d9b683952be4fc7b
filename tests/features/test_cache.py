"""From records to a store on disk: made once, reused, resumed after a kill, one process at a time."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.data import ArraySource, FeatureStore, LabelledArray
from privmix.errors import InvalidInput, StorageError
from privmix.features.cache import kept_features, store_facts, write_features
from privmix.features.identity import Pixels
from tests.refusals import refuses

MADE_FROM = {"split": "train", "files": [("a.npz", 3, 4)]}
# A writer in a process of its own: slow enough to be killed at any moment, and checkpoints after every step.
SCRIPT = """
import sys, time
from pathlib import Path
import privmix.data.partial as partial
from privmix.features.cache import write_features
from tests.features.test_cache import MADE_FROM, Slow, source
partial.CHECKPOINT_SECONDS = 0.0
Slow.pause = 0.03
print("ready", flush=True)
write_features(source(), Slow(), Path(sys.argv[1]), MADE_FROM)
"""


class Slow(Pixels):
    """Pixels a few at a time; counts what it is given."""

    step: ClassVar[int] = 7
    pause: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self.seen = 0
        self.setting = "cpu"

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        self.seen += len(x)
        time.sleep(self.pause)
        return super().transform(x)

    def runtime(self) -> dict[str, Any]:
        return {"device": self.setting}


def source(records: int = 300) -> ArraySource:
    rng = np.random.default_rng(0)
    return ArraySource(rng.integers(0, 256, (records, 3, 4), dtype=np.uint8), rng.integers(0, 2, records), ("a", "b"))


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


class Interrupted(ArraySource):
    error: BaseException = KeyboardInterrupt()
    batches_before: int = 10

    def batches(self, size: int, *span: Any) -> Iterator[LabelledArray]:
        for number, batch in enumerate(super().batches(size, *span)):
            if number == self.batches_before:
                raise self.error
            yield batch


def interrupted(error: BaseException, batches: int = 10) -> Interrupted:
    whole = source().read()
    broken = Interrupted(whole.x, whole.y, whole.schema.classes)
    broken.error, broken.batches_before = error, batches
    return broken


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privmix.data.partial.CHECKPOINT_SECONDS", 0.0)


def test_written_once_and_reused(tmp_path: Path) -> None:
    path, extractor, seen = tmp_path / "store", Slow(), []
    store = write_features(source(), extractor, path, MADE_FROM, lambda *step: seen.append(step))
    whole = source().read()
    assert np.array_equal(store.features, Pixels().transform(whole.x))
    assert np.array_equal(store.labels, whole.y)
    assert seen[0] == ("features (pixels)", 7, 300)
    assert seen[-1] == ("features (pixels)", 300, 300)
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]
    again = write_features(source(), extractor, path, MADE_FROM)
    assert np.array_equal(again.features, store.features)
    assert extractor.seen == 300


def test_a_store_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write_features(source(), Pixels(), path, MADE_FROM)
    for data, made_from in ((source(299), MADE_FROM), (source(), {**MADE_FROM, "split": "test"})):
        with refuses("feature store"):
            write_features(data, Pixels(), path, made_from)
    assert kept_features(tmp_path / "none", Pixels(), MADE_FROM, source().schema) is None
    content = bytearray((path / "features.npy").read_bytes())
    content[-1] ^= 1
    (path / "features.npy").write_bytes(content)
    with pytest.raises(InvalidInput, match="as they were written"):
        kept_features(path, Pixels(), MADE_FROM, source().schema)


def test_facts_survive_json() -> None:
    facts = store_facts(Pixels(), MADE_FROM)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["source"]["files"] == [["a.npz", 3, 4]]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError("disk full"), RuntimeError()], ids=repr)
def test_an_interruption_keeps_the_rows(tmp_path: Path, error: BaseException) -> None:
    whole = write_features(source(), Slow(), tmp_path / "whole", MADE_FROM)
    path = tmp_path / "store"
    with pytest.raises(type(error)):
        write_features(interrupted(error), Slow(), path, MADE_FROM)
    assert not path.exists()
    assert (tmp_path / ".store.partial").stat().st_mode & 0o777 == 0o700
    extractor = Slow()
    write_features(source(), extractor, path, MADE_FROM)
    assert extractor.seen == 300 - 70
    assert contents(path) == contents(whole.path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["store", "whole"]


@pytest.mark.usefixtures("eager")
def test_bad_records_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        write_features(interrupted(InvalidInput("label", 3, "2")), Slow(), tmp_path / "store", MADE_FROM)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("change", ["made_from", "runtime", "content", "short", "torn", "facts"])
def test_rows_of_something_else_are_not_taken_over(tmp_path: Path, change: str) -> None:
    path, extractor, made_from = tmp_path / "store", Slow(), dict(MADE_FROM)
    with pytest.raises(KeyboardInterrupt):
        write_features(interrupted(KeyboardInterrupt()), Slow(), path, MADE_FROM)
    features = tmp_path / ".store.partial" / "features.npy"
    if change == "made_from":
        made_from["split"] = "test"
    elif change == "runtime":
        extractor.setting = "gpu"
    elif change == "content":
        content = bytearray(features.read_bytes())
        content[200] ^= 1
        features.write_bytes(content)
    elif change == "short":
        os.truncate(features, 1000)
    elif change == "torn":
        # What is no whole row is cut off, and the rows before it stay.
        with features.open("ab") as file:
            file.write(b"torn")
    else:
        (tmp_path / ".store.partial" / "progress.json").write_text("{")
    store = write_features(source(), extractor, path, made_from)
    assert extractor.seen == (300 - 70 if change == "torn" else 300)
    whole = write_features(source(), extractor, tmp_path / "whole", made_from)
    assert contents(store.path) == contents(whole.path)


def test_the_partial_folder_is_not_followed_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    (tmp_path / "elsewhere").chmod(0o700)
    partial = tmp_path / ".store.partial"
    partial.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="only its owner can open"):
        write_features(source(), Slow(), tmp_path / "store", MADE_FROM)
    partial.unlink()
    # What somebody moved there is not emptied either.
    (tmp_path / "elsewhere").rename(partial)
    with refuses(".store.partial"):
        write_features(source(), Slow(), tmp_path / "store", MADE_FROM)
    assert [entry.name for entry in partial.iterdir()] == ["precious"]
    (partial / "precious").unlink()
    partial.chmod(0o750)
    with pytest.raises(InvalidInput, match="only its owner can open"):
        write_features(source(), Slow(), tmp_path / "store", MADE_FROM)
    partial.chmod(0o700)
    write_features(source(), Slow(), tmp_path / "store", MADE_FROM)


def test_a_store_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    path = write_features(source(), Slow(), tmp_path / "store", MADE_FROM).path
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(InvalidInput, match="only its owner can open"):
        FeatureStore.open(tmp_path / "link")
    path.chmod(0o755)
    with pytest.raises(InvalidInput, match="only its owner can open"):
        FeatureStore.open(path)


def begin(path: Path) -> Any:
    schema = source().schema
    return FeatureStore.create(path, 300, 12, schema=schema, extractor=store_facts(Slow(), MADE_FROM), resume=True)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    writer = begin(tmp_path / "store")
    with pytest.raises(StorageError, match="another process is writing it"):
        write_features(source(), Slow(), tmp_path / "store", MADE_FROM)
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(StorageError, match="another process"):
        pool.apply(begin, (tmp_path / "store",))
    writer.leave()
    assert list(tmp_path.iterdir()) == []
    write_features(source(), Slow(), tmp_path / "store", MADE_FROM)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Three times kill -9, then a run to the end: the same bytes as a run that nobody disturbed."""
    whole = write_features(source(), Slow(), tmp_path / "whole", MADE_FROM)
    path = tmp_path / "store"
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    rows = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path)], env=environment, stdout=subprocess.PIPE, cwd=root
        )
        assert process.stdout is not None
        with process, process.stdout as output:
            assert output.readline() == b"ready\n"
            time.sleep(random.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
        progress = tmp_path / ".store.partial" / "progress.json"
        rows.append(json.loads(progress.read_text())["rows"] if progress.is_file() else 300 * path.exists())
    assert rows == sorted(rows)
    extractor = Slow()
    write_features(source(), extractor, path, MADE_FROM)
    assert extractor.seen == 300 - rows[-1]
    assert contents(path) == contents(whole.path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["store", "whole"]
