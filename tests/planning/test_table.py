"""Forecasts of tables: by public facts, of the size that noise has, and choices that follow from them."""

import inspect
from itertools import combinations

import numpy as np
import pandas
import pytest

import privmix as pm
from privmix.features.tabular import Tabular
from privmix.jobs.planner import columns_of
from privmix.learning.data_model import DataModel
from privmix.planning.config import ReleaseConfig
from privmix.planning.planner import choose_table
from privmix.planning.table import (
    CARRIED,
    TOO_MUCH,
    TableColumn,
    _as_shares,
    _noise,
    _variation,
    _weakest,
    few_for_noise,
    forecast_table,
)
from tests.refusals import refuses

COLUMNS = (TableColumn("ward", 4), TableColumn("stage", 5), TableColumn("place", 60))


def plan(epsilon: float = 1.0, records: int = 5000, **options: object):
    config = ReleaseConfig(records=records, dim=69, classes=("no", "yes"), design="moments", **options)
    return config.calibrate(epsilon, 1e-5)


def test_forecast_needs_public_facts_alone() -> None:
    """Formal guarantee: the plan and the declared columns are all that it is given."""
    assert list(inspect.signature(forecast_table).parameters) == ["plan", "columns", "label"]
    assert forecast_table(plan(), COLUMNS) == forecast_table(plan(), COLUMNS)


def test_a_cells_noise_is_that_of_the_release() -> None:
    """Without clipping: q records' cells of 1/q each, noise C^2 s_xx / sqrt(2) off the diagonal, over n."""
    made = plan(centre="none")
    found = forecast_table(made, COLUMNS)
    cell = 3 * made.second_noise_multiplier / np.sqrt(2) / made.records
    assert found.pairs[0].weakest == pytest.approx(_weakest(4, 5, cell))
    rows = ReleaseConfig(records=500, dim=69, classes=("no", "yes"), design="poisson", mixup_degree=4)
    assert forecast_table(rows.calibrate(1.0, 1e-5), COLUMNS) is None
    assert found.pairs[0].variation == pytest.approx(_variation(4, 5, cell))


def test_small_noise_moves_even_tables_by_its_mean_size() -> None:
    assert _variation(2, 3, 1e-6) == pytest.approx(6 / 2 * 1e-6 * np.sqrt(2 / np.pi), rel=0.4)


def test_what_stands_out_does() -> None:
    """Noise of a known size, and an association at the limit: their squares are told from noise alone's."""
    noise, generator = 1e-3, np.random.default_rng(0)
    weakest = _weakest(4, 6, noise)
    energy = weakest**2 * 3 / 24
    alone = np.square(noise * generator.standard_normal((4000, 15))).sum(1)
    assert (alone < noise**2 * 15 + energy).mean() > 0.99


def test_shares_are_shares() -> None:
    points = np.array([[0.5, 0.9, -0.3], [0.2, 0.3, 0.5], [2.0, -1.0, -1.0]])
    found = _as_shares(points)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1)
    # Each is the nearest one: of many shares none is nearer.
    others = np.random.default_rng(0).dirichlet(np.ones(3), 2000)
    for point, one in zip(points, found, strict=True):
        assert np.linalg.norm(one - point) <= np.linalg.norm(others - point, axis=1).min() + 1e-9


def test_advice_is_what_would_do() -> None:
    found = forecast_table(plan(0.5), COLUMNS)
    assert "place" in {name for one in found.lost for name in one.columns}
    assert {one.column for one in found.advice} >= {"place"}
    assert all(one.enough is None or 2 <= one.enough < one.states for one in found.advice)
    # All pairs of columns that are kept are carried with the advised numbers, and not with one value more.
    noise = next(one.weakest for one in found.pairs if one.columns == ("ward", "stage")) / _weakest(4, 5, 1.0)
    sizes = {one.name: one.states for one in COLUMNS} | {one.column: one.enough for one in found.advice}
    kept = [size for size in sizes.values() if size is not None]
    assert all(_weakest(a, b, noise) <= CARRIED for a, b in combinations(kept, 2))
    assert forecast_table(plan(8.0, records=500_000), COLUMNS).advice == ()


def test_only_what_features_tell_is_forecast() -> None:
    spec = Tabular(
        {"age": {"range": [0, 110]}, "old": {"bins": [30, 60]}, "ill": {"boolean": True}, "ward": {"categories": ["a"]}}
    )
    assert {one.name: one.told for one in columns_of(spec)} == {"age": False, "old": True, "ill": True, "ward": True}


def test_wide_tables_are_forecast_by_a_sample_of_pairs() -> None:
    columns = [TableColumn(f"q{place}", 2 + place % 3) for place in range(400)]
    made = ReleaseConfig(records=2000, dim=800, classes=("no", "yes"), design="moments").calibrate(2.0, 1e-5)
    found = forecast_table(made, columns)
    assert (len(found.pairs), found.of) == (5000, 400 * 399 // 2 + 400)
    assert len({pair.columns for pair in found.pairs}) == 5000
    assert "5,000 of 80,200" in " ".join(found.notes)
    assert found.pairs == forecast_table(made, columns).pairs
    # Not even two values would do, until one column is left, whose pair with the classes is carried.
    assert [one.column for one in found.advice] == [one.name for one in columns[:-1]]
    assert {one.enough for one in found.advice} == {None}


@pytest.mark.parametrize(("records", "epsilon", "few"), [(10, 1.0, True), (100, 0.1, True), (400, 1.0, False)])
def test_few_records_are_warned_of_by_public_facts(records: int, epsilon: float, few: bool) -> None:
    frame = pandas.DataFrame({"one": ["a", "b"] * (records // 2), "ill": ["no", "yes"] * (records // 2)})
    spec = Tabular({"one": {"categories": ["a", "b"]}})
    planned = pm.plan(
        frame, features=spec, label="ill", classes=["no", "yes"], epsilon=epsilon, delta=1e-3, design="moments"
    )
    assert (few_for_noise(planned.plan, epsilon, 1e-3) is not None) == few
    assert any("are few for epsilon" in text for text in planned.warnings) == few
    assert any("too much for rows" in text for text in planned.warnings) == (planned.forecast.variation > TOO_MUCH)


def test_release_for_a_table() -> None:
    spec = Tabular({"one": {"categories": ["a", "b"]}, "two": {"categories": ["x", "y", "z"]}})
    frame = pandas.DataFrame({"one": ["a", "b"] * 50, "two": ["x", "y"] * 50, "ill": ["no", "yes"] * 50})
    given = {"features": spec, "label": "ill", "classes": ["no", "yes"], "epsilon": 4.0, "delta": 1e-3}
    planned = pm.plan(frame, **given, goal="table")
    assert planned.plan.design == "moments"
    assert planned.plan.label_share == planned.table.config.design.label_share
    assert 0 < planned.table.accuracy <= 1
    assert planned.to_dict()["table"]["variation"] == planned.table.forecast.variation
    for goal, design in (("table", "moments"), ("rows", "auto")):
        with refuses("goal"):
            pm.plan(frame, **given, goal=goal, design=design)
    assert len(repr(planned.plan)) < 500


@pytest.mark.parametrize(("records", "design"), [(2000, "moments"), (2_000_000, "class-moments")])
def test_matrices_of_each_class_are_for_little_noise(records: int, design: str) -> None:
    """Their noise on pairs is sqrt(2) times as large, by which they must stay small; public facts alone decide."""
    config = ReleaseConfig(records=records, dim=12, classes=("no", "yes"))
    columns = [TableColumn(name, 3) for name in "abcd"]
    found = choose_table(config, 1.0, 1e-5, columns, DataModel.declared(12, 2, np.random.default_rng(0)))
    assert found.plan.design == design
    assert found.plan.cost().epsilon <= 1


def test_noise_of_matrices_of_each_class_adds_up() -> None:
    """Of K = 4 classes: twice the noise on pairs of columns."""

    def noise(design: str) -> tuple[float, float]:
        plan = ReleaseConfig(5000, 69, tuple("abcd"), design, label_share=0.5).with_noise(5.0)
        return _noise(plan, COLUMNS)

    (whole, cross), (by_class, both) = noise("moments"), noise("class-moments")
    assert by_class == pytest.approx(2 * whole)
    assert both < cross
