"""Every registry finds its variants in their files, lists them in help, and takes those of other packages."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privmix import _registry
from privmix._registry import Registry, literals_of
from privmix.data import open_dataset
from privmix.data.reader import READERS, reader_of
from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS
from privmix.mechanisms.plan import check_price
from privmix.plans.registry import DESIGNS
from privmix.reports.panel import PANELS
from privmix.research.poisoning.base import ATTACKS, DEFENCES
from privmix.research.poisoning.victims.networks.base import NETWORKS
from privmix.training.config import TrainingConfig
from privmix.training.gradients.strategies import STRATEGIES
from privmix.training.mechanisms.base import MECHANISMS, TrainingMechanism, plan_from_dict, plan_types
from privmix.training.models.base import MODELS, build_model, model_from_spec
from privmix.training.public.base import METHODS
from privmix.training.views.config import PRESETS

# Registry -> its packages and, where others are in them, its decorator; and a name that it has.
ALL: dict[str, tuple[Registry[Any], str, str]] = {
    "design": (DESIGNS, "privmix.designs register", "poisson"),
    "public method": (METHODS, "privmix.training.public", "dope"),
    "strategy": (STRATEGIES, "privmix.training.gradients", "loop"),
    "mechanism": (MECHANISMS, "privmix.training.mechanisms", "dp-sgd"),
    "model": (MODELS, "privmix.training.models", "linear"),
    "views": (PRESETS, "privmix.training.views", "self-aug"),
    "learner": (LEARNERS, "privmix.learning,privmix.designs LEARNERS.register", "discriminant"),
    "reader": (READERS, "privmix.data", "idx"),
    "record kind": (PANELS, "privmix.reports", "audit"),
    "poisoning attack": (ATTACKS, "privmix.research.poisoning.poisons", "patch-backdoor"),
    "defence": (DEFENCES, "privmix.research.poisoning.defences", "mixup"),
    "network": (NETWORKS, "privmix.research.poisoning.victims.networks", "cnn"),
}
every_registry = pytest.mark.parametrize(("registry", "package", "name"), ALL.values(), ids=ALL)

# A file that no file of privmix names.
ELSEWHERE = """
from privmix.data.array_files import Npy
from privmix.data.reader import READERS
from privmix.training.mechanisms.base import MECHANISMS
from privmix.training.mechanisms.dp_sgd import DpSgdMechanism
from privmix.training.models.base import MODELS
from privmix.training.models.networks import LinearHead
from privmix.training.plan import TrainingPlan


class OwnPlan(TrainingPlan):
    mechanism = "same-noise"


@MECHANISMS.register
class SameNoise(DpSgdMechanism):
    name, words, plan = "same-noise", "own", OwnPlan

    @classmethod
    def planned(cls, draft, settings):
        return OwnPlan(**vars(draft))


@MODELS.register
class Head(LinearHead):
    name = called = "head"


@READERS.register
class Own(Npy):
    name, words, endings, suffixes = "own", "own", ".own", ("own",)

    @classmethod
    def open(cls, files, request):
        return super().open([file.with_suffix(".npy") for file in files], request)
"""


@every_registry
def test_what_is_told_is_what_is_registered(registry: Registry[Any], package: str, name: str) -> None:
    variants = {variant.name: variant for variant in registry.all()}
    assert name in variants
    own = [said["name"] for said in literals_of(*package.split())]
    # Those that entry points bring come after the package's own.
    assert list(variants)[: len(own)] == sorted(own) == own
    for said in literals_of(*package.split()):
        for attribute, value in said.items():
            assert getattr(variants[said["name"]], attribute) == value
    assert all(registry[one] is variant for one, variant in variants.items())


@every_registry
def test_names_that_are_unknown_or_taken(registry: Registry[Any], package: str, name: str) -> None:
    for wrong in ("nonsense", None, 3):
        with pytest.raises(InvalidInput, match=name):
            registry[wrong]
    with pytest.raises(InvalidInput, match="no other"):
        registry.register(type("Other", (), {"name": name}))
    assert registry.register(registry[name]) is registry[name]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file above, as an installed package whose entry points name it."""
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)
    found = SimpleNamespace(load=lambda: importlib.import_module("elsewhere"))
    for registry, _, _ in ALL.values():
        # Those of privmix's own files register once.
        registry.all()
        monkeypatch.setattr(registry, "_known", dict(registry._known))
        monkeypatch.setattr(registry, "_looked", False)
    monkeypatch.setattr(_registry, "entry_points", lambda group: [found] if group.startswith("privmix.") else [])
    yield
    sys.modules.pop("elsewhere", None)


def test_a_foreign_variant_that_came_first_is_refused_at_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking one name up imports privmix's own file of that name, which finds the name in use."""
    own = LEARNERS["discriminant"].__module__
    other = type("Other", (), {"name": "discriminant"})
    fresh: Registry[Any] = Registry("learner", "privmix.learning,privmix.designs", "", by="LEARNERS.register")
    fresh.register(other)
    imported: list[str] = []
    monkeypatch.setattr(_registry.importlib, "import_module", imported.append)
    _ = fresh["discriminant"]
    assert imported == [own]


def test_a_mechanism_of_earlier_versions_is_refused_with_the_reason() -> None:
    config = TrainingConfig(8.0, 1e-3, batch_size=10, epochs=1)
    for refused in (
        lambda: plan_from_dict({**config.plan(100).to_dict(), "mechanism": "banded", "coefficients": [1.0]}),
        lambda: TrainingConfig.from_settings({**config.settings(), "mechanism": "banded", "bands": 3}),
        lambda: TrainingConfig.for_model("linear", records=100, epsilon=1.0, delta=1e-3, mechanism="banded:bands=4"),
    ):
        with pytest.raises(InvalidInput, match="correlated noise was removed"):
            refused()


def test_variants_of_another_package(elsewhere: None, tmp_path: Path) -> None:
    model = build_model("head", input_shape=(4,), dim=4, classes=2, seed=0)
    assert type(model_from_spec(model.spec())) is type(model) is MODELS["head"]
    for name, values in (("x", np.zeros((3, 2))), ("y", np.arange(3) % 2)):
        np.save(tmp_path / f"{name}.npy", values)
    (tmp_path / "x.own").touch()
    assert reader_of(tmp_path / "x.own") is READERS["own"]
    assert open_dataset(tmp_path / "x.own", classes=2).read().x.shape == (3, 2)
    plan = TrainingConfig(8.0, 1e-3, batch_size=10, epochs=1, mechanism="same-noise").plan(100)
    assert plan_from_dict(plan.to_dict()) == plan
    assert check_price(plan, plan_types()).epsilon <= 8.0
    # Those from elsewhere come last.
    assert list(MODELS)[-1] == "head"


def test_a_training_mechanism_has_no_batches_of_its_own() -> None:
    """Formal guarantee: one plan; batches that a class brings would be priced and never drawn."""
    with pytest.raises(TypeError, match="batches"):
        type("Own", (TrainingMechanism,), {"batches": None})
