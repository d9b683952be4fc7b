"""What is written goes into the folder that was opened, under names that nobody else chose where they lead."""

import ast
import os
import re
from pathlib import Path

import pytest

from privmix.errors import InvalidInput, StorageError
from privmix.folders import (
    FolderKind,
    FolderLost,
    HeldFolder,
    PrivateFolder,
    hold,
    new_file,
    put_in_place,
    write_durably,
)

SOURCE = Path(__file__).parents[1] / "src" / "privmix"
KIND = FolderKind("out", "a thing", frozenset({"mark"}))


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_bytes(b"my only copy")
    return file


def swap(place: Path, moved: Path) -> None:
    """What somebody does who may write the folder above."""
    place.rename(moved)
    place.mkdir()


@pytest.fixture
def folder(tmp_path: Path) -> HeldFolder:
    (tmp_path / "held").mkdir()
    return hold(tmp_path / "held")


def test_planted_links_are_never_followed(folder: HeldFolder, precious: Path) -> None:
    for name in ("new", ".new.draft", "data", "log"):
        (folder.path / name).symlink_to(precious)
    folder.write("new", b"mine")
    with pytest.raises(FileExistsError):
        folder.create("data")
    with pytest.raises(OSError, match="symbolic"):
        folder.append("log")
    os.mkfifo(folder.path / "pipe")
    with pytest.raises((OSError, StorageError)):
        folder.append("pipe")
    (folder.path / "linked").symlink_to(precious.parent)
    for name in ("data", "linked"):
        with pytest.raises(StorageError, match=f"{name}: not a folder"):
            folder.folder(name)
    with folder.folder("own") as own:
        own.write("file", b"1")
    assert (folder.path / "own" / "file").read_bytes() == b"1"
    assert precious.read_bytes() == b"my only copy"
    assert (folder.path / "new").read_bytes() == b"mine"
    assert not (folder.path / "new").is_symlink()
    folder.remove("log")
    assert precious.exists()


def test_a_file_is_whole_or_not_there(folder: HeldFolder) -> None:
    folder.write("file", b"before")

    def fail() -> None:
        with folder.new("file") as stream:
            stream.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert folder.names() == {"file"}
    assert (folder.path / "file").read_bytes() == b"before"


def test_rights_are_the_owners_or_the_masks(folder: HeldFolder) -> None:
    old = os.umask(0o022)
    try:
        folder.write("closed", b"")
        folder.write("open", b"", shared=True)
        write_durably(folder.path / "page", b"")
    finally:
        os.umask(old)
    modes = {name: (folder.path / name).stat().st_mode & 0o777 for name in folder.names()}
    assert modes == {"closed": 0o600, "open": 0o644, "page": 0o644}


def test_a_swapped_folder_is_noticed_and_gets_nothing(folder: HeldFolder, tmp_path: Path) -> None:
    folder.check_in_place()
    swap(folder.path, tmp_path / "moved")
    folder.write("file", b"mine")
    with pytest.raises(FolderLost, match="renamed or replaced"):
        folder.check_in_place()
    assert os.listdir(folder.path) == []
    assert os.listdir(tmp_path / "moved") == ["file"]


def test_new_files_are_for_the_folder_that_was_found_first(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    with new_file(tmp_path / "pages" / "page") as stream:
        swap(tmp_path / "pages", tmp_path / "moved")
        stream.write(b"mine")
    assert os.listdir(tmp_path / "pages") == []
    assert (tmp_path / "moved" / "page").read_bytes() == b"mine"


def test_a_draft_that_was_swapped_is_not_published_and_does_not_stay(tmp_path: Path) -> None:
    def make() -> None:
        with KIND.new(tmp_path / "out") as draft:
            draft.write("mark", b"1")
            swap(draft.path, tmp_path / "moved")

    with pytest.raises(FolderLost):
        make()
    assert not (tmp_path / "out").exists()
    assert os.listdir(tmp_path / "moved") == []
    assert (tmp_path / ".out.partial").is_dir(), "what is theirs is left to them"


def test_what_gets_the_name_is_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody swaps the draft between the last look and the renaming."""
    out, replace = tmp_path / "out", os.replace

    def swapped(source: Path, target: Path) -> None:
        swap(source, tmp_path / "moved")
        replace(source, target)

    with PrivateFolder(tmp_path / ".out.run", "out", create=True) as draft:
        draft.write("mark", b"1")
        monkeypatch.setattr(os, "replace", swapped)
        with pytest.raises(FolderLost, match="another process replaced this folder"):
            put_in_place(draft, out, KIND.marks)
    assert (tmp_path / "moved").stat().st_mode & 0o777 == 0o700, "it was not opened to others"


def test_a_published_folder_is_not_emptied_by_what_comes_after(tmp_path: Path) -> None:
    def make() -> None:
        with KIND.new(tmp_path / "out") as draft:
            draft.write("mark", b"1")
            put_in_place(draft, tmp_path / "out", KIND.marks)
            raise InvalidInput("later", 1, "2")

    with pytest.raises(InvalidInput):
        make()
    assert (tmp_path / "out" / "mark").read_bytes() == b"1"


# Files that are opened for writing by path, and why that is no way to somebody else's file.
BY_PATH = {
    # Without following links, and only where there is none.
    "certificate/keys.py",
    "mechanisms/streams.py",
    # The same, or one's own and closed to others; locks, to which nothing is written.
    "folders.py",
    # Only where there is none: an example's file, and the page that a browser is sent to, closed to others.
    "studio/pages.py",
    "studio/server.py",
    # Its own output, and nowhere.
    "studio/worker.py",
    # SQLite opens its file by itself.
    "ledger/database.py",
}
_MODE = re.compile(r"[rwxabt+U]{1,3}")


def written_by_path(tree: ast.AST) -> list[str]:
    """Calls that open a file for writing by its path, as far as their words show."""
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        *_, owner, name = ["", *ast.unparse(call.func).split(".")]
        words = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        words += [str(one.value.value) for one in call.keywords if isinstance(one.value, ast.Constant)]
        writes = any(_MODE.fullmatch(word) and set(word) & set("wxa+") for word in words)
        if name in ("write_text", "write_bytes", "touch", "save_file", "save_model_file", "copyfile", "copytree"):
            # A formatter of help writes to no file.
            found += [] if owner == "formatter" else [name]
        elif owner == "os" and name == "open":
            flags = ast.dump(call)
            if any(flag in flags for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "_NEW", "_MORE", "_OPEN")):
                found.append("os.open")
        elif name == "open" and writes and not (isinstance(call.func, ast.Attribute) and len(call.args) > 1):
            # With a second argument it is a member of an archive.
            found.append("open")
        elif name in ("NamedTemporaryFile", "mkstemp"):
            found.append(name)
    return found


def test_nothing_else_is_written_by_path() -> None:
    for text in ("path.open('wb')", "open(path, 'a')", "path.open(mode='x')", "path.write_text(found)"):
        assert written_by_path(ast.parse(text)), text
    for text in ("os.open(path, os.O_CREAT)", "save_file(tensors, path)"):
        assert written_by_path(ast.parse(text)), text
    assert not written_by_path(ast.parse("path.open('rb'); open(path); archive.open(member, 'w'); folder.create('a')"))
    found = {
        str(path.relative_to(SOURCE)): calls
        for path in SOURCE.rglob("*.py")
        if (calls := written_by_path(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert set(found) == BY_PATH, found
