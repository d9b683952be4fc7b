"""Plain words: bounds are rounded up, proofs down, and beliefs are those of Bayes."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix.reports.records import RecordFields
from privmix.reports.sentences import belief, meaning, odds, percent_up, power_of_ten

# Decimals are the nearest floats of what they say, no more exactly.
SLACK = 1 + 1e-8


@given(st.floats(0, 1))
def test_a_share_is_never_shown_below_what_it_is(share: float) -> None:
    text = percent_up(share)
    if text != "practically 100%":
        assert Decimal(text.removesuffix("%")) >= 100 * Decimal(repr(share))
    assert (text == "100%") == (share == 1)


@given(st.floats(1e-12, 0.1))
def test_odds_are_never_shown_longer_than_they_are(delta: float) -> None:
    often = int(odds(delta).removeprefix("1 in ").replace(",", ""))
    assert 1 / Decimal(often) >= Decimal(repr(delta))
    assert 1 / often <= delta * 1.15


@given(st.floats(1e-12, 1))
def test_powers_of_ten_can_be_read_back(value: float) -> None:
    text = power_of_ten(value).translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")).replace(" × ", "*")
    mantissa, _, power = text.rpartition("*")
    read = float(text) if text[:2] != "10" and not mantissa else float(mantissa or 1) * 10.0 ** int(power[2:])
    assert value / SLACK <= read <= 1.011 * value


@given(st.floats(0.001, 0.999), st.floats(0, 20))
def test_beliefs_follow_bayes(prior: float, epsilon: float) -> None:
    """An answer that is e^epsilon times as likely with the record as without is the most telling one there is."""
    with_it, without = math.exp(epsilon) / (1 + math.exp(epsilon)), 1 / (1 + math.exp(epsilon))
    posterior = prior * with_it / (prior * with_it + (1 - prior) * without)
    assert belief(prior, epsilon) == pytest.approx(posterior, rel=1e-9)


@pytest.mark.parametrize(
    ("adjacency", "words"), [("add_remove", "that a record is in the data"), ("replace_one", "which of two versions")]
)
def test_the_meaning_speaks_of_what_is_hidden(adjacency: str, words: str) -> None:
    text = meaning(adjacency, 0.62)
    assert words in text
    assert "62%" in text
    assert "weak guarantee" not in text
    assert "weak guarantee" in meaning(adjacency, 0.99)


@pytest.mark.parametrize("value", [True, "1", None, [], {}, float("nan"), float("inf"), 10**400])
def test_what_is_no_number_is_none(value: object) -> None:
    found = RecordFields({"a": value, "b": [1, value], "c": [[1, 2], [3, value]]})
    assert found.number("a") is None
    assert found.series("b") == []
    assert found.matrix("c") == []
    assert RecordFields(value).number("a") is None
