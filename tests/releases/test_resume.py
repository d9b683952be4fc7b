"""Runs that are interrupted: resumed to the same bits, never under other data, and never by two at a time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.certificate.certificate import Certificate
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput, StorageError
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.rows import ReleasePlan
from privmix.releases import folder as release_folder
from privmix.releases.run import ReleaseRun, release_to_folder
from privmix.releases.verify import verify_release
from tests.processes import killing
from tests.refusals import refuses
from tests.releases.helpers import make_plan, make_records

FACTS: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (7,)}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_folder, "SHARD_ROWS", 1024)


@pytest.fixture(scope="module")
def plan() -> ReleasePlan:
    return make_plan(rows=12_000)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stop_after(blocks: int) -> Any:
    """Ctrl-C once so many blocks of rows are out."""
    seen = []

    def progress(stage: str, done: int, total: int) -> None:
        seen.extend([done] if stage == "rows" else [])
        if len(seen) > blocks:
            raise KeyboardInterrupt

    return progress


def released(out: Path, plan: ReleasePlan, seed: int | None = 1, **options: Any) -> Certificate:
    """A release under a seed; without one, what is left of it goes on."""
    streams = None if seed is None else SecretStreams.from_seed(seed)
    records = options.pop("records", None) or make_records()
    return release_to_folder(plan, records, streams, out, resume=seed is None, **{**FACTS, **options})


def interrupted(out: Path, plan: ReleasePlan, blocks: int = 1) -> None:
    with pytest.raises(KeyboardInterrupt):
        released(out, plan, progress=stop_after(blocks))


# Killed at any file operation. Children are forked before anything has started threads; each dies by SIGKILL.

SCRIPT = """
import random, signal, sys, uuid
from pathlib import Path
import numpy as np
import torch
from privmix.engine.rows import PrivateRecords
from privmix.planning import ReleaseConfig
from privmix.mechanisms.streams import SecretStreams
from privmix.releases.run import release_to_folder
from privmix.releases.run import ReleaseRun
from privmix.releases import folder as release_folder
from privmix.certificate.certificate import Certificate, content_hash
from privmix.releases import run as release_run
from tests.processes import child, hooked
torch.set_num_threads(1)
release_folder.SHARD_ROWS = 1024
uuid.uuid4 = lambda: uuid.UUID(int=7)
root = Path(sys.argv[1])
rng = np.random.default_rng(0)
records = PrivateRecords(rng.normal(size=(300, 3)).astype(np.float32), rng.integers(0, 2, 300))
plan = ReleaseConfig(records=300, dim=3, classes=("a", "b"), mixup_degree=4, rows=9_000)
plan = plan.with_noise(3.0).priced(1e-5)
# Pricing takes most of the time and is the same each time.
priced = {}
def once(plan, **facts):
    if not priced:
        priced.update(make(plan, **{**facts, "files": []}))
    content = {**priced, "files": [dict(item) for item in facts["files"]]}
    return Certificate({**content, "content_sha256": content_hash(content)})
make, release_run.make_certificate = release_run.make_certificate, once

def run(out, resume=False):
    release_to_folder(plan, records, SecretStreams.from_seed(1), out, workers=1, resume=resume,
                      extractor={"name": "identity"}, input_shape=(3,), extra={"reservation": "r1"})

def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

once(plan, extractor={"name": "identity"}, input_shape=(3,), insecure_seed=True,
     files=[])
assert child(lambda: hooked(lambda: run(root / "whole"), 0, root / "count")) == 0
expected, steps = files(root / "whole"), int((root / "count").read_text())
(root / "count").unlink()
kills = resumed = 0
random.seed(0)
for number, at in enumerate(range(1, steps + 1, int(sys.argv[2]))):
    out = root / f"run{at}"
    code = child(lambda: hooked(lambda: run(out), at))
    assert code == -signal.SIGKILL, (at, code)
    kills += 1
    if number % 3 == 0 and ReleaseRun.interrupted(out):  # killed again while it resumes
        child(lambda: hooked(lambda: run(out, True), random.randrange(1, 40)))
    state = ReleaseRun.interrupted(out)
    assert not out.exists() or files(out) == expected, at
    if not out.exists():
        if state and not state.complete:
            assert state.extra == {"reservation": "r1"}, at
        resumed += state is not None
        assert child(lambda: run(out, state is not None)) == 0, at
    assert files(out) == expected, at
    assert not (root / f".run{at}.run").exists(), at
print("kills", kills, "resumed", resumed, "steps", steps)
"""


def test_a_run_killed_at_any_step_resumes_to_the_same_bits(tmp_path: Path) -> None:
    kills, resumed, _ = killing(SCRIPT, tmp_path, 5, timeout=120)
    assert kills >= 20
    assert resumed >= 15


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path: Path, plan: ReleasePlan) -> None:
    released(tmp_path / "whole", plan)
    interrupted(tmp_path / "rel", plan)
    state = ReleaseRun.interrupted(tmp_path / "rel")
    assert not state.complete
    shards = sorted((tmp_path / ".rel.run" / "data").iterdir())
    kept = [(shard.name, shard.stat().st_mtime_ns) for shard in shards]
    assert len(kept) == 8
    last = shards[-1]
    last.write_bytes(last.read_bytes()[:-1])  # as a disk may lose it: found by its hash, and made again
    assert released(tmp_path / "rel", plan, None).id == state.id
    for name, written in kept[:-1]:
        assert (tmp_path / "rel" / "data" / name).stat().st_mtime_ns == written
    whole, resumed = content(tmp_path / "whole"), content(tmp_path / "rel")
    for name in ("certificate.json", "croissant.json"):
        assert whole.pop(name) != resumed.pop(name)  # another release's name
    assert whole == resumed
    verify_release(tmp_path / "rel")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rel", "whole"]


def test_the_same_noise_is_never_added_to_other_data(tmp_path: Path, plan: ReleasePlan) -> None:
    out, records = tmp_path / "rel", make_records()
    interrupted(out, plan)
    features, labels = records.features.copy(), records.labels.copy()
    features[17, 3] = np.nextafter(features[17, 3], np.float32(9))
    labels[3] = (labels[3] + 1) % 3
    before = content(tmp_path / ".rel.run")
    for other in (
        PrivateRecords(features, records.labels),
        PrivateRecords(records.features, labels),
        PrivateRecords(records.features[:-1], records.labels[:-1]),
        PrivateRecords(records.features.astype(np.float64), records.labels),
    ):
        with refuses("data"):
            released(out, plan, None, records=other)
    assert content(tmp_path / ".rel.run") == before
    others = [replace(plan, **one) for one in ({"epsilon": 5.0}, {"delta": 2e-5}, {"records_declared": True})]
    for other, more in ((plan, {"extractor": {"name": "pixels"}}), *((one, {}) for one in others)):
        with pytest.raises(InvalidInput, match="resume"):
            released(out, other, None, **more)
    with refuses("`resume` with plan.noise_multiplier"):
        released(out, make_plan(rows=11_000), None)
    released(out, plan, None)
    verify_release(out)


def test_the_run_folder_is_private_and_the_key_ends_with_the_run(tmp_path: Path, plan: ReleasePlan) -> None:
    key, draft = bytes(range(100, 132)), tmp_path / ".rel.run"
    streams = SecretStreams(bytearray(key), insecure_seed=False)
    with pytest.raises(KeyboardInterrupt):
        release_to_folder(plan, make_records(), streams, tmp_path / "rel", progress=stop_after(0), **FACTS)
    assert draft.stat().st_mode & 0o777 == 0o700
    assert (draft / "run.key").stat().st_mode & 0o777 == 0o600
    assert [name for name, data in content(draft).items() if key in data] == ["run.key"]
    with (draft / "run.key").open("rb") as same_file:
        released(tmp_path / "rel", plan, None)
        assert same_file.read() == bytes(33)
    assert not any(key in data for data in content(tmp_path / "rel").values())
    files = {"data", "certificate.json", "README.md", "croissant.json", "centre.safetensors"}
    assert {path.split("/")[0] for path in content(tmp_path / "rel")} == files
    assert verify_release(tmp_path / "rel").warnings == ()


def test_options_that_do_not_exist_cost_no_run(tmp_path: Path, plan: ReleasePlan) -> None:
    for seed, options in ((1, {"engine": "abacus"}), (None, {"memory_gb": -1})):
        with pytest.raises(InvalidInput):
            released(tmp_path / "rel", plan, seed, **options)
    released(tmp_path / "rel", plan, None)


def test_a_run_is_there_before_its_features(tmp_path: Path, plan: ReleasePlan) -> None:
    """The order of the command line: reserve, begin the run, extract into it, release."""
    out = tmp_path / "rel"
    assert ReleaseRun.interrupted(out) is None
    with ReleaseRun(out, plan, extra={"reservation": "abc"}, **FACTS) as run:
        run.features_folder.mkdir()
        (run.features_folder / "features.npy").write_bytes(b"half")
    state = ReleaseRun.interrupted(out)
    assert (dict(state.extra), state.complete) == ({"reservation": "abc"}, False)
    with ReleaseRun(out, plan, resume=True, **FACTS) as run:
        assert (run.resumed, run.extra) == (True, {"reservation": "abc"})
        assert (run.features_folder / "features.npy").read_bytes() == b"half"
        assert run.release(make_records()).id == state.id
    assert not (out / "features").exists()
    verify_release(out)


def test_a_finished_run_that_was_not_put_in_place_needs_no_records(
    tmp_path: Path, plan: ReleasePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("privmix.mechanisms.run.put_in_place", fail)
        with pytest.raises(StorageError, match="No space"):
            released(tmp_path / "rel", plan)
    assert ReleaseRun.interrupted(tmp_path / "rel").complete
    with ReleaseRun(tmp_path / "rel", plan, resume=True, **FACTS) as run:
        assert run.complete
        run.release()
    verify_release(tmp_path / "rel")


def test_the_picture_is_the_one_that_the_run_began_with(tmp_path: Path, plan: ReleasePlan) -> None:
    picture = b"<svg/>"
    options = {**FACTS, "choice": {"best": "poisson"}, "picture": picture}
    with ReleaseRun(tmp_path / "rel", plan, **options):
        pass
    shown = tmp_path / ".rel.run" / "predictions.svg"
    shown.write_bytes(b"<svg>private</svg>")
    with refuses(".rel.run/predictions.svg"):
        ReleaseRun(tmp_path / "rel", plan, resume=True, **options)
    shown.write_bytes(picture)
    with ReleaseRun(tmp_path / "rel", plan, resume=True, **options) as run:
        assert run.resumed


def test_shards_that_the_key_did_not_note_are_made_again(tmp_path: Path, plan: ReleasePlan) -> None:
    """Somebody's rows, noted in the journal with their hash, would be published under our certificate."""
    released(tmp_path / "whole", plan)
    interrupted(tmp_path / "rel", plan)
    journal, shards = tmp_path / ".rel.run" / "run.shards", sorted((tmp_path / ".rel.run" / "data").iterdir())
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    shards[0].write_bytes(shards[1].read_bytes())
    lines[0]["sha256"] = lines[1]["sha256"]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    released(tmp_path / "rel", plan, None)
    shard = "data/train-00000-of-00012.parquet"
    assert (tmp_path / "rel" / shard).read_bytes() == (tmp_path / "whole" / shard).read_bytes()
