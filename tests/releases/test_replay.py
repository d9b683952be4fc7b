"""Releases made again by their sealed key: equal to the last bit, or it is said where not; no test sees as much."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.certificate.certificate import content_hash
from privmix.certificate.sealed_key import SEALED_FILE, Auditor, AuditorKey, bound_to, commitment_of, open_sealed
from privmix.engine import rows as row_engine
from privmix.engine.engines import make_engine
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.run_folder import beside
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.rows import ReleasePlan
from privmix.releases import run as release_run
from privmix.releases.certificate import read_certificate
from privmix.releases.run import ReleaseRun
from privmix.releases.verify import verify_release
from tests.processes import killing
from tests.refusals import refuses
from tests.releases.auditors import opened, release_for, replayed
from tests.releases.helpers import EVERY_DESIGN, design_name, make_plan, make_records
from tests.releases.test_resume import content

KEY = AuditorKey.new()
ROWS = 3000


@pytest.fixture(scope="module")
def plan() -> ReleasePlan:
    return make_plan(rows=ROWS)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, plan: ReleasePlan) -> Path:
    out = tmp_path_factory.mktemp("honest") / "rel"
    release_for(out, plan, make_records(), KEY)
    return out


@pytest.fixture
def released(honest: Path, tmp_path: Path) -> Path:
    shutil.copytree(honest, tmp_path / "rel")
    shutil.copy(beside(honest, SEALED_FILE), beside(tmp_path / "rel", SEALED_FILE))
    return tmp_path / "rel"


@pytest.mark.parametrize("choices", EVERY_DESIGN, ids=design_name)
def test_an_honest_release_is_made_again_to_the_last_bit(choices: dict[str, Any], tmp_path: Path) -> None:
    release_for(tmp_path / "rel", make_plan(**choices), make_records(), KEY)
    verify_release(tmp_path / "rel")
    found = replayed(tmp_path / "rel", make_records(), KEY, workers=2)
    assert (found.equal, found.other_versions) == (True, {})
    assert found.files >= 1 + ("centre.safetensors" in os.listdir(tmp_path / "rel"))
    # It is not that anything passes.
    assert not replayed(tmp_path / "rel", make_records(seed=1), KEY).equal


def test_the_engine_does_not_matter(released: Path) -> None:
    for options in ({"workers": 1}, {"workers": 3}, {"memory_gb": 1e-4}):
        assert replayed(released, make_records(), KEY, **options).equal


def in_pancakes(generator: np.random.Generator, shape: Any, scale: float) -> NDArray[np.float64]:
    """Gaussian noise but in one secret direction, in which it lies in thin layers (Sun and He 2025)."""
    size = tuple(np.atleast_1d(shape))
    noise = generator.normal(size=size)
    secret = np.random.default_rng(12).normal(size=size[-1])
    secret /= np.linalg.norm(secret)
    along = noise @ secret
    layers = np.rint(along * 8) / 8 + generator.normal(scale=1e-3, size=along.shape)
    noise += np.multiply.outer(layers - along, secret)
    return np.rint(noise * scale)


def of_size(share: float) -> Any:
    honest = row_engine.gaussian_on_lattice
    return lambda generator, shape, scale: honest(generator, shape, share * scale)


def with_fault(out: Path, plan: ReleasePlan, owner: Any, name: str, value: Any, seed: int | None = None) -> Any:
    """A release that is made with something else in place of what makes it, made again as it should be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        release_for(out, plan, make_records(), KEY, seed=seed)
    return replayed(out, make_records(), KEY)


@pytest.mark.parametrize("noise", [in_pancakes, of_size(0.999)], ids=["pancakes", "0.999"])
def test_noise_of_another_law_or_size_is_caught_with_certainty(noise: Any, plan: ReleasePlan, tmp_path: Path) -> None:
    found = with_fault(tmp_path / "rel", plan, row_engine, "gaussian_on_lattice", noise)
    # Its tests see nothing.
    verify_release(tmp_path / "rel")
    assert found.records
    shard = next(one for one in found.differences if one.file.startswith("data/"))
    # Rounding may leave a row as it was, seldom.
    assert shard.rows > 0.9 * ROWS
    assert shard.first == tuple(range(len(shard.first)))


def test_a_stream_that_is_used_twice_is_caught(plan: ReleasePlan, tmp_path: Path) -> None:
    lent = SecretStreams.lent

    def again(self: SecretStreams, purpose: str, *indices: int) -> Any:
        return lent(self, purpose, *([0] if purpose == "feature noise" else indices))

    found = with_fault(tmp_path / "rel", plan, SecretStreams, "lent", again)
    assert [one.rows for one in found.differences] == [ROWS - 1024]
    assert found.differences[0].first[0] == 1024, "the first tile has its own noise"


def changed(how: str) -> PrivateRecords:
    records = make_records()
    features, labels = records.features.copy(), records.labels.copy()
    if how == "another record":
        features[17] = features[17] * 2 + 1
    elif how == "last bit":
        features[599, 6] = np.nextafter(features[599, 6], np.float32(9))
    elif how == "label":
        labels[3] = (labels[3] + 1) % 3
    elif how == "order":
        features[[0, 1]], labels[[0, 1]] = features[[1, 0]], labels[[1, 0]]
    last = -1 if how == "one less" else None
    return PrivateRecords(features[:last], labels[:last])


@pytest.mark.parametrize("how", ["another record", "last bit", "label", "order", "one less"])
def test_other_records_are_caught_also_where_no_row_shows_them(how: str, plan: ReleasePlan, tmp_path: Path) -> None:
    release_for(tmp_path / "rel", replace(plan, records_declared=how == "one less"), changed(how), KEY)
    found = replayed(tmp_path / "rel", make_records(), KEY)
    assert (found.records, found.equal) == (False, False)
    if how in ("another record", "label"):
        assert any(one.rows for one in found.differences)
    else:
        # What is made again is as good as it was, and is of other records all the same.
        assert replayed(tmp_path / "rel", changed(how), KEY).equal


def test_another_plan_than_the_certified_one_is_caught(plan: ReleasePlan, tmp_path: Path) -> None:
    weak = replace(plan, noise_multiplier=0.9 * plan.noise_multiplier)

    def engine(_: Any, *args: Any, **named: Any) -> Any:
        return make_engine(weak, *args, **named)

    found = with_fault(tmp_path / "rel", plan, release_run, "make_engine", engine)
    assert found.records
    assert found.differences


def test_a_certificate_with_another_plan_does_not_open_the_key(released: Path, plan: ReleasePlan) -> None:
    """The key is bound to release, plan, records and terms: whoever edits one of them has no key."""
    place = released / "certificate.json"
    stated = json.loads(place.read_text())
    for name, value in {
        "id": "0" * 32,
        "plan": {**stated["plan"], "seed": 3},
        "replay": {**stated["replay"], "until": "2100-01-01"},
    }.items():
        edited = {**stated, name: value}
        edited["content_sha256"] = content_hash(edited)
        sealed = commitment_of(edited)
        bound = bound_to(sealed, edited["id"], edited["plan"], sealed.records_root)
        with refuses("sealed key"):
            open_sealed(beside(released, SEALED_FILE).read_bytes(), sealed, bound, KEY)


def test_a_seed_that_the_certificate_does_not_admit_is_caught(plan: ReleasePlan, tmp_path: Path) -> None:
    make = release_run.make_certificate

    def silent(plan: ReleasePlan, **facts: Any) -> Any:
        return make(plan, **{**facts, "insecure_seed": False})

    found = with_fault(tmp_path / "rel", plan, release_run, "make_certificate", silent, seed=3)
    assert [str(one) for one in found.differences] == ["certificate.json: insecure_seed differs from that of the key"]


def test_where_files_differ_is_said(released: Path) -> None:
    """Of files that were changed after they were certified, too."""
    shard, centre = released / "data" / "train-00000-of-00001.parquet", released / "centre.safetensors"
    for file, place in ((shard, shard.stat().st_size // 3), (centre, -1)):
        content = bytearray(file.read_bytes())
        content[place] ^= 1
        file.write_bytes(content)
    with refuses("centre.safetensors"):
        verify_release(released)
    found = replayed(released, make_records(), KEY)
    assert sorted(one.file for one in found.differences) == ["centre.safetensors", f"data/{shard.name}"]
    assert next(one.rows for one in found.differences if one.file.startswith("data")) == 1


def test_the_key_is_nowhere_but_sealed(tmp_path: Path, plan: ReleasePlan) -> None:
    key, out = bytes(range(100, 132)), tmp_path / "rel"
    given: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (7,)}
    given |= {"auditor": Auditor(KEY.public, "2099-01-01")}
    streams = SecretStreams(bytearray(key), insecure_seed=False)
    with ReleaseRun(out, plan, streams=streams, **given) as run, (run.folder / "run.key").open("rb") as same_file:
        run.release(make_records())
        assert same_file.read() == bytes(33), "it is overwritten as always"
    assert sorted(os.listdir(tmp_path)) == ["rel", "rel.sealed-key.json"]
    assert not any(key in data for data in content(tmp_path).values())
    assert beside(out, SEALED_FILE).stat().st_mode & 0o777 == 0o600
    assert opened(out, KEY).entrust(bytes) == bytes(1) + key
    with refuses("key"):
        opened(out, AuditorKey.new())


def test_a_sealed_key_is_never_replaced(released: Path, plan: ReleasePlan) -> None:
    before = beside(released, SEALED_FILE).read_bytes()
    with refuses("out"):
        release_for(released, plan, make_records(), KEY, overwrite=True)
    assert beside(released, SEALED_FILE).read_bytes() == before
    assert not beside(released, SEALED_FILE).with_name(".rel.run").exists()


def test_what_is_published_is_pseudo_random_but_for_the_terms(honest: Path, plan: ReleasePlan, tmp_path: Path) -> None:
    """The same records, released twice: neither root nor hash says that they are the same."""
    release_for(tmp_path / "rel", plan, make_records(), KEY)
    one, other = (read_certificate(folder)["replay"] for folder in (honest, tmp_path / "rel"))
    assert {name for name in one if one[name] != other[name]} == {"records_root", "sealed_sha256"}


# Killed anywhere: the run that can be resumed, as always, or the release with its sealed key.

SCRIPT = """
import signal, sys
from pathlib import Path
import numpy as np
import torch
from privmix.certificate.sealed_key import AuditorKey
from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.run import ReleaseRun
from tests.processes import child, hooked
from tests.releases.auditors import release_for, replayed
torch.set_num_threads(1)
root = Path(sys.argv[1])
rng = np.random.default_rng(0)
records = PrivateRecords(rng.normal(size=(300, 3)).astype(np.float32), rng.integers(0, 2, 300))
# Of a price that takes no time.
plan = ReleaseConfig(records=300, dim=3, classes=("a", "b"), design="moments", rows=500).calibrate(4.0, 1e-5)
key = AuditorKey.new()

def run(out, resume=False):
    release_for(out, plan, records, key, seed=1, resume=resume)

run(root / "warm")
assert child(lambda: hooked(lambda: run(root / "whole"), 0, root / "count")) == 0
steps = int((root / "count").read_text())
rows = [path.read_bytes() for path in sorted((root / "whole" / "data").iterdir())]
kills = late = 0
# All of the last steps, in which the key changes hands; some of the others.
for at in [*range(1, steps - 50, 30), *range(steps - 50, steps + 1, 2)]:
    out = root / f"run{at}"
    sealed, folder = root / f"run{at}.sealed-key.json", root / f".run{at}.run"
    assert child(lambda: hooked(lambda: run(out), at)) == -signal.SIGKILL, at
    kills += 1
    state = ReleaseRun.interrupted(out)
    if not (folder / "run.key").exists() and (state or out.exists()):
        # The key has ended: its sealed copy is in its place by then, whole.
        late += 1
        assert sealed.exists(), at
    if not out.exists():
        assert child(lambda: run(out, state is not None)) == 0, at
    assert not folder.exists(), at
    assert [path.read_bytes() for path in sorted((out / "data").iterdir())] == rows, at
    assert replayed(out, records, key).equal, at
print("kills", kills, "late", late)
"""


def test_a_run_killed_at_any_step_ends_with_its_sealed_key(tmp_path: Path) -> None:
    kills, late = killing(SCRIPT, tmp_path, timeout=240)
    assert kills >= 25
    assert late >= 5
