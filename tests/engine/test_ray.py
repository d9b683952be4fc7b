"""The Ray engine gives the rows of the local one, also when workers and machines are lost: two real nodes."""

import contextlib
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.designs.stages.engine import TwoStageEngine
from privmix.engine.cluster import ClusterLost, _check_mode, _check_reachable, _check_token_asked, check_places, lacks
from privmix.engine.grouping import store_by_person
from privmix.engine.ray import Cluster, PassTask, RayReleaseEngine, RowPass
from privmix.engine.records import ArrayTiles
from privmix.engine.rows import PrivateRecords, ReleaseEngine
from privmix.errors import InvalidInput, MissingExtra
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.registry import design_named
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform
from privmix.releases.run import release_to_folder
from privmix.releases.verify import verify_release
from tests.engine.test_grouping import stored as in_store
from tests.golden.freeze import CASES, FROZEN, release_digests
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, make_plan, make_records

COUNT = 2 * RECORD_TILE + 700


@pytest.fixture(scope="module")
def records() -> PrivateRecords:
    return make_records(COUNT, 3)


def rows_of(engine: Any) -> np.ndarray:
    blocks = list(engine.rows())
    return np.concatenate([np.hstack([block.x, block.y]) for block in blocks])


def local(plan: ReleasePlan, records: PrivateRecords) -> np.ndarray:
    return rows_of(ReleaseEngine(plan, records, SecretStreams.from_seed(3)))


@pytest.mark.parametrize("choices", [{}, {"design": "random-weight", "max_weight": 0.5}], ids=["poisson", "weights"])
def test_rows_are_those_of_the_local_engine(cluster: Any, records: PrivateRecords, choices: dict[str, Any]) -> None:
    plan = make_plan(COUNT, 3, rows=2_500, **choices)
    engine = RayReleaseEngine(plan, records, SecretStreams.from_seed(3), tiles_at_once=2)
    np.testing.assert_array_equal(rows_of(engine), local(plan, records))


@pytest.mark.parametrize(
    "name", [name for name, choices in CASES.items() if "ray" in design_named(choices["design"]).engines]
)
def test_releases_are_those_of_the_local_engine(cluster: Any, name: str, tmp_path: Path) -> None:
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))["releases"][name]
    found = release_digests(tmp_path / "REL", CASES[name], engine="ray", workers=2)
    assert {part: frozen[part] for part in found} == found


def die_once(marker: Path) -> Callable[[], None]:
    def hook() -> None:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    return hook


def test_a_killed_worker_changes_no_bit(cluster: Any, records: PrivateRecords, tmp_path: Path) -> None:
    plan, marker = make_plan(COUNT, 3, rows=1_500, centre="none"), tmp_path / "died"
    engine = RayReleaseEngine(
        plan, records, SecretStreams.from_seed(3), cluster=Cluster(on_task_start=die_once(marker))
    )
    np.testing.assert_array_equal(rows_of(engine), local(plan, records))
    assert marker.exists()


def test_a_killed_worker_changes_no_bit_of_moments(cluster: Any, records: PrivateRecords, tmp_path: Path) -> None:
    """Of persons in a store, which workers open by its path."""
    whose = np.random.default_rng(0).integers(0, COUNT // 2, COUNT)
    by_person = store_by_person(in_store(tmp_path, records), whose, tmp_path / "by-person")
    persons = len(np.unique(whose))
    plan: Any = ReleaseConfig(
        records=persons, dim=3, classes=CLASSES, design="two-stage", rows=10, per_person=1
    ).with_noise(1.0)
    marker, found = tmp_path / "died", list[dict[str, Any]]()
    dying = Cluster(on_task_start=die_once(marker))
    for given, where in ((PrivateRecords(records.features, records.labels, whose), None), (by_person, dying)):
        engine = TwoStageEngine(plan, given, SecretStreams.from_seed(3), cluster=where)
        list(engine.rows())
        found.append(vars(engine.beside))
    assert marker.exists()
    for name, number in found[0].items():
        np.testing.assert_array_equal(number, found[1][name])


def test_a_worker_that_always_dies_is_one_line_and_the_run_resumes(
    cluster: Any, records: PrivateRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(COUNT, 3, rows=500, centre="none")
    facts: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (3,)}
    doomed = Cluster(max_retries=0, on_task_start=lambda: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr("privmix.engine.engines.Cluster", lambda _address: doomed)
    with pytest.raises(ClusterLost) as caught:
        release_to_folder(plan, records, SecretStreams.from_seed(3), tmp_path / "rel", engine="ray", **facts)
    assert "\n" not in str(caught.value)
    release_to_folder(plan, records, None, tmp_path / "rel", resume=True, **facts)
    verify_release(tmp_path / "rel")
    release_to_folder(plan, records, SecretStreams.from_seed(3), tmp_path / "other", **facts)
    shard = "data/train-00000-of-00001.parquet"
    assert (tmp_path / "rel" / shard).read_bytes() == (tmp_path / "other" / shard).read_bytes()


def test_bad_records_on_a_worker_are_not_shown(cluster: Any) -> None:
    features = np.zeros((600, 7), np.float32)
    features[17, 3] = np.nan
    engine = RayReleaseEngine(make_plan(), PrivateRecords(features, make_records().labels), SecretStreams.from_seed(0))
    with refuses("features") as caught:
        list(engine.rows())
    assert "nan" not in str(caught.value).lower().replace("finite", "")


def test_a_cluster_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    with pytest.raises(ClusterLost, match=r"127\.0\.0\.1:1$"):
        _check_reachable("ray://127.0.0.1:1")
    for none in (None, "auto", "local"):
        _check_reachable(none)


# Machines that do not see what work needs are found before it begins.


def test_a_machine_sees_the_word_in_a_file_of_its_own_user_and_the_data(tmp_path: Path) -> None:
    place, here, data = tmp_path / "word", str(tmp_path), tmp_path / "d.csv"
    assert lacks(str(place), "abc", (), here) == "folder"
    place.write_text("abd")
    place.chmod(0o600)
    assert lacks(str(place), "abc", (), here) == "folder"
    assert lacks(str(place), "abd", (), here) == ""
    # Also by relative names.
    data.write_text("secret")
    assert lacks(str(place), "abd", (Path("d.csv"), data), here) == ""
    assert lacks(str(place), "abd", (data, Path("e.csv")), here) == "data"
    place.chmod(0o644)
    assert lacks(str(place), "abd", (), here) == "folder"


@pytest.mark.parametrize(("said", "field"), [("folder", "out, store"), ("data", "data")])
def test_one_machine_that_lacks_something_is_enough(
    tmp_path: Path, said: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def asked(place: str, word: str, *_: Any) -> list[str]:
        seen.append((Path(place).read_text() == word, os.stat(place).st_mode & 0o777))
        return ["", said, ""]

    monkeypatch.setattr("privmix.engine.cluster._asked", asked)
    with pytest.raises(InvalidInput) as refused:
        check_places(tmp_path, (tmp_path / "d.csv",))
    assert refused.value.field == field
    assert seen == [(True, 0o600)]
    assert not list(tmp_path.iterdir())


def test_every_machine_of_a_cluster_is_asked(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    asked: list[int] = []
    original = ray.get
    monkeypatch.setattr(
        ray,
        "get",
        lambda refs, **more: (asked.append(len(refs) if isinstance(refs, list) else 1), original(refs, **more))[1],
    )
    with Cluster().open():
        check_places(tmp_path, ())
        assert asked[-1] == 2
        with refuses("data"):
            check_places(tmp_path, (tmp_path / "nothing",))
    assert not list(tmp_path.iterdir())


# A cluster of one's own: what it writes is spilled to disk, and others on the machine look for it.

SPILLING = """
import functools, os, sys
os.umask(0o022)
import numpy as np
import ray
import privmix.engine.ray
from privmix.engine.rows import PrivateRecords
from privmix.planning import ReleaseConfig
from privmix.mechanisms.streams import SecretStreams
from privmix.engine.ray import RayReleaseEngine
ray.init = functools.partial(ray.init, object_store_memory=80 * 2**20, num_cpus=1)
features = np.full((20_000, 2_000), 0.01, np.float32)
features[0] = np.frombuffer(sys.argv[1].encode() * 2_000, np.float32)[:2_000]
settings = dict(records=20_000, dim=2_000, classes=("a", "b"), mixup_degree=64, rows=4_000, centre="none")
plan = ReleaseConfig(**settings).with_noise(3.0)
engine = RayReleaseEngine(plan, PrivateRecords(features, np.zeros(20_000, np.int64)), SecretStreams.from_seed(1))
def announced(started, tell):
    # Records, the sums of two parts and of both, which are more than the store holds.
    ray.wait([*started._ends, started._whole], num_returns=len(started._ends) + 1)
    key = started._key._key.hex()
    print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"], key, flush=True)
    sys.stdin.readline()
privmix.engine.ray.Started.sums = announced
next(engine.rows())
"""
STRANGER = """
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1])
except Exception as error:
    print(type(error).__name__)
else:
    print("joined")
"""
SECRET = "PRIV"
AGENTS = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")
STORE_BYTES = 80 * 2**20
PLAIN = np.full(2**20, 0.01, np.float32).tobytes()


def reachable(top: Path) -> list[Path]:
    """What another user can enter, read or write below ``top``, by the modes on the whole way."""
    found = []
    for entry in os.scandir(top):
        mode = entry.stat(follow_symlinks=False).st_mode
        if mode & 0o077 and not entry.is_symlink():
            found.append(Path(entry.path))
        if entry.is_dir(follow_symlinks=False) and mode & 0o011:
            found += reachable(Path(entry.path))
    return found


def processes(*variables: str) -> list[Path]:
    """Places in /proc of those whose environment has all of them."""
    found, wanted = [], {variable.encode() for variable in variables}
    for process in Path("/proc").glob("[0-9]*"):
        # They come and go, and some are others'.
        with contextlib.suppress(OSError):
            if wanted <= set((process / "environ").read_bytes().split(b"\0")):
                found.append(process)
    return found


def with_records(variable: str) -> list[bytes]:
    """Titles of such processes that may have records in memory."""
    found = []
    for process in processes(variable):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_bytes())
    return [title for title in found if not title.startswith(AGENTS)]


def stored(variable: str) -> list[bytes]:
    """What is in the memory that such processes share, and in files of theirs that have no name any more."""
    found: dict[tuple[int, int], bytes] = {}
    for process in processes(variable):
        with contextlib.suppress(OSError):
            for entry in (process / "fd").iterdir():
                at, place = entry.stat(), os.readlink(entry)
                if ("shm" in place or place.endswith("(deleted)")) and stat.S_ISREG(at.st_mode):
                    found.setdefault((at.st_dev, at.st_ino), entry.read_bytes())
    return [content for content in found.values() if len(content) > STORE_BYTES // 2]


def listening(variable: str) -> set[str]:
    """Addresses on which processes whose environment has ``variable`` wait for connections, as in /proc/net."""
    sockets = set()
    for process in processes(variable):
        with contextlib.suppress(OSError):
            sockets |= {os.readlink(entry) for entry in (process / "fd").iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                found.add(local.split(":")[0])
    return found


# 127.0.0.1, ::1, and the first as an address of the second kind.
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.thorough
def test_nobody_else_reaches_what_a_cluster_of_ones_own_spills_also_after_a_kill() -> None:
    """It is encrypted, too, and its key is gone with the processes."""
    pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    # Not pytest's folder: the paths of Ray's sockets must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        os.chmod(top, 0o755)
        settings = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        settings |= {"TMPDIR": top, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            [sys.executable, "-c", SPILLING, SECRET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=settings,
        ) as driver:
            try:
                assert driver.stdout is not None
                address, token, key = driver.stdout.readline().split()
                # On this machine, with the cluster's address: without its token, with another, and with its own.
                tried = {
                    secret: subprocess.run(
                        [sys.executable, "-c", STRANGER, address],
                        capture_output=True,
                        text=True,
                        env=settings | ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secret} if secret else {}),
                        check=False,
                    ).stdout.strip()
                    for secret in ("", "another", token)
                }
                assert tried == {"": "AuthenticationError", "another": "AuthenticationError", token: "joined"}
                assert reachable(Path(top)) == []
                at = listening(f"TMPDIR={top}")
                assert at, "no process of the cluster was found"
                assert at <= LOOPBACK
                objects = stored(f"TMPDIR={top}")
                assert objects, "no object store was found"
                for content in objects:
                    assert bytes.fromhex(key) not in content
                    assert SECRET.encode() * 8 not in content
            finally:
                driver.kill()
        spilled = [path.read_bytes() for path in Path(top).rglob("*ray_spilled_objects*/*") if path.is_file()]
        assert sum(map(len, spilled)) > STORE_BYTES, "nothing was spilled to look for"
        # Records are all alike but one, and so are their sums.
        assert len(zlib.compress(PLAIN, 1)) < 0.05 * len(PLAIN)
        for content in spilled:
            assert SECRET.encode() * 8 not in content
            assert len(zlib.compress(content, 1)) > 0.99 * len(content)
        for path in Path(top).rglob("*"):
            assert not path.is_file() or bytes.fromhex(key) not in path.read_bytes(), path
        assert reachable(Path(top)) == []
        # Ray's own processes end some seconds after their driver, and write until then; its agents a minute later.
        for _ in range(100):
            if not with_records(f"TMPDIR={top}"):
                break
            time.sleep(0.5)
        assert with_records(f"TMPDIR={top}") == []
        # The next start.
        settings_of_next = [sys.executable, "-c", "from privmix.scratch import clear_scratch; clear_scratch()"]
        for _ in range(100):
            subprocess.run(settings_of_next, env=settings, check=True)
            if not os.listdir(top):
                break
            time.sleep(0.5)
        assert os.listdir(top) == []


@pytest.mark.parametrize("mode", ["", "off"])
def test_a_cluster_without_a_token_is_refused(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with refuses("RAY_AUTH_MODE"):
        _check_mode()
    with refuses("RAY_AUTH_MODE"):
        _check_token_asked()
    for said in ("token", "disabled"):
        monkeypatch.setenv("RAY_AUTH_MODE", said)
        _check_mode()


def test_a_cluster_whose_workers_ask_for_no_token_is_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_token_asked()
    monkeypatch.setattr("ray.get", lambda _: "disabled")
    with refuses("engine"):
        _check_token_asked()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"\.\[ray\]"):
        RayReleaseEngine(make_plan(), make_records(), SecretStreams.from_seed(0))


def test_workers_get_no_key_to_the_noise() -> None:
    key = bytearray(range(100, 132))
    streams = SecretStreams(key, insecure_seed=False)
    child = streams.derive("membership")
    records = make_records()
    plan, tiles = make_plan(), ArrayTiles(records.features, records.labels)
    one = RowPass(plan, tiles.units, range(1), RecordTransform(plan.clip_norm), child.share())
    sent = pickle.dumps((PassTask(plan, tiles), one))
    assert bytes(key) not in sent
    assert child.share() in sent
    with pytest.raises(RuntimeError, match="derived"):
        streams.share()
