"""How long the command line takes to say something, and for the path of a table: CPU time of new processes.

Usage: ``bench_startup.py [CHECKOUT [ROUNDS [PYTHON]]]``. CHECKOUT: another version's working tree, such as
``git worktree add ../before COMMIT``, to measure that too; ``-``: none. PYTHON: of another environment for the version
here, such as one with the core alone. Every command runs in turn with ``python -c "import typer, rich"``, which is what
any such command line has to import; the first round warms caches up and does not count. The table is UCI Adult's, where
it is at hand; what Python's csv module takes to read it is shown. CPU time includes that of children. Who else uses a
core's other thread can double it: compare with the libraries.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import common

HERE = Path(__file__).parents[1]
TARGET = 3.0
URL = "sqlite:///ledger.db"
PRICE = ["account", "--design", "poisson:mixup_degree=64", "--records", 60_000, "--epsilon", 1, "--delta", 1e-5]
COMMANDS = {
    "privmix --help": ["--help"],
    "privmix --version": ["--version"],
    "privmix account": PRICE,
    "privmix ledger show": ["ledger", "show", "--ledger", URL],
    # Each is told all of its options, those of every design and of the models' presets.
    **{f"privmix {verb} --help": [verb, "--help"] for verb in ("fit", "release", "train", "audit")},
}
BASE = "import typer, rich"
ADULT = common.data_root() / "adult"
READ = f"import csv, gzip; list(csv.reader(gzip.open({str(ADULT / 'test.csv.gz')!r}, 'rt')))"
_TABLE = ["--label-column", "income", "--features", f"tabular:{HERE / 'docs' / 'adult.json'}"]
_RELEASE = ["release", "--data", ADULT, *_TABLE, "--classes", "<=50K,>50K", "--design", "moments"]
_RELEASE += ["--epsilon", 1, "--delta", 1e-5, "--out"]
_TEST = ["--data", ADULT, "--split", "test", "--label-column", "income"]
# In this order: each needs what the ones before it wrote.
PATH = {
    "privmix release --dry-run": [*_RELEASE, "NONE", "--dry-run"],
    "privmix release": [*_RELEASE, "REL", "--overwrite"],
    "privmix verify": ["verify", "REL"],
    "privmix fit": ["fit", "REL", "--out", "MODEL", "--overwrite"],
    "privmix predict": ["predict", "MODEL", *_TEST, "--out", "predictions.csv", "--overwrite"],
    "privmix evaluate": ["evaluate", "MODEL", *_TEST],
}
if ADULT.exists():
    COMMANDS |= PATH
# One reservation a dataset, so that there is something to show.
LEDGER = f"""
from privmix.accounting import Gaussian
from privmix.ledger.ledger import Ledger
ledger = Ledger.create("{URL}")
ledger.add_dataset("patients", epsilon=4.0, delta=1e-5)
ledger.reserve("patients", Gaussian(3.0), purpose="benchmark")
"""


def cpu(checkout: Path, code: str, arguments: list[object], folder: Path) -> float:
    """CPU seconds of a new interpreter that runs ``code``."""
    # The first round compiles modules, as installing them does.
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    python = sys.argv[3] if sys.argv[3:] and checkout == HERE else sys.executable
    words = [python, "-c", code, *map(str, arguments)]
    subprocess.run(words, check=True, capture_output=True, env=environment, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(checkouts: dict[str, Path], rounds: int) -> tuple[list[float], dict[str, dict[str, list[float]]]]:
    """CPU seconds of the libraries alone, and of every command of every version, round by round."""
    base: list[float] = []
    found: dict[str, dict[str, list[float]]] = {name: {line: [] for line in COMMANDS} for name in checkouts}
    with tempfile.TemporaryDirectory() as place:
        for name, checkout in checkouts.items():
            (Path(place) / name).mkdir()
            cpu(checkout, LEDGER, [], Path(place) / name)
        for round_ in range(rounds + 1):
            for line, words in COMMANDS.items():
                for name, checkout in checkouts.items():
                    folder = Path(place) / name
                    alone = cpu(checkout, BASE, [], folder)
                    spent = cpu(checkout, "from privmix.cli.main import main; main()", words, folder)
                    if round_:
                        base.append(alone)
                        found[name][line].append(spent)
    return base, found


def main() -> None:
    checkouts = {"after": HERE}
    if sys.argv[1:] and sys.argv[1] != "-":
        checkouts = {"before": Path(sys.argv[1]).resolve(), **checkouts}
    rounds = int(sys.argv[2]) if sys.argv[2:] else 9
    base, found = measure(checkouts, rounds)
    alone = common.median(base)
    times = {name: {line: common.median(values) for line, values in lines.items()} for name, lines in found.items()}
    rows = [
        [
            f"`{line}`",
            *(cell for name in checkouts for cell in (f"{times[name][line]:.2f}", f"{times[name][line] / alone:.1f}")),
        ]
        for line in COMMANDS
    ]
    heads = [head for name in checkouts for head in (f"{name}, CPU s", f"{name}, times the libraries")]
    ratio = times["after"]["privmix --help"] / alone
    said = (
        f"`python -c '{BASE}'` takes {alone:.3f} s of CPU time. `privmix --help` takes {ratio:.2f} times as long; it "
        f"may take {TARGET:.0f} times."
    )
    if ADULT.exists():
        with tempfile.TemporaryDirectory() as place:
            reading = common.median([cpu(HERE, READ, [], Path(place)) for _ in range(rounds)])
        said += (
            f" The path is that of UCI Adult: 32,561 records released, 16,281 predicted; Python's csv module "
            f"takes {reading:.2f} s to read these."
        )
    results = {"libraries": alone, "medians": times, "help_ratio": ratio, "target": TARGET, "runs": found}
    settings = {"rounds": rounds, "versions": ", ".join(checkouts), "times": "CPU seconds, medians"}
    common.save("startup", "Time to the first word", settings, results, [common.table(["command", *heads], rows), said])


if __name__ == "__main__":
    main()
