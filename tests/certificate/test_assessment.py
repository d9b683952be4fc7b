"""The questions of NIST SP 800-226: answered for every design and for models, from public facts, on the safe side."""

import dataclasses
import json
import math
import re
from typing import Any

import pytest
from mpmath import mp, mpf

from privmix.accounting import Adjacency
from privmix.certificate.assessment import AssessedFacts, as_rows, assess, markdown
from privmix.certificate.certificate import Certificate
from privmix.certificate.guarantee import Guarantee
from privmix.planning import ReleaseConfig
from privmix.plans.registry import plan_from_dict
from privmix.releases.card import data_card
from privmix.releases.certificate import make_certificate
from privmix.releases.verify import check_certificate
from privmix.reports.sentences import meaning
from privmix.rounding import percent_up
from privmix.training.certificate import training_certificate
from privmix.training.plan import TrainingPlan
from tests.certificate.helpers import a_reservation
from tests.releases.helpers import ALL_DESIGNS, CLASSES, TARGET, design_name, own_options

FACTS = AssessedFacts(
    "release",
    Adjacency.ADD_REMOVE,
    4.0,
    1e-5,
    600,
    "public",
    "Noise was added.",
    ["Long features are scaled down."],
    "Sums are on a grid.",
    "Tails end.",
    "Settings were fixed.",
    in_ledger="none",
    insecure_seed=False,
)
QUESTIONS = [
    "Unit of privacy", "Privacy parameters", "Mechanism and noise", "Composition and budget", "Bias and utility",
    "Side channels", "Trust model", "Data collection and access", "Settings and tuning", "Post-processing",
]  # fmt: skip


def answers(**changes: Any) -> dict[str, dict[str, str]]:
    return {item["question"]: item for item in assess(dataclasses.replace(FACTS, **changes))}


def certificate_of(**choices: Any) -> dict[str, Any]:
    own = own_options({"mixup_degree": 20, **choices})
    plan = ReleaseConfig(records=600, dim=7, classes=CLASSES, **own).calibrate(*TARGET)
    return make_certificate(plan, extractor={"name": "identity"}, input_shape=(7,), insecure_seed=False, files=[])


@pytest.mark.parametrize("choices", [*ALL_DESIGNS, {"design": "moments"}], ids=design_name)
def test_every_design_answers_every_question(choices: dict[str, Any]) -> None:
    certificate = certificate_of(**choices)
    found = certificate["assessment"]
    assert [item["question"] for item in found] == QUESTIONS
    assert json.loads(json.dumps(found)) == found
    text = " ".join(" ".join(row) for row in as_rows(found))
    assert ("Laplace noise" in text) == (choices.get("noise") == "laplace")
    assert ("One record: what it says" in text) == (certificate["guarantee"]["adjacency"] == "replace_one")
    assert ("the mean of all features" in text) == (certificate["plan"]["centre_noise_multiplier"] is not None)
    printed = float(re.search(r"noise, ([0-9.e-]+) times", text).group(1))  # type: ignore[union-attr]
    assert printed <= certificate["plan"]["noise_multiplier"] < printed * 1.01
    check_certificate(certificate)
    check_one_figure(certificate, data_card(plan_from_dict(certificate["plan"]), certificate))


def check_one_figure(certificate: Certificate, card: str) -> None:
    """Certificate, card, report and studio print one figure, which is that of the whole curve where it is promised."""
    promise = Guarantee.of(certificate)
    figure = percent_up(promise.right)
    (stated,) = (row[1] for row in as_rows(certificate["assessment"]) if "right at most" in row[1])
    assert f"is right at most {figure} of the time with it" in stated
    assert re.findall(r"right at most ([0-9.]+%)", card) == [figure]
    right = promise.curves()["power"]["right"]
    assert f"<strong>{figure}</strong> of the time" in meaning(certificate.adjacency, right, certificate.unit.one)
    if promise.exact:
        growth = math.exp(-promise.epsilon)
        assert promise.right < (1 + promise.delta * growth) / (1 + growth)


def test_a_figure_below_the_curves_is_refused() -> None:
    certificate = certificate_of()
    promise = Guarantee.of(certificate)
    figure = percent_up(promise.right)
    for wrong, found in (("50.1", figure), ("99.9", "99.9%"), ("nothing", figure)):
        edited = json.loads(json.dumps(dict(certificate)).replace(f"right at most {figure}", f"right at most {wrong}%"))
        assert promise.stated_right(edited) == found


def test_a_seed_promises_nothing() -> None:
    found = answers(insecure_seed=True)
    assert found["Privacy parameters"]["holds"] == ""
    assert "whoever guesses it" in found["Privacy parameters"]["does_not"]
    assert "no secret" in found["Side channels"]["holds"]
    assert "Epsilon is at most" not in json.dumps(list(found.values()))


@pytest.mark.parametrize(("epsilon", "delta"), [(7.9995, 1e-5), (0.1, 0.0), (1.2344, 1.23456499e-5), (50.0, 1e-9)])
def test_figures_are_bounds(epsilon: float, delta: float) -> None:
    holds = answers(epsilon=epsilon, delta=delta)["Privacy parameters"]["holds"]
    figures = re.search(r"at most ([0-9.e-]+) at delta ([0-9.e-]+):.*right at most ([0-9.]+)%", holds)
    stated, at, right = (float(text) for text in figures.groups())
    assert epsilon <= stated <= epsilon * 1.01
    assert at == delta
    with mp.workdps(50):
        true = 100 * (mp.e ** mpf(epsilon) + mpf(delta)) / (mp.e ** mpf(epsilon) + 1)
    # The last digit of a double is all that may be missing.
    assert true * (1 - mpf(2) ** -50) <= right <= true * mpf("1.01")


def test_what_the_facts_change() -> None:
    assert "published" in answers()["Unit of privacy"]["does_not"]
    for count in ("declared", "private"):
        assert "published" not in answers(count=count)["Unit of privacy"]["does_not"]
    assert "private estimate" in answers(count="private")["Unit of privacy"]["holds"]
    assert "whole records" in answers(delta=1e-2)["Privacy parameters"]["does_not"]
    assert "whole records" not in answers()["Privacy parameters"]["does_not"]
    assert answers(delta=0.0)["Privacy parameters"]["does_not"] == ""
    assert "No ledger" in answers()["Composition and budget"]["does_not"]
    assert "by its owner's word" in answers(in_ledger="planned")["Composition and budget"]["holds"]
    assert "warm-up" in answers(public_data=("warm-up",))["Data collection and access"]["does_not"]
    assert "what it says" in answers(adjacency=Adjacency.REPLACE_ONE)["Unit of privacy"]["holds"]


def test_a_model_answers_too() -> None:
    plan = TrainingPlan(60_000, 8192, 220, 4.0, clip_norm=0.1, delta=1e-5, epsilon=3.0)
    certificate = training_certificate(
        plan,
        model_id="m",
        settings={},
        weights_sha256="0" * 64,
        insecure_seed=False,
        reservation=a_reservation(plan),
        public_data={"images": "0"},
    )
    check_one_figure(certificate, markdown(certificate["assessment"]))
    found = certificate["assessment"]
    assert [item["question"] for item in found] == QUESTIONS
    text = " ".join(" ".join(row) for row in as_rows(found))
    for words in ("220 steps", "B = 8192, n = 60000", "clipped to 0.1", "weights came from", "images"):
        assert words in text
    assert "is at most 3 at" in text
