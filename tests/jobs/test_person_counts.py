"""How many persons there are, and jobs for single records on what was made for persons."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.attacks.membership.attack import infer_membership
from privmix.designs import Poisson
from privmix.engine.rows import PrivateRecords
from privmix.plans.registry import all_designs, takes_persons
from privmix.releases.verify import verify_release
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.trainer import Trainer
from privmix.world import World
from tests.refusals import refuses

PERSONS = 40
RNG = np.random.default_rng(0)
WHOSE = np.repeat(np.arange(PERSONS), 3)
X, Y = RNG.normal(size=(len(WHOSE), 4)), RNG.integers(0, 2, len(WHOSE))


COMMON: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-3, "classes": ["no", "yes"], "features": "identity"}


def released(out: Path, design: Any) -> Any:
    given = {"design": design, "records": PERSONS, "clip_norm": 2.0}
    return pm.release((X, Y), out=out, person=WHOSE, **COMMON, **given)


def test_canaries_are_persons_where_these_are_the_unit(tmp_path: Path) -> None:
    """From Python, in memory; the persons must be declared before anything is read."""
    training = {**COMMON, "epochs": 1, "batch_size": 10}
    pm.train((X, Y), out=tmp_path / "persons", person=WHOSE, records=PERSONS, **training)
    given: dict[str, Any] = {"data": (X, Y), "canaries": 7, "seed": 1, "guesses": 7}
    found = pm.audit(tmp_path / "persons", "canaries", person=WHOSE, canary_records=100, **given)
    assert "planted canary persons with 100 records each" in found.audit.method
    assert found.measurement.title == "One-run audit with 7 canary persons"
    assert "A canary is one person" in str(found.measurement.statements)
    assert found.to_dict()["unit"] == "person"
    with refuses("person"):
        pm.audit(tmp_path / "persons", "canaries", **given)
    with pytest.raises(TypeError, match="per_person"):
        pm.audit(tmp_path / "persons", "canaries", person=WHOSE, per_person=2, **given)
    pm.train((X, Y), out=tmp_path / "records", **training)
    with refuses("person"):
        pm.audit(tmp_path / "records", "canaries", person=WHOSE, **given)
    with refuses("canary_records"):
        pm.audit(tmp_path / "records", "canaries", canary_records=2, **given)


def test_a_guarantee_for_persons_bounds_no_attack_on_their_records(tmp_path: Path) -> None:
    """Who loses one of several records is a person that takes another's place: two units, not one."""
    certificate = released(tmp_path / "release", Poisson(4)).certificate.to_dict()
    guess = SimpleNamespace(decision_function=lambda x: np.stack([-x[:, 0], x[:, 0]], axis=1))
    records, member = PrivateRecords(X, Y), np.arange(len(Y)) < 60
    assert infer_membership(guess, records, member, classes=2).attacks
    with refuses("unit"):
        infer_membership(guess, records, member, classes=2, certificate=certificate)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in all_designs() if takes_persons(kind) and not kind.in_series and kind.name != "hermite"],
    ids=lambda kind: kind.name,
)
def test_a_release_of_persons_is_one_that_its_reader_takes(kind: Any, tmp_path: Path) -> None:
    """Of each design: what is told of the noise and its grid is what the engine drew."""
    given, known = {"mixup_degree": 6, "expected_classes": 1.0}, {one.name for one in kind.options() if one.init}
    options = {name: value for name, value in given.items() if name in known and kind.name != "gaussian-mixing"}
    released(tmp_path / "release", kind(**options))
    assert verify_release(tmp_path / "release").epsilon <= 4.0


def test_processes_that_know_records_by_other_persons_train_nothing() -> None:
    """A person could else be in the shard of each, and be clipped twice."""

    one, other = (TrainingRecords.of(X, Y, classes=2, persons=whose) for whose in (WHOSE, WHOSE // 2))
    said: list[bytes] = []

    class Told(World):
        def share(self, content: bytes) -> bytes:
            """Rank 0's bytes, as all processes get them."""
            if self.is_head:
                said.append(content)
                return content
            return next(heard)

    Trainer._check_same_records(one, Told(0, 2))
    heard = iter(said)
    Trainer._check_same_records(one, Told(1, 2))
    heard = iter(said)
    with refuses("data"):
        Trainer._check_same_records(other, Told(1, 2))
