"""What every design in the registry must do, whoever wrote it.

That the worst case audit catches planted bugs of every design: tests/audits/test_planted_bugs.py.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import Mock

import numpy as np
import pytest

from privmix.audits.empty_runs import NOISES, PureNoise
from privmix.audits.evidence import BESIDE_TESTS, ROW_LAW, RowLaw
from privmix.audits.noise_tests import NoiseTest
from privmix.audits.sensitivity import MOVED, QuerySensitivity
from privmix.audits.worst_case import WORST_CASE, WorstCase, attack, worst_case_of
from privmix.engine.rows import Engine
from privmix.errors import InvalidInput
from privmix.learning.base import LEARNERS
from privmix.learning.data_model import DataModel
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig, predict_accuracy
from privmix.plans.design import Design
from privmix.plans.registry import Deferred, all_designs, behind, design_named, made_by, plan_from_dict, register
from privmix.plans.rows import RowDesign
from privmix.publication.second_moments import RELEASED_AS, Released
from privmix.releases.folder import load_release
from privmix.releases.run import release_to_folder
from privmix.releases.verify import verify_release
from privmix.research.rivals.embedding.feature_maps import FEATURE_MAP, FeatureMap
from tests.releases.helpers import CLASSES, EVERY_DESIGN, design_name, make_records, own_options

RECORDS, DIM = 80, 4
# What every design leads to, the last one where it has need of it; with what is returned behind it.
DOORS: dict[Deferred[Any], Any] = {
    ROW_LAW: RowLaw,
    WORST_CASE: WorstCase,
    NOISES: Iterator[PureNoise],
    MOVED: list[QuerySensitivity],
    BESIDE_TESTS: list[NoiseTest],
}
every_design = pytest.mark.parametrize("choices", EVERY_DESIGN, ids=design_name)
every_kind = pytest.mark.parametrize("kind", all_designs(), ids=lambda kind: kind.name)


def config_of(choices: dict[str, Any]) -> ReleaseConfig:
    own = own_options({"mixup_degree": 8, **choices})
    return ReleaseConfig(records=RECORDS, dim=DIM, classes=CLASSES, **own)


def write(folder: Path, choices: dict[str, Any], *, resume: bool = False, progress: Any = None) -> None:
    plan = config_of(choices).with_noise(2.0, 4.0).priced(1e-3)
    facts = {"extractor": {"name": "identity"}, "input_shape": (DIM,)}
    streams = None if resume else SecretStreams.from_seed(3)
    records = make_records(RECORDS, DIM)
    release_to_folder(plan, records, streams, folder, resume=resume, progress=progress, **facts)


def test_every_design_is_among_the_cases() -> None:
    assert {choices["design"] for choices in EVERY_DESIGN} == {kind.name for kind in all_designs()}


@every_kind
def test_it_says_what_it_is(kind: type[Design[Any]]) -> None:
    assert design_named(kind.name) is kind
    assert register(kind) is kind
    assert not issubclass(kind, RowDesign) or (kind.words and kind.draws)
    assert kind.learner in LEARNERS
    assert all(option.metadata["help"] for option in kind.options())
    with pytest.raises(FrozenInstanceError):
        setattr(kind(), kind.options()[0].name, 1)


@every_kind
def test_its_doors_lead_to_what_they_say(kind: type[Design[Any]]) -> None:
    assert kind.engines
    for said in kind.engines.values():
        assert issubclass(behind(kind, "engines", said), Engine)
    for door, returned in DOORS.items():
        if door is BESIDE_TESTS and not door.is_in(kind):
            assert not kind.released
            continue
        # Made for plans of this very design.
        hints = get_type_hints(door.of(kind))
        assert issubclass(kind.plan_type, hints["plan"]), door
        assert hints["return"] == returned or issubclass(hints["return"], returned), door
    if RELEASED_AS.is_in(kind):
        assert issubclass(RELEASED_AS.of(kind), Released)
    if FEATURE_MAP.is_in(kind):
        assert issubclass(FEATURE_MAP.of(kind), FeatureMap)
    # No attribute leads anywhere that is not looked at here.
    known = {door.name for door in (*DOORS, RELEASED_AS, FEATURE_MAP)}
    leads = {name for name in dir(kind) if re.fullmatch(r"[\w.]+:\w+", str(getattr(kind, name, "")))}
    assert leads <= known


@pytest.mark.parametrize("door", [*DOORS, RELEASED_AS, FEATURE_MAP], ids=lambda door: door.name)
def test_a_door_that_is_missing_or_leads_nowhere(door: Deferred[Any]) -> None:
    bare: type[Design[Any]] = type("Bare", (Design,), {"name": "bare"})
    with pytest.raises(InvalidInput, match=f"bare.*{door.name}"):
        door.of(bare)
    for said in ("nowhere", "no.such.module:name", "privmix.errors:no_such_name"):
        lost: type[Design[Any]] = type("Lost", (Design,), {"name": "lost", door.name: said})
        with pytest.raises(InvalidInput, match=f"{door.name} of design lost"):
            door.of(lost)


@every_kind
def test_options_of_other_designs_are_refused(kind: type[Design[Any]]) -> None:
    own = {option.name for option in kind.options()}
    values = {option.name: option.default for other in all_designs() for option in other.options()}
    for name in sorted(set(values) - own):
        with pytest.raises(InvalidInput, match=f"{name}: .*design {kind.name}: it is an option of "):
            ReleaseConfig(RECORDS, DIM, CLASSES, design=kind.name, **{name: values[name]})
    with pytest.raises(TypeError, match="no_such"):
        ReleaseConfig(RECORDS, DIM, CLASSES, design=kind.name, no_such=1)


@every_design
def test_it_plans_and_prices(choices: dict[str, Any]) -> None:
    """A plan comes back from JSON as it was, and costs at most what was asked."""
    config = config_of(choices)
    assert ReleaseConfig(RECORDS, DIM, CLASSES, config.design, centre=config.centre) == config
    plan = config.calibrate(8.0, 1e-2)
    assert plan_from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert made_by(plan) is type(config.design)
    assert isinstance(plan, made_by(plan).plan_type)
    assert 7.9 < plan.cost(1e-2).epsilon <= 8.0
    with pytest.raises(InvalidInput):
        plan_from_dict({**plan.to_dict(), "extra": 1})


@every_design
def test_it_releases_resumes_verifies_and_fits(choices: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "whole", choices)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "resumed", choices, progress=Mock(side_effect=KeyboardInterrupt))
    write(tmp_path / "resumed", choices, resume=True)
    for file in [*(tmp_path / "whole").glob("*.safetensors"), *(tmp_path / "whole").glob("data/*")]:
        own = tmp_path / "resumed" / file.relative_to(tmp_path / "whole")
        assert own.read_bytes() == file.read_bytes()
    verify_release(tmp_path / "resumed")
    released = load_release(tmp_path / "resumed")
    kind = design_named(choices["design"])
    assert released.mixes_all_classes == kind.mixes_all_classes
    assert not issubclass(kind, RowDesign) or kind.words in (tmp_path / "resumed" / "README.md").read_text()
    model = LEARNERS[kind.learner]().fit(released)
    assert model.predict(make_records(RECORDS, DIM).features).shape == (RECORDS,)


@every_design
def test_the_planner_can_judge_it(choices: dict[str, Any]) -> None:
    config = config_of(choices)
    plan, kind = config.with_noise(1.0, 4.0), type(config.design)
    model = DataModel.declared(DIM, len(CLASSES), np.random.default_rng(0))
    if kind.trials(config):
        assert 0 <= predict_accuracy(plan, model, draws=1).accuracy <= 1
    assert kind.agrees(plan, config.design.settings())
    assert not kind.agrees(plan, {**config.design.settings(), "design": "another"})
    for name, values in config.design.ranges().items():
        assert all(kind(**{name: value}) for value in values)
    for name, design in kind.trials(config):
        assert name in kind.labels
        design.check(config)
        assert set(design.settings()) - {"design"} <= {option.name for option in design.options()}


@pytest.mark.parametrize(
    "choices", [one for one in EVERY_DESIGN if issubclass(design_named(one["design"]), RowDesign)], ids=design_name
)
def test_rows_hold_what_the_design_says(choices: dict[str, Any]) -> None:
    """Its own account of rows and classes is that of the rows it draws."""
    plan = config_of({**choices, "rows": 900}).with_noise(1.0, 4.0)
    kind = made_by(plan)
    labels = np.arange(RECORDS) % len(CLASSES)
    drawn = plan.sampler.draw(SecretStreams.from_seed(0), 0, 0, labels)
    row = np.repeat(np.arange(plan.rows), drawn.counts)
    held = np.zeros((plan.rows, len(CLASSES)), int)
    np.add.at(held, (row, labels[drawn.indices]), 1)
    assert np.bincount(drawn.indices).max() <= kind.rows_touched(plan)
    assert held.sum(axis=1).mean() == pytest.approx(plan.expected_members, rel=0.1)
    # A class that may be in a row has n/K records there, each with its rate.
    share = kind.class_share(plan)
    assert held.mean(axis=0) / (plan.record_rate * RECORDS / len(CLASSES)) == pytest.approx(share, rel=0.15)
    if kind.averages:
        counts = kind.label_counts(plan, np.bincount(labels), plan.rows, np.random.default_rng(0))
        assert counts.mean(axis=0) == pytest.approx(held.mean(axis=0), rel=0.2)


@every_design
def test_its_worst_case_is_known(choices: dict[str, Any]) -> None:
    case = worst_case_of(config_of(choices).with_noise(2.0, 4.0))
    assert case.plan.design == choices["design"]
    assert attack(case, 4, seed=0, workers=1).present.shape == (2,)
