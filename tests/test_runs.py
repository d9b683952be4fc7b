"""What every run keeps, refuses and discards, be it of a release or of a training.

Kills at every step, and the bits after them: tests/releases/test_resume.py and tests/training/test_run.py.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privmix.engine.ray import ClusterLost
from privmix.errors import InvalidInput, StorageError
from privmix.mechanisms import run as run_module
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import run_folder_of
from privmix.mechanisms.streams import SecretStreams
from privmix.releases.run import ReleaseRun
from privmix.training.gradients.execution import OutOfMemory
from privmix.training.run import TrainingRun
from tests.refusals import refuses
from tests.releases.helpers import make_plan

PLAN = make_plan()
Begin = Callable[..., Run]


def release(out: Path, **given: Any) -> Run:
    facts: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (7,)}
    return ReleaseRun(out, PLAN, **{**facts, **given})


def training(out: Path, **given: Any) -> Run:
    return TrainingRun(out, {"epochs": given.pop("epochs", 3), "optimiser": {"momentum": 0.9}}, **given)


OTHER: dict[Begin, dict[str, Any]] = {release: {"input_shape": (8,)}, training: {"epochs": 4}}
NAMED = {release: "input_shape", training: "epochs"}
KIND: dict[Begin, type[Run]] = {release: ReleaseRun, training: TrainingRun}


@pytest.fixture(params=[release, training])
def begin(request: pytest.FixtureRequest) -> Begin:
    return request.param


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_by_a_kill(begin: Begin, out: Path, **given: Any) -> Path:
    before = os.umask(0)
    try:
        with begin(out, streams=SecretStreams.from_seed(1), **given) as run:
            run.bind("fingerprint")
            folder = run.folder
    finally:
        os.umask(before)
    # The owner's, whatever the mask.
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "run.key").stat().st_mode & 0o777 == 0o600
    return folder


KEPT = [
    KeyboardInterrupt(),
    StorageError("out: no space"),
    OSError(28, "No space left on device"),
    ClusterLost("ray: gone"),
    OutOfMemory("memory: gone"),
    MemoryError(),
    RuntimeError("a defect, or a lost network"),
    # An option that the next attempt may change.
    InvalidInput("memory_gb", 1, "more"),
]
KEPT[-1].resumable = True


def test_what_can_go_on_is_kept(begin: Begin, tmp_path: Path) -> None:
    for error in KEPT:
        with pytest.raises(type(error)), begin(tmp_path / "out", overwrite=True, extra={"paid": 1}):
            raise error
        state = KIND[begin].check(tmp_path / "out", resume=True)
        assert state is not None
        assert (state.extra, state.complete) == ({"paid": 1}, False)
        with begin(tmp_path / "out", resume=True) as run:
            assert run.resumed


def test_inputs_that_are_refused_leave_no_run_and_no_key(begin: Begin, tmp_path: Path) -> None:
    run = begin(tmp_path / "out")
    os.link(run.folder / "run.key", tmp_path / "same file")
    (run.folder / "data").mkdir()
    with pytest.raises(InvalidInput), run:
        raise InvalidInput("records", 17, "others")
    assert (tmp_path / "same file").read_bytes() == bytes(33)
    assert [path.name for path in tmp_path.iterdir()] == ["same file"]


def test_a_resumed_run_is_kept_whatever_happens(begin: Begin, tmp_path: Path) -> None:
    """Whoever resumes may have given it other inputs than its own."""
    folder = left_by_a_kill(begin, tmp_path / "out")
    before = files(folder)
    with pytest.raises(InvalidInput), begin(tmp_path / "out", resume=True):
        raise InvalidInput("records", 17, "others")
    assert files(folder) == before


def test_one_key_one_setting(begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left_by_a_kill(begin, tmp_path / "out")
    before = files(folder)
    with pytest.raises(InvalidInput, match=f"`resume` with {NAMED[begin]}: got .*as in the interrupted run"):
        begin(tmp_path / "out", resume=True, **OTHER[begin])
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "package_version", lambda name: "0.0.1" if name == "randomgen" else "1")
        with refuses("`resume` with made_with.numpy"):
            begin(tmp_path / "out", resume=True)
    assert files(folder) == before


def test_one_key_one_dataset(begin: Begin, tmp_path: Path) -> None:
    folder = left_by_a_kill(begin, tmp_path / "out")
    before = files(folder)
    with refuses("data"), begin(tmp_path / "out", resume=True) as run:
        run.bind("another fingerprint")
    assert files(folder) == before
    with begin(tmp_path / "out", resume=True) as run, begin(tmp_path / "other") as other:
        run.bind("fingerprint")
        assert run.fingerprint_key != other.fingerprint_key, "a fingerprint confirms no guess"


def test_a_run_has_its_own_streams(begin: Begin, tmp_path: Path) -> None:
    left_by_a_kill(begin, tmp_path / "out")
    other = SecretStreams.from_seed(9)
    with begin(tmp_path / "out", resume=True, streams=other) as run:
        own = run.streams
        assert own.generator("a").random() == SecretStreams.from_seed(1).generator("a").random()
    for streams in (other, own):
        with pytest.raises(RuntimeError, match="destroyed"):
            streams.generator("a")


def test_an_interrupted_run_is_not_discarded_unasked(begin: Begin, tmp_path: Path) -> None:
    folder = left_by_a_kill(begin, tmp_path / "out", extra={"reservation": "r1"})
    before = files(folder)
    for work in (begin, KIND[begin].check):
        with refuses("out"):
            work(tmp_path / "out")
    assert files(folder) == before
    with begin(tmp_path / "out", resume=True) as run:
        assert run.extra == {"reservation": "r1"}
    os.link(folder / "run.key", tmp_path / "same file")
    with begin(tmp_path / "out", overwrite=True) as run:
        assert not run.resumed
    assert (tmp_path / "same file").read_bytes() == bytes(33), "the discarded run's key is overwritten"
    assert (folder / "run.key").read_bytes() != before["run.key"]


def test_one_process_at_a_time(begin: Begin, tmp_path: Path) -> None:
    with begin(tmp_path / "out"):
        for given in ({}, {"resume": True}, {"overwrite": True}):
            for work in (begin, KIND[begin].check):
                with refuses("out"):
                    work(tmp_path / "out", **given)
    with begin(tmp_path / "out", resume=True):
        pass


def test_what_is_at_out_is_not_replaced_unasked(begin: Begin, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with refuses("resume"):
        begin(out, resume=True)
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with refuses("out"):
            begin(out, overwrite=overwrite)
    assert files(out) == {"thesis.txt": b"mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "no key was made"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 99}', b"\xff\xfe", b'{"id":1,"settings":2}'])
def test_damaged_notes_say_so_and_can_be_overwritten(begin: Begin, content: bytes, tmp_path: Path) -> None:
    folder = left_by_a_kill(begin, tmp_path / "out")
    (folder / "run.json").write_bytes(content)
    for given in ({}, {"resume": True}, {"resume": True, "overwrite": True}):
        with refuses(".out.run/run.json"):
            begin(tmp_path / "out", **given)
    with begin(tmp_path / "out", overwrite=True) as run:
        assert not run.resumed


def test_notes_are_those_that_the_key_sealed(begin: Begin, tmp_path: Path) -> None:
    """Any field: with another fingerprint the same noise would be added to other records."""
    file = left_by_a_kill(begin, tmp_path / "out", extra={"reservation": "r1"}) / "run.json"
    notes = json.loads(file.read_text())
    assert set(notes) == {"version", "id", "settings", "extra", "made_with", "fingerprint", "refused", "files", "seal"}
    edited = [{**notes, name: {"other": 1}} for name in notes]
    edited += [{name: value for name, value in notes.items() if name != gone} for gone in notes]
    edited += [{**notes, "more": 1}, {**notes, "extra": {"reservation": "r2"}}]
    kind = KIND[begin]
    for other in edited:
        file.write_text(json.dumps(other))
        for work in (lambda: kind.interrupted(tmp_path / "out"), lambda: begin(tmp_path / "out", resume=True)):
            with refuses(".out.run/run.json"):
                work()
    file.write_text(json.dumps(notes, indent=3))
    with begin(tmp_path / "out", resume=True) as run:
        assert run.extra == {"reservation": "r1"}


def test_what_is_kept_is_what_the_key_sealed(begin: Begin, tmp_path: Path) -> None:
    with begin(tmp_path / "out") as run:
        run.keep("run.state", b"content")
    file = run_folder_of(tmp_path / "out") / "run.state"
    before = file.read_bytes()
    with begin(tmp_path / "out", resume=True) as run:
        assert run.kept("run.state") == b"content"
        assert run.kept("run.shards") is None
        for other in (b"", before[:-1], before + b"s", before[:64] + b"others!"):
            file.write_bytes(other)
            with refuses(".out.run/run.state"):
                run.kept("run.state")


def test_a_key_that_is_not_the_runs_own_is_refused(begin: Begin, tmp_path: Path) -> None:
    """A key that another user wrote, or can read, is theirs: with it they would subtract the noise."""
    key = left_by_a_kill(begin, tmp_path / "out") / "run.key"
    before = files(key.parent)

    def refused(words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            begin(tmp_path / "out", resume=True)
        assert {**files(key.parent), "run.key": b""} == {**before, "run.key": b""}

    key.chmod(0o640)
    refused(r"own key \(`overwrite`")
    key.chmod(0o600)
    SecretStreams.from_seed(5).save(tmp_path / "theirs")
    os.replace(tmp_path / "theirs", key)
    refused("damaged, changed")
    key.write_bytes(bytes(33))
    refused(r"own key \(`overwrite`")
    key.unlink()
    refused(r"own key \(`overwrite`")
    with begin(tmp_path / "out", overwrite=True):
        pass


# A folder that somebody else can write: they put a run folder there before us.


@pytest.mark.parametrize("plant", ["linked key", "own folder, linked key", "linked folder", "folder moved there"])
def test_a_planted_run_folder_is_refused_and_harms_nothing(begin: Begin, plant: str, tmp_path: Path) -> None:
    precious, folder = tmp_path / "home" / "id_ed25519", tmp_path / ".out.run"
    precious.parent.mkdir(mode=0o700)
    precious.touch(mode=0o600)
    precious.write_bytes(b"k" * 33)
    if plant == "linked folder":
        folder.symlink_to(precious.parent)
    else:
        folder.mkdir(mode=0o755 if plant == "linked key" else 0o700)
        name = "thesis.tex" if plant == "folder moved there" else "run.key"
        (folder / name).symlink_to(precious)
    for given in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(InvalidInput):
            begin(tmp_path / "out", **given)
    assert precious.read_bytes() == b"k" * 33
    assert folder.is_symlink() or list(folder.iterdir())
