"""Certificates: numbers that anyone can recompute, words that fit them, and nothing private."""

import json
from dataclasses import replace
from typing import Any

import pytest

from privmix.accounting import Adjacency
from privmix.mechanisms.streams import SecretStreams
from privmix.training.certificate import training_certificate
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.plan import TrainingPlan
from tests.certificate.helpers import a_reservation
from tests.training.runs import RECORDS, config_of, digits, job_of, private


def test_nothing_private_is_in_it() -> None:
    one = job_of().run(private(), streams=SecretStreams.from_seed(0)).certificate
    x, y = digits(700)
    other = job_of().run(TrainingRecords.of(1 - x, (y + 1) % 3, classes=10), streams=SecretStreams.from_seed(3))
    differing = {name for name in {*one, *other.certificate} if one.get(name) != other.certificate.get(name)}
    assert differing == {"id", "files", "content_sha256"}


def test_a_declared_count_hides_the_real_one() -> None:
    found = []
    for records in (private(0, 180), private(0, 190)):
        job = job_of(records_declared=True)
        found.append(job.run(records, streams=SecretStreams.from_seed(0)).certificate.to_dict())
    for name in ("id", "files", "content_sha256"):
        assert found[0].pop(name) != found[1].pop(name)  # type: ignore[attr-defined]
    assert found[0] == found[1]
    text = json.dumps(found[0])
    assert "180" not in text
    assert f"declared as {RECORDS}" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"adjacency": Adjacency.REPLACE_ONE}, "content of one record"), ({"microbatch_size": 4}, "twice C")],
)
def test_words_fit_the_plan(changes: dict[str, Any], words: str) -> None:
    """Those of add-or-remove and of public data: tests/golden."""
    assert words in " ".join(job_of(config_of(**changes)).run(private()).certificate["statements"])


def test_a_seed_is_warned_of() -> None:
    certificate = job_of().run(private(), streams=SecretStreams.from_seed(0)).certificate
    assert certificate["insecure_seed"] is True
    assert "no privacy" in certificate["warnings"][0]
    assert certificate["statements"][0].startswith("Not guaranteed")
    assert job_of().run(private()).certificate["statements"][0].startswith("Guaranteed")


def test_a_large_delta_and_a_count_that_shows_are_told() -> None:
    plan = TrainingPlan(
        100, 10, 5, 9.0, clip_norm=1.0, delta=0.01, adjacency=Adjacency.REPLACE_ONE, records_declared=True, epsilon=9.0
    )
    made = certificate_of(plan)
    assert "not below 1/records" in made["warnings"][0]
    assert any("does not hide it" in words for words in made["statements"])
    plain = certificate_of(replace(plan, delta=1e-5, adjacency=Adjacency.ADD_REMOVE))
    assert plain["warnings"] == []
    assert not any("does not hide it" in words for words in plain["statements"])


def certificate_of(plan: TrainingPlan) -> dict[str, Any]:
    given = {"settings": {"a": 1}, "weights_sha256": "w", "insecure_seed": False, "public_data": {}}
    return training_certificate(plan, model_id="m", reservation=a_reservation(plan), **given)
