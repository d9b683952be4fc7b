"""Every command and snippet in README and docs runs as written.

Shell blocks run through the command line in one working folder, in order, with `mnist` and similar names standing for
small real data in the same layout. Blocks that set up a machine (make, pip) are checked for their targets only.
"""

import doctest
import gzip
import importlib
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix as privmix_package
from privmix.errors import REFUTED
from privmix.learning import table_model
from privmix.training import config
from tests.cli.helpers import privmix
from tests.cli.test_path import digits
from tests.data.helpers import png
from tests.processes import environment

__all__ = ["digits"]

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


# Pages whose commands, or whose snippets, take longer than all others together.
DEAR = {
    "sh": ("choosing.md", "features.md", "audit.md", "training.md", "training-methods.md", "poisoning.md"),
    "python": ("training-methods.md", "python.md"),
}


def pages_with(language: str) -> list[Any]:
    """Pages with commands or snippets; the dear ones are thorough."""
    thorough = {page: [pytest.mark.thorough] if page.name in DEAR[language] else [] for page in PAGES}
    return [pytest.param(page, id=page.name, marks=marks) for page, marks in thorough.items() if blocks(page, language)]


# A full-size figure where a small one shows the same: sizes only, never flags.
SMALLER = {
    "--rows 60000": "--rows 3000",
    "--rows 50000": "--rows 500",
    "--rows 10000": "--rows 500",
    "--features scattering --": "--features pixels --",
    "--features efficientnet:160,lite2": "--features efficientnet:96",
    "--model wrn-16-4": "--model cnn",
    "--epochs 100": "--epochs 0.5",
    "--dim 784": "--dim 16",
    "--epsilon 1 --delta 1e-5 --as-published --json": "--epsilon 1 --delta 1e-5 --as-published --json --runs 2000",
    "--seconds 60": "--seconds 1",
    "--image-size 32": "--image-size 16",
    "epochs=20": "epochs=2",
    # Several that work together are started in tests/cli/test_train_processes.py.
    "--nproc-per-node 4": "--nproc-per-node 1",
    # Workers of a cluster are started in tests/engine/test_training.py.
}


# Of trainings that are told of none.
EPOCHS = 2.0


def small_texts(folder: Path) -> None:
    """Texts in the layout of banking77."""
    folder.mkdir()
    for split, count in (("train", 100), ("test", 10)):
        lines = [f'{number % 77},name,"where, please, is card {number}?"' for number in range(count)]
        content = "\n".join(["label,category,text", *lines]) + "\n"
        (folder / f"{split}.csv.gz").write_bytes(gzip.compress(content.encode()))


def small_table(folder: Path) -> None:
    """A table in the layout of UCI Adult, made from the declared ranges and categories."""
    folder.mkdir()
    columns = json.loads((ROOT / "docs" / "adult.json").read_text())
    lines = [",".join([*columns, "income"])]
    for number in range(120):
        cells = [str((spec.get("categories") or spec.get("range") or [0])[number % 2]) for spec in columns.values()]
        lines.append(",".join([*cells, ">50K" if number % 3 == 0 else "<=50K"]))
    (folder / "train.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def small_images(folder: Path, *splits: str) -> None:
    """Encoded images in Parquet, as CIFAR-10 is stored: ten classes by number."""
    random = np.random.default_rng(0 if "test" in splits else 1)
    folder.mkdir()
    for split in splits:
        images = [png(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)) for _ in range(70)]
        content = pa.table({"image": images, "label": pa.array([number % 10 for number in range(70)], pa.uint8())})
        pq.write_table(content, folder / f"{split}.parquet")


def torchrun(words: list[str]) -> None:
    """Run a line of torchrun as a user would, with the programs of this environment."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = [sys.executable, "-m", "torch.distributed.run", *words]
    own = environment() | {"PATH": programs}
    outcome = subprocess.run(run, env=own, capture_output=True, text=True, timeout=300, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.fixture
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of tables, and those trained for as long as privmix chooses, are for a moment: nobody looks at them."""
    for name in ("_STEPS", "_TRIAL_STEPS", "_AGAIN_STEPS"):
        monkeypatch.setattr(table_model, name, 20)
    for name in ("_LINEAR_EPOCHS", "_NETWORK_EPOCHS"):
        monkeypatch.setattr(config, name, EPOCHS)


@pytest.mark.usefixtures("short_fits", "own_folder")
@pytest.mark.parametrize("page", pages_with("sh"))
def test_shell_commands_run(page: Path, digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "mnist")
    small_texts(tmp_path / "banking77")
    small_table(tmp_path / "adult")
    small_images(tmp_path / "cifar10", "train", "test")
    small_images(tmp_path / "public", "train")
    # Public images in the shape of the private ones.
    x = np.random.default_rng(2).integers(0, 256, (120, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "PUBLIC.npz", x=x, y=np.arange(120) % 10, classes=list("0123456789"))
    shutil.copy(ROOT / "docs" / "adult.json", tmp_path)
    # Files that a page shows under their names: ```csv visits.csv.
    named = r"^```(?:csv|json|toml) (\S+)\n(.*?)^```"
    shown = dict(re.findall(named, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    for name, content in shown.items():
        if not name.endswith(".json"):
            (tmp_path / name).write_text(content, encoding="utf-8")
    for line in (line for block in blocks(page, "sh") for line in block.replace("\\\n", "").splitlines()):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "make":
            assert set(words[1:]) <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            continue
        if "account" not in words:
            for full, small in SMALLER.items():
                line = line.replace(full, small)
        if words[0] == "torchrun":
            torchrun([*shlex.split(line, comments=True)[1:], "--epochs", str(EPOCHS)])
            continue
        assert words[0] == "privmix", f"{page.name}: {line}"
        outcome = privmix(*shlex.split(line, comments=True)[1:])
        # One audit's claim is false, to show that. Rows of the table of eight visits may miss a pair by chance.
        done = (0, REFUTED) if words[1] in ("audit", "sample") else (0,)
        assert outcome.code in done, f"{page.name}: {line}\n{outcome.err}"
    # What a page shows of what its commands write is what they write.
    for name, content in shown.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == content


@pytest.mark.usefixtures("short_fits", "own_folder")
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_snippets_run(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "docs"}
    for snippet in blocks(page, "python"):
        exec(compile(snippet, f"{page.name} snippet", "exec"), namespace)


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / "docs").glob("reproductions/*.md")], ids=lambda page: page.name)
def test_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).resolve().exists(), f"{page.name}: {target}"


def test_docstring_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ.setdefault("COLUMNS", "100")
    # For each example doctest would look whether any file changed whose source was read.
    monkeypatch.setattr("linecache.checkcache", lambda filename=None: None)
    examples = 0
    for module in pkgutil.walk_packages(privmix_package.__path__, "privmix."):
        if module.name.startswith("privmix.ledger.migrations."):
            continue  # scripts that Alembic runs in a context of its own
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0, module.name
        examples += result.attempted
    assert examples > 100


@pytest.mark.parametrize(
    ("start", "end", "header", "least"),
    [("## The guarantee", "## Training", "what holds", 40), ("## Training", "## Next", "pitfall |", 18)],
)
def test_the_tests_that_pages_name_exist(start: str, end: str, header: str, least: int) -> None:
    """A row without its test is a claim."""
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").partition(start)[2].partition(end)[0]
    named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)*)`", page)
    rows = [line for line in page.splitlines() if line.startswith("| ") and header not in line]
    assert len(rows) > least
    assert all("`tests/" in row for row in rows)
    for file, names in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        for name in filter(None, names.split("::")):
            assert re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE), f"{file}{names}"
