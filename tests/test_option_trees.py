"""Trees of options: each leaf is said once, has one flat name, and wrong values of it are refused by that name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from privmix.cli.main import app
from privmix.errors import InvalidInput
from privmix.fields import Count, Share, check_fields, wrong_values
from privmix.options import Leaf, described, given_in, group, groups, leaves, made, option, with_leaves
from privmix.training import ExecutionConfig, ExtendedConfig, OptimiserConfig, TrainingConfig, ViewConfig, WarmUpConfig
from privmix.training.mechanisms.banded.options import BandedOptions
from tests.cli.training import train, write_all
from tests.golden.help import verbs

CONFIGS = [TrainingConfig, OptimiserConfig, ViewConfig, WarmUpConfig, ExtendedConfig, ExecutionConfig, BandedOptions]
NEEDED: dict[type[Any], dict[str, Any]] = {TrainingConfig: {"epsilon": 1.0, "delta": 1e-5}}
# What makes every option one that is used.
USED = {"scenario": "extended", "public_method": "multiplicity", "mechanism": "banded"}


@described
@dataclass(frozen=True)
class Update:
    """How weights move."""

    rate: Share = option(0.1, "Learning rate.", name="speed")
    decay: Share | None = option(None, "Of the average, beside `rate`.", unset=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.decay is not None and self.decay < self.rate:
            raise InvalidInput("decay", self.decay, "at least `rate`")

    def unused(self) -> dict[str, str]:
        return {"decay": "none at `rate` 0.5"} if self.rate == 0.5 else {}


@dataclass(frozen=True)
class Whole:
    """A tree of two updates."""

    steps: Count = option(1, "Steps.")
    first: Update = group(Update, "Before.", prefix="first_")
    last: Update = group(Update, "After.", "Last")


def test_a_leaf_has_one_flat_name_and_errors_use_it() -> None:
    assert [leaf.name for leaf in leaves(Whole)] == ["steps", "first_speed", "first_decay", "speed", "decay"]
    assert [leaf.panel for leaf in leaves(Whole)] == [None, None, None, "Last", "Last"]
    found = made(Whole(), {"steps": 3, "first_speed": 0.2, "decay": 0.9, "first_decay": None})
    assert found == Whole(3, Update(0.2), Update(0.1, 0.9))
    assert made(found, {"last": Update(0.3)}) == replace(found, last=Update(0.3))
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"first_speed": 2}, "first_speed", "first_speed: got 2; allowed: a finite number > 0 and < 1"),
        ({"first_decay": 0.05}, "first_decay", "first_decay: got 0.05; allowed: at least `first_speed`"),
        ({"decay": 0.05}, "decay", "decay: got 0.05; allowed: at least `speed`"),
        ({"first_speed": 0.5, "first_decay": 0.7}, "first_decay", "first_decay: got 0.7; allowed: none at `rate` 0.5"),
        ({"first": 3}, "first", "first: got 3; allowed: a Update"),
        ({"first": Update(), "first_speed": 0.1}, "first, first_speed", "the one or the others"),
    ]
    for given, field, text in wrong:
        with pytest.raises(InvalidInput) as refused:
            made(Whole(), given)
        assert refused.value.field == field
        assert text in str(refused.value)


def test_a_flat_dataclass_of_a_tree_says_what_was_given() -> None:
    @described
    @dataclass(frozen=True)
    @with_leaves(Whole, after="place", but=("steps",))
    class Asked:
        """A job."""

        place: str = option("here", "Where.")
        end: str = option("", "Last.")

    assert [item.name for item in fields(Asked)] == [
        *("place", "first_speed", "first_decay", "speed", "decay", "first", "last", "end")
    ]
    asked = Asked(speed=0.3, end="x")  # type: ignore[call-arg]
    assert given_in(Whole, asked) == {"speed": 0.3}
    assert "    first_speed: Learning rate. Default: 0.1." in (Asked.__doc__ or "")


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_field_of_a_config_says_what_it_is(kind: type[Any]) -> None:
    for item in fields(kind):
        assert item.metadata["help"].strip(), item.name
        assert f"    {item.name}: {item.metadata['help']}" in (kind.__doc__ or "")


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_a_type_does_not_allow_is_refused_by_the_field(kind: type[Any]) -> None:
    checked = Counter[str]()
    for name, value in wrong_values(kind):
        with pytest.raises(InvalidInput) as refused:
            kind(**{**NEEDED.get(kind, {}), name: value})
        assert name in refused.value.field.split(", ")
        checked[name] += 1
    assert checked


def wrong_leaves() -> Iterator[tuple[Leaf, Any]]:
    """A leaf and a value of its config's field that is wrong, but for those that are read from words."""
    base = TrainingConfig.for_model("linear", records=100, **NEEDED[TrainingConfig], **USED)
    for leaf in leaves(TrainingConfig):
        holder: Any = base
        for place in leaf.path[:-1]:
            holder = getattr(holder, place)
        if not leaf.word and "read" not in leaf.item.metadata:
            for name, value in wrong_values(type(holder)):
                if name == leaf.path[-1] and value is not None:
                    yield leaf, value


def test_wrong_values_are_refused_by_their_flat_names() -> None:
    seen = set()
    for leaf, value in wrong_leaves():
        given = {**USED, leaf.name: value}
        base = {name: given.pop(name, value) for name, value in NEEDED[TrainingConfig].items()}
        with pytest.raises(InvalidInput) as refused:
            TrainingConfig.for_model("linear", records=100, **base, **given)
        assert refused.value.field == leaf.name, (leaf.name, value)
        seen.add(leaf.name)
    assert {
        "ema",
        "microbatch",
        "warm_up_rate",
        "warm_up_batch",
        "public_batch",
        "rho",
        "bands",
        "chunk",
        "alpha",
    } <= seen


def test_the_command_line_refuses_them_by_their_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value an option: the words of the library, and exit code 2."""
    write_all(tmp_path / "root")
    monkeypatch.chdir(tmp_path / "root")
    chosen = {leaf.name: (leaf, value) for leaf, value in wrong_leaves() if isinstance(value, int | float | str)}
    for name, (_, value) in chosen.items():
        used = {**USED, "public": "public.npz", "mechanism": "banded", name: str(value), "dry_run": ""}
        outcome = train(**used)
        assert outcome.code == 2, (name, value, outcome.err)
        assert f"--{name.replace('_', '-')}" in outcome.err, (name, value, outcome.err)


def test_no_verb_has_an_option_twice() -> None:
    root = typer.main.get_command(app)
    for words in verbs():
        command, context = root, click.Context(root)
        for word in words:
            _, command, _ = command.resolve_command(context, [word])  # type: ignore[attr-defined]
            context = click.Context(command, parent=context, info_name=word)
        flags = Counter(flag for one in command.params for flag in [*one.opts, *one.secondary_opts])
        names = Counter(one.name for one in command.params)
        assert max(flags.values(), default=1) == max(names.values(), default=1) == 1, words


def test_configs_within_the_tree_have_names_of_their_own() -> None:
    names = {leaf.name for leaf in leaves(TrainingConfig)}
    assert len(names) == len(leaves(TrainingConfig))
    # A text names what a group is by default: as an option, and as the config in its place.
    assert set(groups(TrainingConfig)) & names == {"views", "optimiser"}


OUTSIDE = """
from dataclasses import dataclass
from privmix.training.mechanisms.base import MECHANISMS
from privmix.training.mechanisms.dp_sgd.mechanism import DpSgdMechanism
from privmix.training.plan import TrainingPlan
from privmix.training.public import METHODS, DopeSgd


class BeatingPlan(TrainingPlan):
    mechanism = "beating"


@MECHANISMS.register
class Beating(DpSgdMechanism):
    name, words, called = "beating", "with a `beat`", "beating"
    plan = BeatingPlan
    options = "beating_options:BeatingOptions"

    @classmethod
    def planned(cls, draft, settings):
        return BeatingPlan(**vars(draft))

    @classmethod
    def options_of(cls, plan):
        from beating_options import BeatingOptions
        return BeatingOptions(4)


@METHODS.register
class Pulling(DopeSgd):
    name = "pulling"
    settings = ("pull",)
    options = "beating_options:PullingOptions"

    def __init__(self, source, pull):
        super().__init__(source)
        self.pull = pull
        print("pull", pull)
"""
OPTIONS = '''
from dataclasses import dataclass
from privmix.options import described, option
from privmix.fields import Count, check_fields


@described
@dataclass(frozen=True)
class BeatingOptions:
    """How it beats."""

    beat: Count = option(4, "How often, with `mechanism` beating.")
    epochs: int = option(1, "An option of another's name.")

    def __post_init__(self):
        check_fields(self)


@described
@dataclass(frozen=True)
class PullingOptions:
    """How hard it pulls."""

    pull: Count = option(1, "How hard.")

    def __post_init__(self):
        check_fields(self)
'''
# The first line alone shows what a command imports.
PROGRAM = """
import contextlib, io, json, sys
from privmix.cli import main
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(line)
    print(json.dumps([code, out.getvalue(), err.getvalue(), sorted({"torch", "beating"} & set(sys.modules))]))
import numpy as np
import privmix as pm
from privmix.training import TrainingConfig
how = {"epsilon": 8.0, "delta": 1e-3, "mechanism": "beating"}
config = TrainingConfig.for_model("linear", records=100, **how, beat=3, beating_epochs=2)
settings = json.loads(json.dumps(config.settings()))
assert (settings["mechanism"], settings["beat"]) == ("beating", 3)
assert TrainingConfig.from_settings(settings) == config
x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
model = pm.train((x, y), **how, beat=2, features="identity", classes=2, epochs=1, batch_size=20)
print(model.certificate["settings"]["beat"])
how = {"scenario": "extended", "public_method": "multiplicity+pulling", "warm_up_epochs": 0}
config = TrainingConfig.for_model("linear", records=60, epsilon=8.0, delta=1e-3, pull=3, **how)
settings = json.loads(json.dumps(config.settings()))
assert settings["extended"]["method_options"] == {"pulling": {"pull": 3}}
assert TrainingConfig.from_settings(settings) == config
how |= {"public": (x[:20] + 1, y[:20]), "public_batch": 5}
given = {"epsilon": 8.0, "delta": 1e-3, "features": "identity", "classes": 2, "epochs": 1, "batch_size": 20}
pm.train((x, y), pull=5, **given, **how)
"""


def test_a_mechanism_and_a_method_of_another_package_bring_their_options(tmp_path: Path) -> None:
    """Help shows them in a panel of their own and imports no mechanism; settings hold them; names are kept apart."""
    info = tmp_path / "beating-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: beating\nVersion: 1.0\n")
    points = "[privmix.training_mechanisms]\nbeating = beating\n[privmix.public_methods]\npulling = beating\n"
    (info / "entry_points.txt").write_text(points)
    (tmp_path / "beating.py").write_text(OUTSIDE)
    (tmp_path / "beating_options.py").write_text(OPTIONS)
    write_all(tmp_path / "root")
    place = os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))
    line = ["train", "--data=own", "--classes=10", "--epsilon=8", "--delta=1e-4", "--batch-size=30", "--out=M"]
    wrong = {
        ("--mechanism=beating", "--beat=0"): "--beat: got 0; allowed: an integer >= 1",
        ("--beat=3",): "--beat: got 3; allowed: none with --mechanism dp-sgd; it is of --mechanism beating",
        ("--pull=3",): "--pull: got 3; allowed: none with --public-method none; it is of --public-method pulling",
    }
    lines = [
        ["train", "--help-all"],
        [*line, "--mechanism=beating", "--beat=3", "--dry-run", "--json"],
        *([*line, *more, "--dry-run"] for more in wrong),
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(lines)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": place},
        cwd=tmp_path / "root",
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    helped, planned, *refused = map(json.loads, said[: len(lines)])
    code, shown, _, imported = helped
    assert code == 0, helped
    assert "Mechanism: beating" in shown
    assert "Public method: pulling" in shown
    assert "mirror, multiplicity, pulling" in " ".join(shown.replace("│", " ").split())
    assert "--beat " in shown
    assert "--beating-epochs" in shown
    assert "beating (with a --beat)" in " ".join(shown.replace("│", " ").split())
    assert imported == []
    assert planned[0] == 0, planned
    assert json.loads(planned[1])["settings"]["beat"] == 3
    for (code, _, error, _), text in zip(refused, wrong.values(), strict=True):
        assert code == 2
        assert text in error
    assert said[len(lines)].split()[0] == "2"
    assert "pull 5" in done.stdout
