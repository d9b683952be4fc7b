"""Audits of implementations: the real engine passes (false alarms below 1e-9), and planted bugs are caught."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.audits.audit import audit_plan
from privmix.audits.bounds import AuditVerdict
from privmix.audits.worst_case import EngineFactory, real_engine
from privmix.designs.corrected import engine as corrected_engine
from privmix.designs.stages import engine as stages_engine
from privmix.engine import rows as engine
from privmix.engine import tiles
from privmix.engine.rows import PrivateRecords, ReleaseEngine
from privmix.mechanisms.membership import Membership, offsets_of
from privmix.mechanisms.sampling import AllocationSampling, PoissonSampling
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform
from tests.audits.test_sensitivity import PLANS, in_two_rows
from tests.releases.helpers import own_options

CONFIDENCE, OF_CORRECT_ENGINES = 1 - 5e-7, 1 - 5e-10
EPSILON, DELTA = 8.0, 1e-2
SMALL = {"records": 100, "dim": 5, "classes": ("ant", "bee", "cat"), "mixup_degree": 20, "rows": 60}

# Fixed-size draws are priced for the worse of both directions in every row, and labels of two records differ by less
# than twice their norm: where nothing is left to either, the price is reached and small bugs show.
ALL = {"records": 16, "mixup_degree": 16, "rows": 20}
# What is not as in the tests of sensitivity; with one record a row, it is in all rows with the largest weight there is.
OWN: dict[str, dict[str, Any]] = {
    "fixed": {**ALL, "label_noise_ratio": 20.0},
    "laplace": {**ALL, "label_noise_ratio": 1000.0},
    "full-batch": {"rows": None},
    "random-weight": {"records": 1, "mixup_degree": 1, "label_noise_ratio": 20.0, "rows": 20},
    "moments-series": {"steps": 3},
    "poisson-centred": {"centre": "private"},
}
# The fewer where each run is one trial. Two thirds of the noise were refuted by so many in 18 of 20
# audits or more, and half of it by half as many in all.
FEWER = dict.fromkeys(("poisson-centred", "corrected-moments", "two-stage", "three-stage"), 1600)
FEWER |= {"fixed": 2000, "laplace": 4000, "random-weight": 2000}
DESIGNS: dict[str, tuple[dict[str, Any], int]] = {
    name: ({**choices, "centre": "none", **OWN.get(name, {})}, FEWER.get(name, 8000))
    for name, choices in PLANS.items()
    if name in OWN or "-centred" not in name
}
# One trial a run: an audit takes seconds. Of such designs two-stage, which has an engine of its own, is for every
# day; the others' engines are those of designs that take less.
DEAR = {"moments-series", "poisson-centred", "fixed", "laplace", "random-weight", "corrected-moments", "three-stage"}


def of(*names: str) -> pytest.MarkDecorator:
    """Run for these designs; dear ones are thorough."""
    cases = [pytest.param(name, marks=[pytest.mark.thorough] if name in DEAR else []) for name in names]
    return pytest.mark.parametrize("name", cases)


every_design = of(*DESIGNS)


def make_plan(**choices: Any) -> Plan:
    return ReleaseConfig(**own_options({**SMALL, **choices})).calibrate(EPSILON, DELTA)


def audit(plan: Plan, runs: int, make: EngineFactory = real_engine, confidence: float = CONFIDENCE) -> AuditVerdict:
    return audit_plan(plan, EPSILON, DELTA, runs=runs, confidence=confidence, seed=0, make=make, workers=1)


def caught(name: str, make: EngineFactory = real_engine) -> bool:
    """Whether a design's audit refutes its claim by a quarter of its runs, or by all; two looks, so for bugs only."""
    choices, runs = DESIGNS[name]
    plan = make_plan(**choices)
    return audit(plan, runs // 4, make).violated or audit(plan, runs, make).violated


@every_design
def test_the_real_engine_passes(name: str) -> None:
    choices, runs = DESIGNS[name]
    found = audit(make_plan(**choices), runs, confidence=OF_CORRECT_ENGINES)
    assert not found.violated
    assert 0 < found.proven_epsilon < EPSILON


class Changed:
    """A generator whose numbers are changed before they are used."""

    def __init__(self, honest: np.random.Generator, change: Callable[[NDArray[np.float64]], object]) -> None:
        self._honest, self._change = honest, change

    def __getattr__(self, name: str) -> Any:
        def draw(*size: Any, **named: Any) -> Any:
            drawn = getattr(self._honest, name)(*size, **named)
            self._change(drawn)
            return drawn

        return draw


class Faulty:
    """Streams whose noise is changed. Membership, and what is sampled from released numbers, is as it should be."""

    def __init__(self, honest: SecretStreams, change: Callable[..., object], *, forgetful: bool = False) -> None:
        self._honest, self._change, self._forgetful = honest, change, forgetful

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    @contextmanager
    def lent(self, purpose: str, *indices: int) -> Iterator[Any]:
        assert "membership" not in purpose
        with self._honest.lent(purpose, *(() if self._forgetful else indices)) as generator:
            yield Changed(generator, self._change)


def with_noise(change: Callable[[NDArray[np.float64]], object], **more: bool) -> EngineFactory:
    """The real engine, with streams whose noise is changed."""
    return lambda plan, records, streams: real_engine(plan, records, Faulty(streams, change, **more))  # type: ignore[arg-type]


def weaker(share: float) -> EngineFactory:
    return with_noise(lambda drawn: np.multiply(drawn, share, out=drawn))


def repeated(drawn: NDArray[np.float64]) -> None:
    """Odd rows get the noise of the row before."""
    drawn[1::2] = drawn[: len(drawn) // 2 * 2 : 2]


@every_design
def test_too_little_noise_is_caught(name: str) -> None:
    """Seven tenths of the noise, of features, labels, moments and mean; half of it where a run is one trial."""
    choices, runs = DESIGNS[name]
    if runs < 8000:
        assert audit(make_plan(**choices), runs // 2, weaker(0.5)).violated
    else:
        assert caught(name, weaker(0.7))


@pytest.mark.parametrize("name", ["poisson", "classwise", "fixed"])
def test_a_reused_noise_row_is_caught(name: str) -> None:
    own = {"classes": ("ant", "bee"), "rows": 120} if name == "classwise" else {}
    plan = make_plan(design=name, centre="none", **own)
    assert audit(plan, 8000 if own else 800, with_noise(repeated)).violated


def test_noise_of_one_tile_for_all_is_caught() -> None:
    """Streams that forget the tile: rows 1,024 apart share their noise, and nothing else shows it."""
    plan = make_plan(centre="none", rows=2048, mixup_degree=4)
    assert not audit(plan, 1600, confidence=OF_CORRECT_ENGINES).violated
    found = audit(plan, 1600, with_noise(lambda drawn: None, forgetful=True))
    assert found.violated
    assert found.proven_epsilon < EPSILON


@of(
    "poisson",
    "fixed",
    "hierarchical",
    "classwise",
    "random-weight",
    "gaussian-mixing",
    "moments",
    "moments-no-label",
    "class-moments",
    "corrected-moments",
    "two-stage",
)
def test_missing_clipping_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lattice_steps(self: tiles.TileReader, transform: RecordTransform, block: NDArray[Any]) -> NDArray[np.float64]:
        return self._lattice.quantise(np.asarray(block, np.float64) / transform.final_clip_norm)

    monkeypatch.setattr(tiles.TileReader, "lattice_steps", lattice_steps)
    # Longer records than the bound do not fit the type made for it: a bug that gets so far has a wider one.
    monkeypatch.setattr(tiles, "largest_step", lambda plan: 2**20)
    monkeypatch.setattr(RecordTransform, "__call__", lambda self, features: np.array(features, np.float64))
    assert caught(name)


def unpaid_scatter(scatter: stages_engine.Scatter, streams: SecretStreams) -> NDArray[np.float32]:
    """Of each class without noise, as where the joint price left out a query."""
    if not scatter._by_class:
        return RELEASED(scatter, streams)
    return np.float32(np.stack(scatter._sums) * scatter._part.unit)


def unclipped(scatter: stages_engine.Scatter, residuals: NDArray[Any], labels: NDArray[Any], weights: None) -> None:
    """Before their class."""
    if not scatter._by_class:
        return ADD(scatter, residuals, labels, weights)
    steps = scatter._lattice.quantise(residuals)
    for number, total in enumerate(scatter._sums):
        own = steps[labels == number]
        total += own.T @ own


def unpaid_errors(sums: corrected_engine.ErrorSums, streams: SecretStreams, number: int) -> NDArray[np.float32]:
    """Of the last model without noise."""
    return np.float32(sums._sums * sums._part.unit) if number == 2 else ERRORS(sums, streams, number)


RELEASED, ADD = stages_engine.Scatter.released, stages_engine.Scatter.add
ERRORS = corrected_engine.ErrorSums.released
MOSTLY_ERRORS = {"design": "corrected-moments", "correction_share": 0.97}


@pytest.mark.parametrize(
    ("choices", "where", "what", "bug"),
    [
        # Without noise: a hundredth of the budget would go to them.
        (
            {"design": "two-stage"},
            stages_engine.NormCounts,
            "released",
            lambda norms, _: norms._counts.astype(np.float32),
        ),
        ({"design": "three-stage"}, stages_engine.Scatter, "released", unpaid_scatter),
        ({"design": "three-stage"}, stages_engine.Scatter, "add", unclipped),
        # Records were clipped before: the map makes them long again.
        ({"design": "two-stage"}, stages_engine, "clip_l2", lambda residuals, bound: residuals),
        ({"design": "corrected-moments"}, corrected_engine.ErrorSums, "released", unpaid_errors),
        # They are at most 2.8 times their bound, which shows where they have most of the budget.
        (MOSTLY_ERRORS, corrected_engine, "clip_l2", lambda errors, bound: errors),
    ],
    ids=[
        *("norms not paid for", "scatter not paid for", "class residuals not clipped", "residuals not clipped"),
        *("errors not paid for", "errors not clipped"),
    ],
)
def test_bugs_of_later_stages_are_caught(
    choices: dict[str, Any], where: Any, what: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, what, bug)
    assert audit(make_plan(**choices, centre="none"), 800).violated


def test_a_record_in_two_rows_of_a_block_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AllocationSampling, "draw", in_two_rows)
    assert caught("allocation")


class ShuffledBatches(PoissonSampling):
    """What a data loader does: records are shuffled and cut into batches, so each is in one row of every round."""

    def draw(self, streams: SecretStreams, row_tile: int, record_tile: int, labels: Any = None) -> Membership:
        rows, records = self._tile_shape(row_tile, record_tile)
        round_length = round(1 / self.sampling_rate)
        generator = streams.generator("shuffled membership", row_tile, record_tile)
        row, record = [], []
        for first in range(0, rows, round_length):
            places = (first + np.arange(records) % round_length)[generator.permutation(records)]
            kept = places < rows
            row.append(places[kept])
            record.append(np.flatnonzero(kept))
        rows_of, members = np.concatenate(row), np.concatenate(record)
        order = np.argsort(rows_of, kind="stable")
        return Membership(offsets_of(np.bincount(rows_of, minlength=rows)), members[order])


def test_fixed_batches_that_are_priced_as_poisson_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every round each record is in exactly one batch, where Poisson sampling may leave it out of all of them."""

    monkeypatch.setattr(
        ReleasePlan, "sampler_for", lambda self, records: ShuffledBatches(records, self.rows, self.record_rate)
    )
    plan = ReleaseConfig(**{**SMALL, "centre": "none", "rows": 10, "mixup_degree": 10}).calibrate(EPSILON, DELTA)
    assert audit(plan, 20_000).violated


class WithoutEmptyRows(ReleaseEngine):
    """Releases no row that holds no record."""

    def _finish(self, pool: Any, tiles_: range, origin: int, sums: Any) -> Any:
        block = super()._finish(pool, tiles_, origin, sums)
        first = (tiles_.start - origin) * 1024
        held = sums.totals[first : first + len(block.x)] > 0
        return engine.RowBlock(block.start, block.x[held], block.y[held])


def test_dropped_empty_rows_are_caught() -> None:
    def make(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> ReleaseEngine:
        return WithoutEmptyRows(plan, records, streams, workers=1)

    plan = make_plan(centre="none", rows=2000, mixup_degree=1)
    assert not audit(plan, 2000, confidence=OF_CORRECT_ENGINES).violated
    assert audit(plan, 2000, make).violated


def test_claims_by_another_formula_are_judged_by_their_epsilon_alone() -> None:
    """Rates below the plan's own curve are noted, and refute only what follows from that plan's price."""
    plan = make_plan(centre="none")
    assert audit_plan(plan, 0.5, DELTA, own_price=False, runs=8000, confidence=CONFIDENCE, seed=0).violated
    assert math.isfinite(audit_plan(plan, math.inf, DELTA, runs=100, seed=0).proven_epsilon)
