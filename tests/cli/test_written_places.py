"""What a command writes goes into folders that it holds, out of reach of others: no link is followed, no folder that is
swapped is filled.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import FeatureStore
from privmix.data.source import Schema
from privmix.folders import FolderLost, HeldFolder
from privmix.releases import folder as release_folder
from tests.cli.helpers import privmix
from tests.cli.training import save, that_write, write_own

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


# What others may read: the data and what is published, once it has its name.
OPEN = {"own", "public.npz", "REL", "STORED", "MODEL", "TRAINED", "AUTO", "POOL", "COPY", "COPIED"}


def reachable(top: Path) -> Iterator[str]:
    """What another user can enter, read or write below ``top``, by the modes on the whole way."""
    for entry in os.scandir(top) if top.is_dir() else ():
        with suppress(FileNotFoundError):
            mode = entry.stat(follow_symlinks=False).st_mode
            if mode & 0o077:
                yield entry.path
            if mode & 0o011 and entry.is_dir(follow_symlinks=False):
                yield from reachable(Path(entry.path))


class Watch:
    """Hears of all that the interpreter opens for writing, makes or renames in the folders ``work`` and ``tmp``."""

    def __init__(self) -> None:
        self.top: Path | None = None
        self.followed: list[str] = []
        self.reached: set[str] = set()
        self.heard = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.top is None or event not in ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir"):
            return
        top, self.top = self.top, None
        try:
            if event == "open" and not self._written(*arguments, top):
                return
            if event == "os.rename" and arguments[2] == -1 and os.path.isfile(arguments[0]):
                self.followed += [f"rename {arguments[0]}"] * self._below(arguments[0], top)
            self.heard += 1
            for folder in (top / "work", top / "tmp"):
                self.reached |= {os.path.relpath(path, folder) for path in reachable(folder)}
        finally:
            self.top = top

    def _written(self, path: Any, mode: Any, flags: Any, top: Path) -> bool:
        if not isinstance(path, str | bytes | os.PathLike) or not isinstance(flags, int) or not flags & WRITES:
            return False
        name = os.fsdecode(path)
        # Names that are opened relative to a descriptor are bare.
        if "/" in name and not self._below(name, top):
            return False
        if not flags & os.O_NOFOLLOW:
            self.followed.append(name)
        return True

    @staticmethod
    def _below(name: str, top: Path) -> bool:
        return os.path.abspath(name).startswith(f"{top}/")


WATCH = Watch()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """A folder and a temporary folder that all can enter, under the usual mask."""
    old = os.umask(0o022)
    for name in ("work", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "work")
    write_own(Path())
    save(Path("public.npz"), 1000, 1080)
    WATCH.top, WATCH.followed, WATCH.reached, WATCH.heard = tmp_path, [], set(), 0
    try:
        yield WATCH
    finally:
        WATCH.top = None
        os.umask(old)


def test_no_command_writes_through_a_link_or_within_reach_of_others(watched: Watch) -> None:
    pytest.importorskip("diffusers")
    pytest.importorskip("torchmetrics")
    data = ["--data", "own", "--classes", "10", "--features", "pixels", "--epsilon", "20", "--delta", "1e-4"]
    tiny = ["--network=tiny", "--steps=2", "--images=20", "--sampler-steps=2", "--half-life=500", "--draw-batch=10"]
    commands = [
        *that_write(),
        ["release", *data, "--design", "auto", "--assume", "attainable=0.9", "--rows", "40", "--out", "AUTO"],
        ["synthesise", "--public", "public.npz", "--classes", "10", "--out", "POOL", *tiny],
    ]
    for command in commands:
        before = watched.heard
        privmix(*command).passed()
        assert watched.heard > before, command
    pm.load("REL").save("COPY")
    pm.load("TRAINED").save("COPIED")
    assert watched.followed == []
    private = {"STORE", "STORE2", "RUN", "AUDIT", "WORK", "owner.html", "confusion.png", "predictions.csv"}
    assert set(os.listdir()) == private | OPEN
    strangers = {path for path in watched.reached if Path(path).parts[0] not in OPEN}
    # torch makes this folder when it is imported; generated code would go there, and nothing does.
    assert all(path.startswith("torchinductor_") and "/" not in path for path in strangers), strangers
    # The watch sees what it should: what is published can be reached.
    assert {"REL", "REL/certificate.json", "MODEL", "TRAINED", "STORED"} <= watched.reached


def test_the_watch_hears_what_follows_links_and_sees_a_moment(watched: Watch) -> None:
    Path("file").write_bytes(b"")
    os.rename("file", "other")
    assert watched.followed == ["file", "rename file"]
    Path("closed").mkdir(mode=0o700)
    Path("closed/inside").touch()
    Path("slip").touch()
    Path("slip").unlink()
    Path("late").touch(mode=0o600)
    data = {"own", "own/train.npz", "own/test.npz", "public.npz"}
    assert watched.reached - data == {"file", "other", "slip"}


# Somebody else may write the folder above.

ROWS = 5000
DATA = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32), np.arange(400) % 2
WISHES: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 2.0, "delta": 1e-5}


@pytest.fixture
def precious(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Somebody's file, which no command may touch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(release_folder, "SHARD_ROWS", 1024)
    file = tmp_path / "precious"
    file.write_bytes(b"my only copy")
    yield file
    assert file.read_bytes() == b"my only copy"


def swapped(run: str, precious: Path, *names: str) -> Callable[[], None]:
    """Put another folder, with links, in the place of the run's; its key gets a second name, which shows its bytes."""

    def act() -> None:
        os.link(Path(run, "run.key"), "key")
        Path(run).rename("moved")
        Path(run, "data").mkdir(parents=True)
        for name in names:
            Path(run, name).symlink_to(precious)

    return act


def once(stage: str, act: Callable[[], None]) -> Callable[[str, int, int], None]:
    done: list[str] = []

    def progress(found: str, *_: int) -> None:
        if found.startswith(stage) and not done:
            done.append(found)
            act()

    return progress


def ended(run: str, names: list[str]) -> None:
    assert Path("key").read_bytes() == bytes(33), "the key is overwritten where it is by now"
    assert os.listdir("moved") == []
    assert {path.name for path in Path(run).rglob("*") if path.is_symlink()} == {Path(name).name for name in names}
    assert not Path(run.removeprefix(".").removesuffix(".run")).exists()


def test_a_run_folder_that_is_swapped_ends_the_release(precious: Path) -> None:
    names = [f"{name}-{n:05d}-of-00005.parquet" for n in range(5) for name in ("data/.train", "data/train")]
    names += ["run.shards", ".run.shards.draft", "certificate.json", "README.md"]
    progress = once("rows", swapped(".REL.run", precious, *names))
    with pytest.raises(FolderLost, match=r"its key is overwritten and what it held is removed; nothing is published"):
        pm.release(DATA, **WISHES, design="poisson", rows=ROWS, out="REL", progress=progress)
    ended(".REL.run", names)


def test_a_run_folder_that_is_swapped_ends_the_training(precious: Path) -> None:
    names = ["run.state", ".run.state.draft", "weights.safetensors", "certificate.json"]
    progress = once("private steps", swapped(".MODEL.run", precious, *names))
    with pytest.raises(FolderLost, match="its key is overwritten"):
        pm.train(DATA, **WISHES, epochs=2, out="MODEL", progress=progress)
    ended(".MODEL.run", names)


def test_a_link_in_place_of_a_shard_is_replaced(precious: Path) -> None:
    """Whoever can enter the folder itself is the owner; still nothing is followed."""

    def act() -> None:
        for name in ("train-00003-of-00005.parquet", ".train-00003-of-00005.parquet.draft"):
            Path(".REL.run/data", name).symlink_to(precious)

    pm.release(DATA, **WISHES, design="poisson", rows=ROWS, out="REL", progress=once("rows", act))
    assert pm.verify("REL")
    assert not any(path.is_symlink() for path in Path("REL").rglob("*"))


def test_drafts_of_models_and_pools_are_held(precious: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pm.release(DATA, **WISHES, design="moments", out="REL")
    model = pm.fit("REL")
    for folder in (Path(".MODEL.partial"), Path(".COPY.partial")):
        target = folder.name.removeprefix(".").removesuffix(".partial")
        plant(monkeypatch, folder, precious)
        with pytest.raises(FolderLost):
            (model if target == "MODEL" else pm.load("REL")).save(target)
        assert not Path(target).exists()
        shutil.rmtree(folder)


def plant(monkeypatch: pytest.MonkeyPatch, draft: Path, precious: Path) -> None:
    """Swap a draft as soon as the first file is written to it."""
    write = HeldFolder.write

    def swapped(self: HeldFolder, name: str, content: bytes, **given: Any) -> None:
        if draft.is_dir() and not draft.with_name(f"moved{draft.name}").exists():
            draft.rename(draft.with_name(f"moved{draft.name}"))
            draft.mkdir()
            for link in (name, "model.json", "weights.safetensors", "certificate.json", "README.md"):
                if not (draft / link).is_symlink():
                    (draft / link).symlink_to(precious)
        write(self, name, content, **given)

    monkeypatch.setattr(HeldFolder, "write", swapped)


def test_a_feature_store_that_is_swapped_is_not_put_in_place(precious: Path) -> None:
    schema = Schema(4, (2,), ("a", "b"))
    writer = FeatureStore.create("STORE", 4, 2, schema=schema, extractor={"name": "identity"})
    Path(".STORE.partial").rename("moved")
    Path(".STORE.partial").mkdir()
    for name in ("features.npy", "labels.npy", "meta.json"):
        Path(".STORE.partial", name).symlink_to(precious)
    writer.append(np.ones((4, 2)), np.array([0, 1, 0, 1]))
    with pytest.raises(pm.StorageError):
        writer.finish()
    assert not Path("STORE").exists()
    assert os.listdir("moved") == []
