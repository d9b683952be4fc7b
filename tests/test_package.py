"""`python -m build` makes an archive and a wheel; what they install works where the repository is not."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from privmix import __version__
from tests import core_path
from tests.test_archive import copied

pytestmark = pytest.mark.thorough

_SMOKE = """
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import privmix
from privmix.cli.main import run
from privmix.studio import pages

place = Path(sys.argv[1])
assert Path(privmix.__file__).is_relative_to(place), privmix.__file__
assert version("privmix") == privmix.__version__
assert (place / "privmix" / "py.typed").exists()
assert any(point.name == "merf" for point in entry_points(group="privmix.designs"))
assert run(["report", "REL", "--out", "page.html"]) == run(["attack", "--help"]) == 0
assert "Privacy report" in Path("page.html").read_text()
assert "Verify a folder" in pages.render("words", root="/", place="here", running=None)
assert all(path.exists() for path, _ in pages.ASSETS.values())
"""


def ran(command: list[str], **given: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, **given)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


def walked(python: str, folder: Path, environment: dict[str, str], *options: str) -> None:
    """Walk the path of :mod:`tests.core_path` in a new folder, with its file alone."""
    folder.mkdir()
    script = folder.parent / "core_path.py"
    script.write_bytes(Path(core_path.__file__).read_bytes())
    said = ran([python, "-W", "ignore", *options, str(script)], cwd=folder, env=environment)
    assert said.splitlines()[-1] == "core: done"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive, and the wheel that is built from the archive, as a packager does."""
    build = pytest.importorskip("build", reason="builds packages; in privmix[dev]")
    pytest.importorskip("setuptools")
    copy = copied(tmp_path_factory.mktemp("package"))
    # Not the path of this process, by which the sources of the checkout could be found.
    environment = {**os.environ, "PYTHONPATH": str(Path(build.__file__).parents[1])}
    ran([sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"], cwd=copy, env=environment)
    return copy / "dist"


def test_the_wheel_holds_the_package_and_nothing_beside_it(built: Path) -> None:
    wheel_name, archive = f"privmix-{__version__}-py3-none-any.whl", f"privmix-{__version__}.tar.gz"
    assert {path.name for path in built.iterdir()} == {wheel_name, archive}
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {"privmix", f"privmix-{__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    for file in ("reports/templates/page.css", "studio/static/htmx.min.js", "studio/static/htmx.LICENSE.txt"):
        assert f"privmix/{file}" in names
    assert not any("/tests/" in name or name.endswith((".ipynb", "README.md")) for name in names)


def test_what_it_installs_works_without_the_repository(built: Path, tmp_path: Path) -> None:
    """Dependencies are this environment's: what is asked is whether the wheel is whole."""
    place, walk = tmp_path / "site", tmp_path / "walk"
    wheel = str(next(built.glob("*.whl")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    ran([*pip, "--target", str(place), wheel])
    # The checkout's own path is not on it; what else this process finds packages by is.
    sources = Path(__file__).parents[1]
    others = [path for path in sys.path if path and not Path(path).resolve().is_relative_to(sources / "src")]
    others = [path for path in others if Path(path).resolve() != sources]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *others]), "OMP_NUM_THREADS": "1"}
    walked(sys.executable, walk, environment, "-P")
    ran([sys.executable, "-P", "-c", _SMOKE, str(place)], cwd=walk, env=environment)


def test_the_core_alone_goes_from_a_table_to_what_is_learnt(built: Path, tmp_path: Path) -> None:
    """In an environment of its own, with what the wheel needs and no extra: less than 700 MB, without torch."""
    sources, place = Path(__file__).parents[1], tmp_path / "core"
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
    walked(python, tmp_path / "walk", environment)
