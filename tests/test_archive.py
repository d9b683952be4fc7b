"""The archive of the sources holds what its pages link to, and what tests it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from privmix import __version__

ROOT = Path(__file__).parents[1]
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def copied(folder: Path) -> Path:
    """A copy of the sources in a folder, without what is made from them: a build leaves files beside them."""
    made = ("__pycache__", "*.egg-info", "build", "dist", "cache", "demo-output", "_build", "generated")
    return shutil.copytree(ROOT, folder / "privmix", ignore=shutil.ignore_patterns(".*", *made))


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Files of the archive."""
    pytest.importorskip("setuptools")
    copy = copied(tmp_path_factory.mktemp("archive"))
    (copy / "dist").mkdir()
    command = [sys.executable, "-c", _BUILD, "dist"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    with tarfile.open(copy / "dist" / done.stdout.split()[-1]) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_it_holds_what_a_reader_and_a_packager_look_for(names: set[str]) -> None:
    assert {"CITATION.cff", "LICENSE", "constraints.txt", "Makefile"} <= names
    assert {page.name for page in ROOT.glob("*.md")} <= names
    for folder, suffix in (("docs", ".md"), ("tests", ".py"), ("src/privmix", ".py"), ("benchmarks", ".py")):
        there = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(f"*{suffix}")}
        assert {name for name in there if not re.search("/(cache|generated)/", name)} <= names
    assert "src/privmix/reports/templates/page.css" in names
    assert "tests/golden/frozen.json" in names
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_no_link_of_its_pages_is_dead(names: set[str]) -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                found = (page.parent / target).resolve().relative_to(ROOT).as_posix()
                assert found in names or any(name.startswith(f"{found}/") for name in names), f"{page.name}: {target}"
