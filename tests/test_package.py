"""`python -m build` makes an archive and a wheel; what they install works where the repository is not."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from privmix import __version__
from tests.test_archive import copied

pytestmark = pytest.mark.thorough

# From a table to a page, in one process: each verb takes seconds to import.
_SMOKE = """
import csv, sys
from importlib.metadata import entry_points, version
from pathlib import Path

import privmix
from privmix.cli.main import run

place = Path(sys.argv[1])
assert Path(privmix.__file__).is_relative_to(place), privmix.__file__
assert version("privmix") == privmix.__version__
assert (place / "privmix" / "py.typed").exists()
assert any(point.name == "merf" for point in entry_points(group="privmix.designs"))

with open("visits.csv", "w", newline="") as stream:
    table = csv.writer(stream)
    table.writerow(["age", "ward", "ill"])
    table.writerows([[20 + n % 60, "AB"[n % 2], ["no", "yes"][n % 3 == 0]] for n in range(600)])

release = "release --data visits.csv --label-column ill --classes no,yes --features tabular:spec.json --design moments"
for line in (
    "version",
    "ledger init --dataset visits --epsilon 4 --delta 1e-5 --ledger sqlite:///ledger.db",
    "spec visits.csv --out spec.json --label-column ill --number age=0:120 --category ward=A,B",
    f"{release} --epsilon 2 --delta 1e-5 --ledger sqlite:///ledger.db --dataset visits --out REL",
    "verify REL",
    "fit REL --out MODEL",
    "report REL --out report.html",
    "attack --help",
):
    assert run(line.split()) == 0, line
assert "Privacy report" in Path("report.html").read_text()

from privmix.studio import pages
assert "Verify a folder" in pages.render("words", root="/", place="here", running=None)
assert all(path.exists() for path, _ in pages.ASSETS.values())
print("smoke: done")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive, and the wheel that is built from the archive, as a packager does."""
    build = pytest.importorskip("build", reason="builds packages; in privmix[dev]")
    pytest.importorskip("setuptools")
    copy = copied(tmp_path_factory.mktemp("package"))
    # Not the path of this process, by which the sources of the checkout could be found.
    environment = {**os.environ, "PYTHONPATH": str(Path(build.__file__).parents[1])}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(copy / "dist")]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return copy / "dist"


def test_it_makes_one_archive_and_one_wheel(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {
        f"privmix-{__version__}.tar.gz",
        f"privmix-{__version__}-py3-none-any.whl",
    }


def test_the_wheel_holds_the_package_and_nothing_beside_it(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {"privmix", f"privmix-{__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    for file in (
        "reports/templates/page.css",
        "studio/static/htmx.min.js",
        "studio/static/htmx.LICENSE.txt",
        "py.typed",
    ):
        assert f"privmix/{file}" in names
    assert not any("/tests/" in name or name.endswith(".ipynb") for name in names)


def test_what_it_installs_works_without_the_repository(built: Path, tmp_path: Path) -> None:
    """Dependencies are this environment's: what is asked is whether the wheel is whole."""
    place, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    wheel = str(next(built.glob("*.whl")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run(
        [*pip, "--target", str(place), wheel], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    # The checkout's own path is not on it; what else this process finds packages by is.
    sources = Path(__file__).parents[1]
    others = [path for path in sys.path if path and not Path(path).resolve().is_relative_to(sources / "src")]
    others = [path for path in others if Path(path).resolve() != sources]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *others]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", _SMOKE, str(place)]
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "smoke: done" in done.stdout


def test_the_core_alone_goes_from_a_table_to_what_is_learnt(built: Path, tmp_path: Path) -> None:
    """In an environment of its own, with what the wheel needs and no extra: less than 700 MB, without torch."""
    sources, place, empty = Path(__file__).parents[1], tmp_path / "core", tmp_path / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python = str(place / "bin" / "python")
    wheel = str(next(built.glob("*.whl")))
    install = [python, "-m", "pip", "install", "--quiet", "-c", str(sources / "constraints.txt"), wheel]
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, env=environment, timeout=300)
    done = subprocess.run(install, capture_output=True, text=True, check=False, env=environment, timeout=1200)
    if done.returncode and "onnection" in done.stderr:
        pytest.skip("no package index at hand")
    assert done.returncode == 0, done.stderr[-3000:]
    sizes = [path.lstat().st_blocks * 512 for path in place.rglob("*") if "__pycache__" not in path.parts]
    assert sum(sizes) < 700e6
    script = tmp_path / "core_path.py"
    script.write_bytes((sources / "tests" / "core_path.py").read_bytes())
    command = [python, "-W", "ignore", str(script)]
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "core: done"
