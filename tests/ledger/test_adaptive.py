"""What adaptive choices do to both kinds of budget, computed exactly; and how adaptive budgets are kept."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy
from numpy.typing import NDArray
from scipy.stats import norm

from privmix.accounting import (
    Adjacency,
    Bounded,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
)
from privmix.accounting.filters import Cost, Filter, make_filter
from privmix.errors import InvalidInput
from privmix.fields import stored
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import BudgetExceeded
from privmix.ledger.verify import verify_ledger
from tests.ledger.test_ledger import new_ledger as planned_ledger
from tests.ledger.test_ledger import reserve
from tests.refusals import refuses

EPSILON, DELTA = 1.0, 1e-5
ADD = Adjacency.ADD_REMOVE
FIRST = Gaussian(4.5)
# Second releases that fill a planned budget after the first: each composes with it to an epsilon of 0.995 to 1.
SAMPLED = ((1.89e-5, 0.2), (6.19e-4, 0.4), (9.97e-3, 0.7), (0.0366, 1.0), (0.1065, 1.5), (0.359, 3.0))
BOUNDED = ((0.218, 0.0), (0.198, 3e-6), (0.180, 5e-6), (0.153, 7e-6), (0.097, 9e-6), (0.0, 9.74e-6))
ROWS: list[Event] = [Gaussian(6.69), *(PoissonSampled(rate, Gaussian(noise)) for rate, noise in SAMPLED)]
ANYTHING: list[Event] = [*ROWS, *(Bounded(bound, delta) for bound, delta in BOUNDED)]
# Rates and noise of rows that fill an adaptive budget after the first.
ADAPTIVE_ROWS = {
    "gdp": ((1.959e-6, 0.2), (3.609e-3, 0.7), (0.0624, 1.5), (0.286, 3.0)),
    "rdp": ((0.0244, 1.5), (0.2471, 3.0)),
}
Array = NDArray[np.float64]


def new_ledger(url: str, adaptive: str | None) -> Ledger:
    return planned_ledger(url, EPSILON, DELTA, adaptive=adaptive)


def profile(event: Event, at: Array) -> Array:
    """Delta at every real epsilon, exactly, where the dataset with the record is the true one."""
    match event:
        case PoissonSampled(rate, Gaussian() as query):
            # max(0, (1-q) f0 + q f1 - a f0) = q max(0, f1 - b f0) with b = (a - 1 + q) / q.
            inner = (np.exp(at) - 1 + rate) / rate
            inside = np.log(np.where(inner > 0, inner, 1.0))
            return np.asarray(np.where(inner > 0, rate * profile(query, inside), 1 - np.exp(at)))
        case Gaussian(noise):
            mu = 1 / noise
            return np.asarray(norm.cdf(-at / mu + mu / 2) - np.exp(at) * norm.cdf(-at / mu - mu / 2))
        case Bounded(bound, delta):
            keep = 1 / (1 + math.exp(-bound))
            answer = np.where(at < bound, keep - np.exp(at) * (1 - keep), 0.0)
            return np.asarray(delta + (1 - delta) * np.where(at <= -bound, 1 - np.exp(at), answer))
        case Composed((Gaussian() as query, Bounded(0.0, delta))):
            return np.asarray(delta + (1 - delta) * profile(query, at))
    raise AssertionError(event)


def after_first(seconds: list[Event], at: float) -> tuple[float, list[float]]:
    """Delta at epsilon ``at`` of the first release and then whichever second is worst for the loss that was seen.

    The loss l of the first one is normal, N(mu^2 / 2, mu^2) with mu = 1 / noise; after it, the second one owes the
    rest of epsilon: delta = E[max over seconds of delta_second(at - l)]. Also delta of each second, fixed beforehand.
    """
    mu = 1 / FIRST.noise_multiplier
    losses = mu**2 / 2 + mu * np.linspace(-12, 12, 240_001)
    weights = norm.pdf(losses, mu**2 / 2, mu) * (losses[1] - losses[0])
    deltas = np.stack([profile(second, at - losses) for second in seconds])
    return float(weights @ deltas.max(axis=0)), (deltas @ weights).tolist()


def test_choosing_after_seeing_breaks_a_planned_budget(tmp_path: Path) -> None:
    for number, second in enumerate(ANYTHING):
        ledger = new_ledger(f"sqlite:///{tmp_path / f'{number}.db'}", None)
        assert reserve(ledger, FIRST) < 0.82
        # The real ledger takes each of them, and says that the budget is kept.
        assert 0.99 < reserve(ledger, second) <= 1, second
    verify_ledger(ledger)
    chosen, fixed = after_first(ANYTHING, EPSILON)
    assert max(fixed) <= DELTA
    assert chosen > 2.4 * DELTA
    # Rows of designs suffice, and as an epsilon at the same delta it is well above the budget's 1.
    assert after_first(ROWS, EPSILON)[0] > 2.2 * DELTA
    assert after_first(ROWS, 1.2)[0] > DELTA


def seconds_for(made: Filter) -> list[Event]:
    """Second releases that fill an adaptive budget after the first: all that is left goes to each mixture of both."""
    used, capacity = made.cost(FIRST, ADD), made.capacity
    left = Cost((capacity.amount - used.amount) * (1 - 1e-9), (capacity.slack - used.slack) * (1 - 1e-9))
    if made.name == "gdp":
        noise, reveal = left.amount**-0.5, -math.expm1(-left.slack)
        bound = math.log(norm.cdf(left.amount**0.5 / 2) / norm.sf(left.amount**0.5 / 2)) * (1 - 1e-8)
        shares = (0.0, 0.2, 0.5, 0.8, 1 - 1e-9)
        bounded = [Bounded(bound, reveal * share) for share in shares]
        both = [Composed((Gaussian(noise * (1 + 1e-9)), Bounded(0.0, reveal * share))) for share in shares[1:]]
        return [Gaussian(noise), *bounded, Bounded(0.0, reveal * (1 - 1e-9)), *both]
    low, high = 0.0, 1.0
    for _ in range(60):
        bound = (low + high) / 2
        low, high = (bound, high) if made.cost(Bounded(bound, 0.0), ADD).amount <= left.amount else (low, bound)
    return [Gaussian((made.cost(Gaussian(1.0), ADD).amount / left.amount) ** 0.5), Bounded(low, 0.0)]


@pytest.mark.parametrize("name", ["gdp", "rdp"])
def test_choosing_after_seeing_keeps_an_adaptive_budget(tmp_path: Path, name: str) -> None:
    rows = (PoissonSampled(rate, Gaussian(noise)) for rate, noise in ADAPTIVE_ROWS[name])
    seconds = [*seconds_for(make_filter(name, EPSILON, DELTA)), *rows]
    larger = {"gdp": Bounded(0.114, 0.0), "rdp": Bounded(0.143, 0.0)}[name]
    for number, second in enumerate(seconds):
        ledger = new_ledger(f"sqlite:///{tmp_path / f'{number}.db'}", name)
        reserve(ledger, FIRST)
        with pytest.raises(BudgetExceeded):
            reserve(ledger, larger)
        reserve(ledger, second)
        least = 0.995 if isinstance(second, PoissonSampled) else 1 - 1e-6
        assert least < (ledger.budget("patients").share or 0) <= 1, second
    verify_ledger(ledger)
    chosen, fixed = after_first(seconds, EPSILON)
    assert max(fixed) <= chosen * (1 + 1e-9)
    assert chosen <= DELTA
    # It is no empty promise: the best choice takes a good part of what was promised.
    assert chosen > {"gdp": 0.98, "rdp": 0.3}[name] * DELTA


def test_an_adaptive_budget_from_reservation_to_verification(url: str) -> None:
    ledger = new_ledger(url, "gdp")
    assert ledger.mode("patients") == "adaptive"
    fresh = ledger.budget("patients")
    assert (fresh.spent, fresh.share, fresh.mode, fresh.filter) == (0.0, 0.0, "adaptive", "gdp")
    release = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 500)
    for event in (release, Gaussian(9.0), Bounded(0.01, 1e-8), Repeated(ClusterSampled(0.2, 0.1, Gaussian(9.0)), 50)):
        before = ledger.budget("patients").share or 0.0
        ledger.commit(ledger.reserve("patients", event, purpose="test"), result="done")
        assert (ledger.budget("patients").share or 0.0) > before
    shares = [entry["cost"]["amount"] for entry in ledger.history("patients") if entry["kind"] == "reserve"]
    budget = Ledger.open(url).budget("patients")
    assert budget.share == pytest.approx(sum(shares) / make_filter("gdp", EPSILON, DELTA).capacity.amount)
    assert 0 < budget.spent < 1
    verify_ledger(ledger)
    assert ledger.history("patients")[0]["filter"] == json.dumps(
        stored(make_filter("gdp", EPSILON, DELTA)), sort_keys=True, separators=(",", ":")
    )


def test_overspending_is_refused_with_shares_and_charges_nothing(url: str) -> None:
    ledger = new_ledger(url, "gdp")
    reserve(ledger, FIRST)
    before = ledger.budget("patients")
    with pytest.raises(BudgetExceeded) as caught:
        reserve(ledger, FIRST)
    assert caught.value.exit_code == 3
    with pytest.raises(BudgetExceeded):
        ledger.check("patients", FIRST)
    with pytest.raises(BudgetExceeded, match="share for deltas"):
        reserve(ledger, Bounded(0.01, 4e-6))
    with pytest.raises(BudgetExceeded, match="inf"):
        reserve(ledger, Laplace(1e-3))
    with pytest.raises(UnsupportedEvent, match="fixed-size sampling"):
        reserve(ledger, FixedSizeSampled(100, 4, Gaussian(9.0)))
    with refuses("adjacency"):
        ledger.reserve("patients", Gaussian(90.0), adjacency=Adjacency.REPLACE_ONE, purpose="test")
    assert ledger.budget("patients") == before


@pytest.mark.parametrize(
    "edited",
    ["""'{"mu":9.0,"name":"gdp","slack":2.5e-06}'""", "NULL", "'x'", """'{"mu":0.1,"name":"gdp","slack":0.5}'"""],
)
def test_an_edited_filter_is_noticed(lite: str, edited: str) -> None:
    ledger = new_ledger(lite, "gdp")
    reserve(ledger, FIRST)
    with sqlalchemy.create_engine(lite).begin() as connection:
        connection.exec_driver_sql(f"UPDATE datasets SET filter = {edited}")
    with pytest.raises(InvalidInput):
        verify_ledger(ledger)


def test_a_charge_below_its_price_is_noticed(lite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = new_ledger(lite, "gdp")
    with monkeypatch.context() as patched:
        patched.setattr("privmix.accounting.filters.GaussianFilter.cost", lambda *_: Cost(0.01, 0.0))
        reserve(ledger, FIRST)
    with refuses("spending of patients"):
        verify_ledger(ledger)
