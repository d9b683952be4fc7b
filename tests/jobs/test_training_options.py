"""Options of a training: each is said once, and wrong values are refused by the option and the key."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from privmix.errors import InvalidInput
from privmix.named import keys
from privmix.training.config import OptimiserConfig, TrainingConfig
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.views.config import ViewConfig
from tests.cli.training import line, write_all
from tests.processes import run_in
from tests.wrong_values import wrong_values

TARGET: dict[str, Any] = {"records": 100, "epsilon": 1.0, "delta": 1e-5}
# Option, a name that it takes, and what the name stands for.
NAMED: list[tuple[str, str, type[Any]]] = [
    ("optimiser", "sgd", OptimiserConfig),
    ("views", "self-aug", ViewConfig),
    ("warm_up", "asam", WarmUpConfig),
    ("public_method", "multiplicity+dope", ExtendedConfig),
    ("strategy", "vmap", ExecutionConfig),
]


@pytest.mark.parametrize(("option", "name", "kind"), NAMED)
def test_wrong_values_of_keys_are_refused_by_option_and_key(option: str, name: str, kind: type[Any]) -> None:
    known, checked = {item.name for item in keys(kind)}, Counter[str]()
    for key, value in wrong_values(kind):
        # A number in quotation marks is a number in a text.
        if key in known and not isinstance(value, bool) and isinstance(value, int | float):
            with pytest.raises(InvalidInput) as refused:
                TrainingConfig.for_model("linear", scenario="extended", **{option: f"{name}:{key}={value}"}, **TARGET)
            # A value of another type is refused where it is read, one out of range where the object is made.
            text = str(refused.value).partition(": got")[0]
            assert {option, key} <= {*text.replace(":", "").replace(",", "").split()}, (key, value, text)
            checked[key] += 1
    assert checked
    for wrong, words in ((f"{name}:no_key=1", f"{option}: got 'no_key'"), ("no-name", option), (3, option)):
        with pytest.raises(InvalidInput, match=words):
            TrainingConfig.for_model("linear", **{option: wrong}, **TARGET)


def test_objects_and_texts_say_the_same() -> None:
    texts = {
        "optimiser": "sgd:learning_rate=0.01,ema_decay=0.5",
        "views": "self-aug:k_base=3",
        "warm_up": "sgd:epochs=3,batch_size=7",
        "public_method": "dope:batch_size=5",
        "strategy": "vmap:chunk=9,amp",
    }
    objects = {
        "optimiser": OptimiserConfig("sgd", 0.01, ema_decay=0.5),
        "views": ViewConfig.self_aug(3),
        "warm_up": WarmUpConfig(epochs=3, batch_size=7, optimiser="sgd"),
        "public_method": ExtendedConfig("dope", batch_size=5),
        "strategy": ExecutionConfig("vmap", chunk=9, amp=True),
    }
    first, second = (TrainingConfig.for_model("cnn", scenario="extended", **it, **TARGET) for it in (texts, objects))
    assert first == second


def test_what_changes_nothing_is_refused() -> None:
    wrong = {
        "warm_up": ("sgd:epochs=3", {}),
        "public_method": ("dope", {}),
        "public_method rho": ("dope:rho=0.2", {"scenario": "extended"}),
        "warm_up rho": ("sgd:rho=0.2", {"scenario": "warm"}),
        "optimiser momentum": ("adam:momentum=0.5", {}),
    }
    for field, (text, more) in wrong.items():
        with pytest.raises(InvalidInput) as refused:
            TrainingConfig.for_model("linear", **{field.partition(" ")[0]: text}, **more, **TARGET)
        assert refused.value.field == field


OUTSIDE = """
from privmix.training.mechanisms.base import MECHANISMS
from privmix.training.mechanisms.dp_sgd import DpSgdMechanism
from privmix.training.plan import TrainingPlan
from privmix.training.public.base import METHODS
from privmix.research.public_methods import DopeSgd


class BeatingPlan(TrainingPlan):
    mechanism = "beating"


@MECHANISMS.register
class Beating(DpSgdMechanism):
    name, words, called = "beating", "with a beat", "beating"
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
import contextlib, io, json, sys, warnings
warnings.simplefilter("ignore")
from privmix.cli import main
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(line)
    print(json.dumps([code, out.getvalue(), err.getvalue(), sorted({"torch", "beating"} & set(sys.modules))]))
import numpy as np
import privmix as pm
from privmix.training.config import TrainingConfig
how = {"epsilon": 8.0, "delta": 1e-3}
config = TrainingConfig.for_model("linear", records=100, mechanism="beating:beat=3,epochs=2", **how)
settings = json.loads(json.dumps(config.settings()))
assert (settings["mechanism"], settings["beat"]) == ("beating", 3)
assert TrainingConfig.from_settings(settings) == config
x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
given = {**how, "features": "identity", "classes": 2, "epochs": 1, "batch_size": 20}
print(pm.train((x, y), **given, mechanism="beating:beat=2").certificate["settings"]["beat"])
more = {"scenario": "extended", "public_method": "multiplicity+pulling:pull=3", "warm_up": "sam:epochs=0"}
config = TrainingConfig.for_model("linear", records=60, **how, **more)
settings = json.loads(json.dumps(config.settings()))
assert settings["extended"]["method_options"] == {"pulling": {"pull": 3}}
assert TrainingConfig.from_settings(settings) == config
more |= {"public": (x[:20] + 1, y[:20]), "public_method": "multiplicity+pulling:pull=5,batch_size=5"}
pm.train((x, y), **given, **more)
"""


def test_a_mechanism_and_a_method_of_another_package_bring_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help shows them by the name that takes them and imports no mechanism; settings hold them, names kept apart."""
    info = tmp_path / "beating-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: beating\nVersion: 1.0\n")
    points = "[privmix.training_mechanisms]\nbeating = beating\n[privmix.public_methods]\npulling = beating\n"
    (info / "entry_points.txt").write_text(points)
    (tmp_path / "beating.py").write_text(OUTSIDE)
    (tmp_path / "beating_options.py").write_text(OPTIONS)
    write_all(tmp_path / "root")
    monkeypatch.syspath_prepend(tmp_path)
    wrong = {
        "--mechanism=beating:beat=0": "--mechanism: beat: got 0; allowed: an integer >= 1",
        "--mechanism=dp-sgd:beat=3": "--mechanism: got 'beat'; allowed: no options for dp-sgd",
        "--public-method=dope:pull=3": "--public-method: got 'pull'; allowed: batch_size, ",
    }
    dry = line(out="M", dry_run="")
    lines = [
        ["train", "--help-all"],
        [*dry, "--mechanism=beating:beat=3", "--json"],
        *([*dry, option] for option in wrong),
    ]
    done = run_in(tmp_path / "root", PROGRAM, json.dumps(lines), timeout=120)
    said = done.stdout.splitlines()
    helped, planned, *refused = map(json.loads, said[: len(lines)])
    code, shown, _, imported = helped
    assert (code, imported) == (0, []), helped
    shown = " ".join(shown.replace("│", " ").split())
    for words in (
        "--mechanism beating:KEY=VALUE",
        "--public-method pulling:KEY=VALUE",
        "mirror, multiplicity, pulling",
        "beating (with a beat)",
    ):
        assert words in shown
    assert planned[0] == 0, planned
    assert json.loads(planned[1])["settings"]["beat"] == 3
    for (code, _, error, _), text in zip(refused, wrong.values(), strict=True):
        assert (code, text in error) == (2, True), error
    assert said[len(lines)].split()[0] == "2"
    assert "pull 5" in done.stdout
