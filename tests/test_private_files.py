"""Private files are opened, overwritten and removed only where they are one's own."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from privmix.errors import InvalidInput
from privmix.folders import PrivateFolder, file_mode, no_core_dumps, open_private, private_folder, shred
from tests.refusals import refuses


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    (folder / "precious").write_bytes(b"precious bytes of 33 characters!!")
    (folder / "precious").chmod(0o600)
    return folder


class TestOpenPrivate:
    def test_links_pipes_folders_and_open_files_are_refused(self, tmp_path: Path, precious: Path) -> None:
        (tmp_path / "link").symlink_to(precious / "precious")
        os.link(precious / "precious", tmp_path / "hard")
        (tmp_path / "hard").chmod(0o600)
        os.mkfifo(tmp_path / "pipe", 0o600)
        (tmp_path / "folder").mkdir(mode=0o700)
        (tmp_path / "readable").write_bytes(b"abc")
        (tmp_path / "readable").chmod(0o644)
        for name in ("link", "hard", "pipe", "folder", "readable"):
            with pytest.raises(InvalidInput, match="only its owner can open"):
                open_private(tmp_path / name, "key")
        with pytest.raises(FileNotFoundError):
            open_private(tmp_path / "none", "key")

    def test_ones_own_closed_file_opens_and_another_users_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with file_mode(private=True):
            (tmp_path / "key").write_bytes(b"abc")
        with open_private(tmp_path / "key", "key") as stream:
            assert stream.read() == b"abc"
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(InvalidInput, match="only its owner can open"):
            open_private(tmp_path / "key", "key")
        with pytest.raises(InvalidInput, match="only its owner can open"):
            PrivateFolder(tmp_path, "out")

    def test_shred_touches_nothing_but_a_file_of_that_size(self, tmp_path: Path, precious: Path) -> None:
        content = (precious / "precious").read_bytes()
        (tmp_path / "run.key").symlink_to(precious / "precious")
        with pytest.raises(InvalidInput):
            shred(tmp_path / "run.key", "key", len(content))
        with pytest.raises(InvalidInput):
            shred(precious / "precious", "key", len(content) - 1)
        assert (precious / "precious").read_bytes() == content
        shred(precious / "precious", "key", len(content))
        assert not (precious / "precious").exists()
        shred(precious / "precious", "key", len(content))


class TestPrivateFolder:
    def test_what_is_not_ones_own_closed_folder_is_refused(self, tmp_path: Path, precious: Path) -> None:
        (tmp_path / "link").symlink_to(precious)
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o750)
        (tmp_path / "file").touch()
        for name in ("link", "open", "file"):
            for make in (PrivateFolder, private_folder):
                with pytest.raises(InvalidInput, match="only its owner can open"):
                    make(tmp_path / name, "out")
        assert (precious / "precious").exists()

    def test_bytes_go_to_the_folder_that_was_opened(self, tmp_path: Path) -> None:
        """Somebody renames it and puts theirs in its place: they get nothing, and lose nothing."""
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "notes").write_bytes(b"theirs")
        with PrivateFolder(tmp_path / "run", "out", create=True) as run:
            run.write("key", b"secret")
            (tmp_path / "run").rename(tmp_path / "moved")
            (tmp_path / "run").symlink_to(tmp_path / "theirs")
            run.write("notes", b"private")
            assert run.read("key", 10) == b"secret"
            assert not run.is_in_place()
            run.discard()
        assert (tmp_path / "run").is_symlink()
        assert (tmp_path / "theirs" / "notes").read_bytes() == b"theirs"
        assert os.listdir(tmp_path / "moved") == []

    def test_links_inside_are_neither_followed_nor_emptied(self, tmp_path: Path, precious: Path) -> None:
        with PrivateFolder(tmp_path / "run", "out", create=True) as run:
            for name in ("notes", ".notes.draft", "key"):
                (run.path / name).symlink_to(precious / "precious")
            (run.path / "folder").symlink_to(precious)
            with pytest.raises(InvalidInput):
                run.read("notes", 100)
            with pytest.raises(InvalidInput):
                shred("key", "key", 33, closed=False, dir_fd=run.descriptor)
            (run.path / "sub").mkdir()
            for name in ("keep", "lose"):
                (run.path / "sub" / name).touch()
            (run.path / "sub" / "link").symlink_to(precious)
            run.keep_only({"sub/keep", "notes", "folder"})
            assert os.listdir(run.path / "sub") == ["keep"]
            run.write("notes", b"new")
            assert run.read("notes", 100) == b"new"
            with refuses("out"):
                run.check_names({"notes", "key"})
            run.discard()
        assert not (tmp_path / "run").exists()
        assert (precious / "precious").read_bytes() == b"precious bytes of 33 characters!!"

    def test_files_are_closed_under_any_mask(self, tmp_path: Path) -> None:
        old = os.umask(0)
        try:
            with contextlib.suppress(ZeroDivisionError), file_mode(private=True):
                (tmp_path / "file").touch()
                raise ZeroDivisionError
            assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
            assert os.umask(0) == 0, "the mask comes back after an error"
            with PrivateFolder(tmp_path / "run", "out", create=True) as run:
                run.write("notes", b"")
                assert (run.path / "notes").stat().st_mode & 0o777 == 0o600
                assert run.path.stat().st_mode & 0o777 == 0o700
        finally:
            os.umask(old)


def test_core_dumps_are_off() -> None:
    """In a process of its own: a limit can't be taken back where the hard one falls."""
    code = (
        "import resource, os; from privmix.folders import no_core_dumps\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)\n"
        "no_core_dumps(); print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) in (0, 1)
    no_core_dumps()
