"""Ranges of fields of every dataclass that is found: a value outside is refused by the field's name."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix
from privmix import fields
from privmix.accounting import events, filters
from privmix.attacks.one_run import OneRun
from privmix.certificate.certificate import CommonFields, File, Promise
from privmix.certificate.ledger_total import LedgerTotal, Outcomes
from privmix.certificate.notes import SeriesLink
from privmix.certificate.sealed_key import Commitment, Terms
from privmix.certificate.signing import Subject
from privmix.data.overlap import InputHashes, Sketch
from privmix.designs.corrected.released import CorrectedSecondMoments
from privmix.designs.stages.released import ThreeStageMoments, TwoStageMoments
from privmix.designs.stages.two_plan import TwoStagePlan
from privmix.errors import InvalidInput
from privmix.mechanisms import sampling
from privmix.mechanisms.noise import Lattice, SquareRoot
from privmix.planning import ReleaseConfig
from privmix.planning.theory import LinearTask
from privmix.plans.plan import BasePlan
from privmix.plans.registry import all_designs
from privmix.plans.setting import Setting
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import ClassSecondMoments, SecondMoments
from privmix.releases.certificate import ReleaseFields
from privmix.releases.series import Notes, StepNotes
from privmix.reports.records import RunRecord, _Subject
from privmix.research.poisoning.threat import ThreatModel
from privmix.research.rivals.gaussian_mixing.plan import NormalWeights
from privmix.training.certificate import ModelFields
from privmix.training.config import TrainingConfig
from privmix.training.examples import ImageLayout, ModelFacts
from privmix.training.gradients.parameters import Clipping
from privmix.training.plan import TrainingPlan
from tests.refusals import refuses
from tests.wrong_values import wrong_values

OLDER = Path(__file__).parent / "certificate" / "older"
NOISY = events.Gaussian(2.0)
LEDGER = ("patients", 4.0, 1e-5, "add_remove", "adaptive", 1.5, 2.5, {"release": 2}, "2026-01-31T12:00:00+00:00")
FACTS = Setting(40, 8, ("no", "yes"))


def certificate(kind: type[CommonFields]) -> CommonFields:
    content = json.loads((OLDER / f"{kind.of or 'model'}-4.json").read_text())
    known = set(fields.names_of(kind))
    return fields.read(kind, {name: value for name, value in content.items() if name in known}, "certificate")


def planned(design: type[Any]) -> BasePlan:
    options = {"mixup_degree": 4} if "mixup_degree" in fields.names_of(design) else {}
    return ReleaseConfig(40, 8, tuple("abcd"), design.name, centre="none", **options).with_noise(2.0)


def moments(kind: type[Any]) -> Any:
    """Of two features and two classes: arrays of ones in the shapes that the stages give them."""
    shapes = {"second": (2, 2), "cross": (2, 2), "label_sums": (2,), "directions": (2, 2), "means": (2, 2)}
    shapes |= {"norms": (29,), "within": (2, 2), "class_directions": (2, 2), "class_means": (2, 2)}
    shapes |= {"class_within": (2, 2, 2), "class_second": (2, 2, 2), "models": (1, 3, 2), "errors": (1, 3, 2)}
    given = {name: np.ones(shapes[name], np.float32) for name in fields.names_of(kind) if name in shapes}
    rest = {name: 1.0 for name in fields.names_of(kind) if name not in shapes}
    return kind(**given, **rest | {"records": 4})


@cache
def examples() -> dict[type[Any], Any]:
    """An object of each class that needs arguments."""
    plans: list[Any] = [planned(kind) for kind in all_designs()]
    plans += [plan.first for plan in plans if isinstance(plan, TwoStagePlan)]
    made = [
        *plans,
        NOISY,
        events.Laplace(2.0),
        events.Bounded(1.0, 0.0),
        events.PoissonSampled(0.5, NOISY),
        events.Allocated(5, NOISY),
        events.FixedSizeSampled(10, 5, NOISY),
        events.ClusterSampled(0.5, 0.5, NOISY),
        events.Repeated(events.Composed((NOISY, events.NormalWeighted(NOISY))), 3),
        filters.GaussianFilter(1.0, 0.1),
        filters.RenyiFilter(4, 1.0),
        filters.PureFilter(1.0),
        OneRun(10, 5, 4),
        Promise(1.0, 1e-5, "add_remove", "pld", True),
        File("weights", 0, "0" * 64),
        *(certificate(kind) for kind in (CommonFields, ReleaseFields, ModelFields)),
        Outcomes(1, 1, ("release",)),
        LedgerTotal(*LEDGER, "0" * 64, "gdp", 0.5, Outcomes(1, 1, ("release",))),
        Subject("release", "0" * 32),
        Terms(("0" * 64,), 1, "2026-01-31"),
        Commitment(("0" * 64,), 1, "2026-01-31", "1" * 64, "2" * 64),
        Sketch.of(InputHashes({bytes([one]) * 16: 1 for one in range(9)}, telling=True)),
        SquareRoot(3),
        SeriesLink("0" * 32, "1" * 64),
        StepNotes(5, "0" * 64, "1" * 32),
        Notes(1, "0" * 32, {}, {}, (8,), None, None, "1" * 64),
        NormalWeights(10, 5),
        moments(SecondMoments),
        moments(ClassSecondMoments),
        moments(CorrectedSecondMoments),
        moments(TwoStageMoments),
        moments(ThreeStageMoments),
        Lattice(8),
        Clipping(1.0),
        TrainingConfig(1.0, 1e-5),
        sampling.PoissonSampling(10, 5, 0.5),
        sampling.AllocationSampling(10, 5, 2),
        sampling.FixedSizeSampling(10, 5, 2),
        sampling.HierarchicalSampling(10, 5, 2, 0.5, 0.5),
        sampling.ClasswiseSampling(10, 5, 2, 0.5),
        sampling.EveryRecord(10, 1),
        ReleaseConfig(40, 8, ("no", "yes")),
        FACTS,
        LinearTask((1.0, 0.5), 1.0, 0.1),
        RecordTransform(1.0),
        _Subject("design", None),
        RunRecord("audit", {"kind": "design", "id": None}, False, {"figure": 0.9}, {"runs": [1]}),
        ThreatModel(3),
        ImageLayout(1, 8, 8),
        TrainingPlan(1000, 50, 5, 1.0, clip_norm=1.0, delta=1e-3, epsilon=1.0),
        ModelFacts(("no", "yes"), {}, (8, 8), 64),
    ]
    return {type(one): one for one in made}


STORED = (*events._KINDS.values(), filters.GaussianFilter, filters.RenyiFilter, filters.PureFilter, CommonFields)
STORED += (BasePlan, TrainingPlan, LedgerTotal, Sketch, RunRecord, Terms)
# Bases that nothing is: their subclasses are looked at.
BASES = {"BasePlan", "EmbeddingPlan", "SumPlan"}


def classes() -> Iterator[type[Any]]:
    """Every dataclass of the package with a range in a field's type."""
    for module in pkgutil.walk_packages(privmix.__path__, "privmix."):
        if module.name.endswith("__main__") or ".migrations" in module.name:
            continue
        for kind in list(vars(importlib.import_module(module.name)).values()):
            here = inspect.isclass(kind) and dataclasses.is_dataclass(kind) and kind.__module__ == module.name
            if here and any(said.ranged for said in fields._said(kind).values()):
                yield kind


CLASSES = {kind.__qualname__: kind for kind in classes() if not inspect.isabstract(kind)}
assert len(CLASSES) > 90
MADE = [name for name in CLASSES if name not in BASES]


def example(name: str) -> Any:
    return examples().get(CLASSES[name]) or CLASSES[name]()


@pytest.mark.parametrize("name", MADE)
def test_what_a_field_does_not_allow_is_refused_by_its_name(name: str) -> None:
    made = example(name)
    given = {item.name for item in dataclasses.fields(made) if item.init}
    for field, value in wrong_values(CLASSES[name]):
        if field in given:
            with pytest.raises(InvalidInput) as caught:
                dataclasses.replace(made, **{field: value})
            assert field in caught.value.field, (field, value)


@pytest.mark.parametrize("name", [name for name in MADE if issubclass(CLASSES[name], STORED)])
def test_what_is_stored_comes_back(name: str) -> None:
    made = example(name)
    values = json.loads(json.dumps(fields.stored(made)))
    assert fields.read(CLASSES[name], values, "it") == made
    with refuses("it"):
        fields.read(CLASSES[name], {**values, "no such field": 1}, "it")
    for field in values:
        with pytest.raises(InvalidInput):
            fields.read(CLASSES[name], {**values, field: [-3.5]}, "it")
