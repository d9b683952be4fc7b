"""Who asks for little waits little: what is imported, and that lazy names are the names that are meant."""

import ast
import importlib
import json
from pathlib import Path

import pytest
from typer.main import get_group

from privmix.accounting import Adjacency, Gaussian
from privmix.cli import account, groups
from privmix.cli.app import VERBS, app
from privmix.cli.lazy_verbs import Verb, verbs_from_elsewhere
from privmix.cli.verb import add_command
from privmix.ledger.ledger import Ledger
from tests.processes import run_in

SOURCE = Path(__file__).parents[1] / "src" / "privmix"
LAZY = sorted(path for path in SOURCE.rglob("__init__.py") if "lazily(__name__)" in path.read_text(encoding="utf-8"))
HEAVY = {"torch", "scipy", "sklearn", "matplotlib", "transformers", "pyarrow", "pandas", "dp_accounting"}

_RUN = """
import contextlib, json, os, sys
from privmix.cli import main
lines, completed = json.loads(sys.argv[1]), json.loads(sys.argv[2])
sys.argv = ["privmix"]
for line in lines:
    assert main.run(line) == 0, line
if completed:
    place = str(len(completed) - 1)
    os.environ.update(_PRIVMIX_COMPLETE="complete_bash", COMP_WORDS=" ".join(completed), COMP_CWORD=place)
    with contextlib.suppress(SystemExit):
        main.run([])
print("imported", *sorted({name.split(".")[0] for name in sys.modules}))
"""


def run_fresh(lines: list[list[str]], *completed: str) -> tuple[str, set[str]]:
    """Run command lines, then a shell's completion of words, in a new process: what they print and import."""
    done = run_in(Path(), _RUN, json.dumps(lines), json.dumps(completed), timeout=120)
    said, _, imported = done.stdout.rpartition("imported ")
    return said, set(imported.split())


def test_what_needs_no_arithmetic_imports_none(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger.create(url)
    for name, filter_name in (("fixed-plans", None), ("any-plans", "gdp"), ("renyi", "rdp")):
        ledger.add_dataset(name, epsilon=4.0, delta=1e-5, adaptive=filter_name)
        ledger.reserve(name, Gaussian(3.0), adjacency=Adjacency.ADD_REMOVE, purpose="test")
    lines = [["--help"], ["--version"], ["attack", "--help"], ["ledger", "show", "--ledger", url]]
    said, imported = run_fresh(lines, "privmix", "re")
    assert "Turn a private dataset" in said
    assert "any-plans" in said
    assert said.split()[-3:] == ["release", "replay", "report"]
    assert not imported & HEAVY
    for budget in ("fixed-plans", "any-plans", "renyi"):
        assert ledger.stated_budget(budget) == ledger.budget(budget)


def test_a_verb_that_explains_itself_does_nothing_else() -> None:
    verbs = [*VERBS, "account poisoning"]
    verbs += [*(f"attack {name}" for name in groups.ATTACKS), *(f"ledger {name}" for name in groups.LEDGER)]
    verbs += [*verbs_from_elsewhere(), *(f"attack {name}" for name in verbs_from_elsewhere("attack"))]
    said, imported = run_fresh([[*verb.split(), "--help"] for verb in verbs])
    assert said.count("Usage:") == len(verbs)
    assert not imported & HEAVY


def test_nobody_waits_for_research_but_who_asks_for_it(tmp_path: Path) -> None:
    """A release, a fit, a training and help import no research but the designs and learners that registries list."""
    program = """
import sys
import numpy as np
import privmix as pm
from privmix.cli import main
assert main.run(["--help"]) == main.run(["attack", "--help"]) == 0
x, y = np.random.default_rng(0).random((60, 4)), np.arange(60) % 2
how = {"epsilon": 8.0, "delta": 1e-3, "features": "identity", "classes": 2, "clip_norm": 2.0}
release = pm.release((x, y), design="poisson", out="REL", **how)
assert not {"sklearn", "pandas", "matplotlib"} & set(sys.modules)
pm.fit(release)
pm.train((x, y), model="linear", epochs=1, batch_size=20, out="MODEL", **{**how, "clip_norm": 1.0})
found = {name for name in sys.modules if name.startswith("privmix.research.")}
print(*sorted(name for name in found if not name.startswith("privmix.research.rivals")))
"""
    done = run_in(tmp_path, program, timeout=120)
    assert "Research" in done.stdout
    assert "synthesise" in done.stdout
    assert done.stdout.splitlines()[-1] == ""


def test_the_front_door_is_open_at_once() -> None:
    """Nothing heavy is imported for what does not need it; a price takes SciPy and no torch."""
    program = """
import sys
import privmix as pm
assert {"load", "fit", "verify", "epsilon", "Ledger", "DPClassifier"} <= set(dir(pm))
assert {name for name in dir(pm) if not name.startswith("__")} == set(pm.__all__)
event = pm.Repeated(pm.PoissonSampled(0.01, pm.Gaussian(2.0)), 100)
first = set(sys.modules)
assert pm.epsilon(event, 1e-5).epsilon < 1
print(*sorted({name.split(".")[0] for name in first}))
print(*sorted({name.split(".")[0] for name in sys.modules}))
from privmix.features.base import extractor_names
print(*extractor_names())
"""
    done = run_in(Path(), program, timeout=120)
    first, priced, extractors = (set(line.split()) for line in done.stdout.splitlines())
    assert not first & (HEAVY | {"numpy"})
    assert "scipy" in priced
    # What registers itself when it is imported is there for whoever asks.
    assert {"identity", "tabular", "text", "vision"} <= extractors
    assert not priced & (HEAVY - {"scipy"})


@pytest.mark.parametrize("path", LAZY, ids=lambda path: str(path.parent.relative_to(SOURCE)))
def test_lazy_names_are_what_they_say(path: Path) -> None:
    package = importlib.import_module(".".join(["privmix", *path.parent.relative_to(SOURCE).parts]))
    block = next(node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    lines = [line for line in block.body if isinstance(line, ast.ImportFrom)]
    written = {alias.name: line.module or "" for line in lines for alias in line.names}
    assert sorted(written) == sorted(package.__all__)
    # The import of a part of the package would take its name.
    own = {name for name, module in written.items() if module != package.__name__}
    assert not own & {part.stem for part in path.parent.iterdir()}
    for name, module in written.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
    assert set(written) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


GROUPS: dict[str, tuple[object, dict[str, Verb]]] = {
    "": (app, VERBS),
    "attack": (groups.attack, groups.ATTACKS),
    "ledger": (groups.ledger, groups.LEDGER),
    "series": (groups.series, groups.SERIES),
    "account": (account.account, account.VERBS),
}


@pytest.mark.parametrize("place", GROUPS)
def test_help_says_of_a_verb_what_the_verb_says(place: str) -> None:
    """Of privmix's own, in the order in which they are listed, and of those that entry points bring."""
    group, verbs = GROUPS[place]
    others = verbs_from_elsewhere(place)
    for verb in (verbs | others).values():
        module, _, kind = verb.module.partition(":")
        imported = importlib.import_module(module)
        if kind:
            add_command(group, getattr(imported, kind))
    found = get_group(group).commands  # type: ignore[arg-type]
    assert list(found)[: len(verbs)] == list(verbs)
    assert set(found) == set(verbs | others)
    for name, verb in (verbs | others).items():
        first = (found[name].help or "").split("\n\n")[0]
        assert " ".join(first.split()) == verb.help, name
