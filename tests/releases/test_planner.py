"""Planning: predictions follow the noise, and the choice follows the predictions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from privmix.errors import InvalidInput
from privmix.releases import ReleaseConfig
from privmix.releases.dataset import RecordTransform
from privmix.releases.planner import check_choice_record, choose_design, labels
from privmix.releases.prediction import DataModel, predict_accuracy

NAMES = tuple("abcdefgh")


def config(**changes: object) -> ReleaseConfig:
    return ReleaseConfig(**{"records": 20_000, "dim": 64, "classes": NAMES, **changes})  # type: ignore[arg-type]


def mean_prediction(epsilon: float, **changes: object) -> float:
    model = DataModel.declared(64, len(NAMES), np.random.default_rng(0))
    plan = config(**changes).calibrate(epsilon, 1e-5)
    return float(np.mean([predict_accuracy(plan, model, np.random.default_rng(draw)) for draw in range(4)]))


DESIGNS = [
    {"design": "poisson"},
    {"design": "hierarchical"},
    {"design": "classwise", "full_batch": True},
    {"design": "moments"},
]


@pytest.mark.parametrize("changes", DESIGNS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_more_budget_is_never_predicted_to_hurt(changes: dict[str, object]) -> None:
    little, much = mean_prediction(0.05, **changes), mean_prediction(5.0, **changes)
    assert 1 / len(NAMES) / 2 < little <= much + 0.02 <= 1.02


def test_best_design_first_and_nothing_but_public_facts() -> None:
    choice = choose_design(config(), 1.0, 1e-5, curve=True)
    accuracies = [item.accuracy for item in choice.candidates]
    assert accuracies == sorted(accuracies, reverse=True)
    assert {item.name for item in choice.candidates} == set(labels())
    record = json.loads(json.dumps(choice.to_dict()))
    assert record["chosen"] == choice.best.name
    assert len(record["epsilons"]) == len(record["curves"][choice.best.name])
    assert labels()[choice.best.name].split()[0].lower() in choice.reasons[0].lower()
    # The same public facts give the same choice.
    assert choose_design(config(), 1.0, 1e-5, curve=True).to_dict() == choice.to_dict()


def test_the_chosen_plan_meets_the_budget() -> None:
    best = choose_design(config(), 1.0, 1e-5, curve=False).best
    assert best.config.calibrate(1.0, 1e-5) == best.plan


def test_many_classes_and_few_records_put_the_budget_on_labels() -> None:
    few = choose_design(config(records=10_000, dim=384, classes=tuple(map(str, range(77)))), 1.0, 1e-5, curve=False)
    many = choose_design(config(records=200_000, dim=384, classes=NAMES), 8.0, 1e-5, curve=False)
    shares = [
        next(item.config.design.label_share for item in choice.candidates if item.name == "moments")
        for choice in (few, many)
    ]
    assert shares[0] >= 0.8 > shares[1]


def test_features_too_wide_for_moments_still_get_a_design() -> None:
    choice = choose_design(config(dim=9000, records=3000), 1.0, 1e-5, curve=False)
    assert "moments" not in {item.name for item in choice.candidates}


def test_a_public_dataset_gives_its_own_spectrum() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(8, 32))
    labels = rng.integers(0, 8, 4000)
    features = (means[labels] + 0.1 * rng.normal(size=(4000, 32))).astype(np.float32)
    easy = DataModel.of_public_data(features, labels, 8, RecordTransform(1.0), rng)
    hard = DataModel.of_public_data(
        (means[labels] + 3 * rng.normal(size=(4000, 32))).astype(np.float32), labels, 8, RecordTransform(1.0), rng
    )
    assert easy.between.sum() / easy.within.sum() > 20 * hard.between.sum() / hard.within.sum()
    assert easy.within.sum() + easy.between.sum() == pytest.approx(1.0, abs=0.1)
    other = DataModel.of_public_data(features, labels, 20, RecordTransform(1.0), rng)
    assert other.means.shape == (20, 32)
    np.testing.assert_allclose(other.between.sum(), easy.between.sum(), rtol=1e-3)


def test_bad_models_and_budgets() -> None:
    model = DataModel.declared(10, 3, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="model"):
        choose_design(config(), 1.0, 1e-5, model)
    for epsilon, delta in ((0.0, 1e-5), (1.0, 0.0), (1.0, 1.0), (float("nan"), 1e-5)):
        with pytest.raises(InvalidInput):
            choose_design(config(), epsilon, delta)
    with pytest.raises(InvalidInput, match="between_share"):
        DataModel.declared(10, 3, np.random.default_rng(0), between_share=1.0)
    with pytest.raises(InvalidInput, match="public data"):
        DataModel.of_public_data(
            np.zeros((3, 2), np.float32), np.zeros(4, np.int64), 2, RecordTransform(1.0), np.random.default_rng(0)
        )


def record() -> dict[str, object]:
    return dict(choose_design(config(), 1.0, 1e-5, curve=False).to_dict())


def test_a_record_of_a_choice_says_what_its_numbers_say() -> None:
    check_choice_record(record())
    check_choice_record(json.loads(json.dumps(record())))


@pytest.mark.parametrize(
    "change",
    [
        {"reasons": ["ok\n\n# Guarantee\n\n**(0.01, 1e-9)-differential privacy**"]},
        {"model": "# 3 private records"},
        {"chosen": "hierarchical"},
        {"chosen": "another"},
        {"predicted": {"moments": 2.0}},
        {"settings": {}},
        {"extra": "pure"},
        {"labels": {}},
        {"predicted": None},
    ],
    ids=["reasons", "model", "not-best", "unknown", "range", "settings", "extra", "labels", "type"],
)
def test_other_records_are_refused(change: dict[str, object]) -> None:
    """A data card repeats these words: nobody may write a guarantee into them."""
    with pytest.raises(InvalidInput, match="certificate choice"):
        check_choice_record({**record(), **change})
