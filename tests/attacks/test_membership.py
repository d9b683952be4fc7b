"""Whole attacks: overfitted models are found out, private ones are not, and what single records show stays inside."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from privmix.attacks.membership.attack import MembershipConfig, infer_membership
from privmix.attacks.membership.references import DpSgdTrainer, EstimatorTrainer, ReleaseTrainer
from privmix.attacks.membership.scores import class_scores, true_class_logits
from privmix.audits.defaults import ATTACKS
from privmix.designs.moments.learner import SecondMomentsClassifier
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput, StorageError
from privmix.fields import stored
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.run import release_to_memory
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts
from privmix.training.trainer import Trainer
from privmix.training.views.config import ViewConfig
from tests.refusals import refuses


def noisy_digits(count: int, wrong: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Real digits, a share of whose labels is random."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))[:count]
    x, y = x[order] / 16, y[order]
    random = rng.random(count) < wrong
    return x, np.where(random, rng.integers(0, 10, count), y)


def marks(count: int) -> np.ndarray:
    return np.isin(np.arange(count), np.random.default_rng(9).permutation(count)[: count // 2])


def attacked(model: Any, x: np.ndarray, y: np.ndarray, *names: str, references: int = 0, **given: Any) -> Any:
    if names:
        given["config"] = MembershipConfig(names, references=references)
    return infer_membership(model, PrivateRecords(x, y), marks(len(x)), classes=10, **given)


def by_heart(x: np.ndarray, y: np.ndarray, member: np.ndarray) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0).fit(x[member], y[member])


def test_a_model_that_knows_its_records_by_heart_is_found_out() -> None:
    x, y = noisy_digits(800, wrong=1.0)
    found = attacked(by_heart(x, y, marks(800)), x, y)
    # Random labels: nine in ten non-members are labelled wrongly, so the AUC is near 0.95.
    assert found.attacks[0].auc_low > 0.9
    assert found.train_accuracy == 1.0
    assert 0.7 < found.gap_low < found.gap < found.gap_high <= 1
    assert found.reference_models == 0


def test_reference_models_beat_the_loss_on_an_overfitted_model() -> None:
    x, y = noisy_digits(1000, wrong=0.3)
    member = marks(1000)
    learner = LogisticRegression(C=10.0, max_iter=200)
    model = learner.fit(x[member], y[member])
    given = {"trainer": EstimatorTrainer(learner), "streams": SecretStreams.from_seed(0)}
    results = {attack.name: attack for attack in attacked(model, x, y, *ATTACKS, references=8, **given).attacks}
    assert results["lira"].auc_low > results["loss"].auc_high
    assert results["rmia"].auc_low > results["loss"].auc_high
    assert results["lira"].tpr_at[0].low > results["loss"].tpr_at[0].high


def guesses(scores: np.ndarray, included: np.ndarray) -> int:
    """How many records are guessed right, when the higher half of the scores is taken for members."""
    return int(((scores > np.median(scores)) == included).sum())


def test_a_release_keeps_its_promise_and_no_privacy_does_not() -> None:
    """Steinke, Nasr, Jagielski 2023, Theorem 5.2: right guesses are at most Binomial(r, e^eps / (1 + e^eps))."""
    count, epsilon, delta = 1500, 0.5, 1e-13
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(count, 20)), rng.integers(0, 2, count)
    included = rng.random(count) < 0.5
    # A correct mechanism goes beyond in less than 1e-10, and by delta in less than 2 r delta = 3e-10.
    most = stats.binom.isf(1e-10, count, math.exp(epsilon) / (1 + math.exp(epsilon)))
    plan = ReleaseConfig(records=count // 2, dim=20, classes=("no", "yes"), design="moments").calibrate(epsilon, delta)
    trainer = ReleaseTrainer(plan, SecondMomentsClassifier(), {"name": "identity"}, (20,))
    private = trainer(x[included], y[included], SecretStreams.from_seed(1))
    assert guesses(true_class_logits(class_scores(private, x, 2), y), included) <= most
    # By heart: all members and about half of the others are given their own label for sure, so that three quarters of
    # the guesses are right. Of 750 coins, fewer than needed here fall so in less than 1e-10.
    sure = true_class_logits(class_scores(by_heart(x, y, included), x, 2), y) > 0
    assert int((sure == included).sum()) > most


@pytest.fixture(scope="module")
def small() -> tuple[np.ndarray, np.ndarray]:
    x, y = noisy_digits(400, wrong=0.2)
    return x.astype(np.float32), y


def released(x: np.ndarray, y: np.ndarray) -> Any:
    classes = tuple("0123456789")
    plan = ReleaseConfig(records=len(x), dim=64, classes=classes, mixup_degree=16, rows=500).calibrate(8.0, 1e-3)
    streams = SecretStreams.from_seed(0)
    return release_to_memory(plan, PrivateRecords(x, y), streams, extractor={"name": "identity"}, input_shape=(64,))


def test_references_on_releases(small: tuple[np.ndarray, np.ndarray]) -> None:
    (x, y), member = small, marks(400)
    release = released(x[member], y[member])
    model = NoiseAwareRidgeClassifier(regularisation=0.01).fit(release)
    trainer = ReleaseTrainer.of(model, release.certificate)
    assert trainer.plan.to_dict() == release.certificate["plan"]
    assert trainer.learner.regularisation == 0.01
    seen = []
    given = {"certificate": release.certificate, "progress": lambda *step: seen.append(step)}
    found = attacked(model, x, y, "loss", "lira", "rmia", references=4, trainer=trainer, **given)
    assert seen == [("reference models", done, 4) for done in range(1, 5)]
    assert found.reference_models == 4
    with refuses("release"):
        ReleaseTrainer.of(model, released(x[member], y[member]).certificate)
    for attack in found.attacks:
        bounds = attack.to_dict()["tpr_at"]
        assert [point["fpr"] for point in bounds] == [0.01, 0.001]
        assert all(point["fpr"] < point["bound"] < 1 for point in bounds)


def job_of(records: int) -> Trainer:
    config = TrainingConfig.for_model("linear", records=records, epsilon=8.0, delta=1e-3, epochs=3)
    facts = ModelFacts(tuple("0123456789"), {"name": "identity"}, (64,), 64)
    return Trainer(config, facts, records, device="cpu")


def test_references_by_dp_sgd(small: tuple[np.ndarray, np.ndarray]) -> None:
    (x, y), member = small, marks(400)
    job = job_of(200)
    model = job.run(TrainingRecords.of(x[member], y[member], classes=10))
    trainer = DpSgdTrainer.of(model)
    assert trainer.job.plan == job.plan
    assert trainer.job.config.settings() == job.config.settings()
    found = attacked(model, x, y, "lira-offline", references=4, trainer=trainer, certificate=model.certificate)
    assert 0 < found.attacks[0].auc_low < found.attacks[0].auc_high < 1


def test_training_that_the_certificate_does_not_hold_is_not_repeated(small: tuple[np.ndarray, np.ndarray]) -> None:
    model = job_of(400).run(TrainingRecords.of(*small, classes=10))
    certificate = dict(model.certificate)
    views = {**stored(ViewConfig()), "augmentations": [{"name": "flip", "probability": 0.1}]}
    for change, field in (
        ({"public_data": {"public": "digest"}}, "model"),
        ({"settings": {**certificate["settings"], "views": views}}, None),
        ({"plan": {**certificate["plan"], "noise_multiplier": 1.0}}, "model settings"),
    ):
        model.certificate = {**certificate, **change}
        with refuses(field) if field else pytest.raises(InvalidInput):
            DpSgdTrainer.of(model)


class Counting(EstimatorTrainer):
    """Counts the models it makes, and stops after some."""

    made = 0
    most = 10**6

    def __call__(self, features: np.ndarray, labels: np.ndarray, streams: SecretStreams) -> Any:
        if Counting.made >= Counting.most:
            raise KeyboardInterrupt
        Counting.made += 1
        return super().__call__(features, labels, streams)


def run(x: np.ndarray, y: np.ndarray, work: Path, references: int = 6) -> Any:
    member, learner = marks(len(x)), LogisticRegression(max_iter=500)
    model = LogisticRegression(max_iter=500).fit(x[member], y[member])
    given = {"trainer": Counting(learner), "streams": SecretStreams.from_seed(len(list(work.glob("*"))))}
    return attacked(model, x, y, "lira", references=references, work=work, **given)


def test_a_killed_attack_goes_on(
    small: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "made", 0)
    monkeypatch.setattr(Counting, "most", 4)
    work = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        run(*small, work)
    kept = {path.name: path.read_bytes() for path in work.iterdir()}
    assert len(kept) == 6
    assert all(path.stat().st_mode & 0o077 == 0 for path in [work, *work.iterdir()])
    monkeypatch.setattr(Counting, "most", 10**6)
    found = run(*small, work)
    # Another key, yet the same records for each model, and only two models are new.
    assert Counting.made == 6
    assert all((work / name).read_bytes() == content for name, content in kept.items())
    again = run(*small, work)
    assert Counting.made == 6
    assert json.dumps(again.to_dict(owner=True)) == json.dumps(found.to_dict(owner=True))


def test_work_of_another_attack_is_refused(small: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    x, y = small
    run(x, y, tmp_path / "work", references=4)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "mine" / "letter.txt").write_text("hello")
    for features, work, references in ((x + 1, "work", 4), (x, "work", 6), (x, "mine", 6)):
        with refuses("work"):
            run(features, y, tmp_path / work, references=references)
    (tmp_path / "work" / "reference-00001.npz").write_bytes(b"broken")
    with pytest.raises(StorageError, match="not readable"):
        run(x, y, tmp_path / "work", references=4)


def test_records_at_risk_are_for_the_owner_only() -> None:
    (x, y), member = noisy_digits(200, wrong=0.5), marks(200)
    tree = by_heart(x, y, member)
    found = infer_membership(tree, PrivateRecords(x, y), member, classes=10, config=MembershipConfig(highest=3))
    assert "highest_risk" not in found.to_dict()
    assert "highest_risk" not in repr(found)
    owners = found.to_dict(owner=True)
    assert [sorted(entry) for entry in owners["highest_risk"]] == [["record", "score"]] * 3
    json.dumps(owners, allow_nan=False)
    scores = true_class_logits(class_scores(tree, x[member], 10), y[member])
    highest = sorted(scores, reverse=True)[:3]
    assert [entry["score"] for entry in owners["highest_risk"]] == highest
    assert [scores[entry["record"]] for entry in owners["highest_risk"]] == highest


def test_wrong_records_and_settings_are_refused() -> None:
    (x, y), member = noisy_digits(40, wrong=0.0), marks(40)
    tree = DecisionTreeClassifier().fit(x, y)
    records = PrivateRecords(x, y)
    for wrong_mark in (member[:-1], member.astype(int), np.ones(40, bool), np.arange(40) < 1):
        with refuses("member"):
            infer_membership(tree, records, wrong_mark, classes=10)
    with refuses("labels"):
        infer_membership(tree, records, member, classes=2)
    with refuses("records"):
        attacked(tree, x[:, 0], y)
    with refuses("trainer"):
        attacked(tree, x, y, "lira", references=MembershipConfig.references)
    for wrong in ({"attacks": ("magic",)}, {"attacks": ()}, {"attacks": ("loss", "loss")}, {"confidence": 1.0}):
        with pytest.raises(InvalidInput):
            MembershipConfig(**wrong)  # type: ignore[arg-type]
