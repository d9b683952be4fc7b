"""Public records: checks, batches that depend on their name alone, and what scenarios use."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.training.public import PublicData, Scenario, plan_public_use
from tests.training.public.helpers import public_data


def test_of_makes_one_hot_targets_of_labels() -> None:
    data = PublicData.of(np.zeros((3, 2, 2)), np.array([2, 0, 1]), 3)
    assert data.x.shape == (3, 2, 2)
    assert data.x.dtype == data.targets.dtype == torch.float32
    assert data.targets.argmax(dim=1).tolist() == [2, 0, 1]
    assert data.targets.sum(dim=1).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("x", "labels", "classes", "named"),
    [
        ([[0.0]], [3], 3, "public labels"),
        ([[0.0]], [-1], 3, "public labels"),
        ([[0.0]], [0.0], 3, "public labels"),
        ([[0.0]], [[0]], 3, "public labels"),
        ([[0.0]], [0, 1], 3, "public data"),
        ([0.0], [0], 3, "public data"),
        (np.zeros((0, 2)), np.zeros(0, dtype=int), 3, "public data"),
        ([[float("nan")]], [0], 3, "public inputs"),
        ([[0.0]], [0], 1, "classes"),
    ],
    ids=["label high", "label low", "float label", "2-d labels", "lengths", "1-d inputs", "empty", "nan", "one class"],
)
def test_of_refuses_what_does_not_fit(x: object, labels: object, classes: int, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        PublicData.of(x, labels, classes)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [[0.5, 0.4], [1.5, -0.5], [float("nan"), 1.0]], ids=["sum", "negative", "nan"])
def test_targets_are_distributions(row: list[float]) -> None:
    PublicData(torch.zeros(1, 2), torch.tensor([[0.25, 0.75]]))
    with pytest.raises(InvalidInput, match="public targets"):
        PublicData(torch.zeros(1, 2), torch.tensor([row]))


def test_join_puts_synthetic_records_after_the_real_ones() -> None:
    first, second = public_data(3), public_data(5, seed=1)
    both = first.join(second)
    assert torch.equal(both.x, torch.cat([first.x, second.x]))
    assert torch.equal(both.targets, torch.cat([first.targets, second.targets]))
    with pytest.raises(InvalidInput, match="joined data"):
        first.join(public_data(5, dim=6))


def test_the_fingerprint_changes_with_any_value_and_with_the_shape() -> None:
    data = public_data(4)
    moved = data.x.clone()
    moved[3, 1] += 1e-6
    others = [
        PublicData(moved, data.targets),
        PublicData(data.x, data.targets.roll(1, dims=1)),
        PublicData(data.x.reshape(4, 2, 2), data.targets),
    ]
    assert PublicData(data.x.clone(), data.targets.clone()).fingerprint() == data.fingerprint()
    assert len({data.fingerprint(), *(other.fingerprint() for other in others)}) == 4


def rows_of(data: PublicData, x: Tensor) -> list[int]:
    return [int((data.x == row).all(dim=1).nonzero()) for row in x]


def test_a_batch_depends_on_seed_step_and_part_alone() -> None:
    data = public_data()
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    names = [(step, seed, part) for step in range(3) for seed in range(3) for part in range(3)]
    forward = [rows_of(data, data.batch(step, 6, seed, part)[0]) for step, seed, part in names]
    backward = [rows_of(data, data.batch(step, 6, seed, part)[0]) for step, seed, part in reversed(names)]
    assert forward == backward[::-1]
    assert len({tuple(rows) for rows in forward}) == len(names)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_a_batch_has_different_records_with_their_own_targets() -> None:
    data = public_data()
    x, targets = data.batch(0, data.size, seed=0)
    rows = rows_of(data, x)
    assert sorted(rows) == list(range(data.size))
    assert torch.equal(targets, data.targets[rows])
    with pytest.raises(InvalidInput, match="public batch size"):
        data.batch(0, data.size + 1, seed=0)


def test_all_records_are_drawn_equally_often() -> None:
    """Each of 10 counts is binomial(2000, 0.3); seven standard deviations: false alarm below 1e-10."""
    data = public_data(10)
    counts = np.zeros(10)
    for step in range(2000):
        counts[rows_of(data, data.batch(step, 3, seed=1)[0])] += 1
    assert (abs(counts - 600) < 7 * np.sqrt(2000 * 0.3 * 0.7)).all()


def test_the_augmentation_gets_seeds_that_name_the_batch() -> None:
    data, seen = public_data(), []

    def augment(x: Tensor, targets: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(seeds)
        return x + 1, targets

    plain, _ = data.batch(2, 6, seed=0)
    augmented, _ = data.batch(2, 6, seed=0, augment=augment)
    assert torch.equal(augmented, plain + 1)
    data.batch(2, 6, seed=0, augment=augment)
    data.batch(3, 6, seed=0, augment=augment)
    assert torch.equal(seen[0], seen[1])
    assert seen[0].dtype == torch.int64
    assert len(set(seen[0].tolist()) | set(seen[2].tolist())) == 12


def test_an_augmentation_that_loses_targets_is_refused() -> None:
    with pytest.raises(InvalidInput, match="augmented batch"):
        public_data().batch(0, 6, seed=0, augment=lambda x, targets, seeds: (x, targets[1:]))


REAL, MADE = public_data(3), public_data(5, seed=1)


@pytest.mark.parametrize(
    ("scenario", "real", "made", "method", "warm_up", "private_phase"),
    [
        ("cold", False, False, "none", None, None),
        ("warm", True, False, "none", 3, None),
        ("warm-synthetic", True, True, "none", 8, None),
        ("warm-synthetic", False, True, "none", 5, None),
        ("extended", True, False, "dope", 3, 3),
        ("extended", True, True, "multiplicity", 8, 8),
    ],
)
def test_scenarios_use_what_they_say(
    scenario: str, real: bool, made: bool, method: str, warm_up: int | None, private_phase: int | None
) -> None:
    use = plan_public_use(scenario, REAL if real else None, MADE if made else None, method)
    sizes = [None if data is None else data.size for data in (use.warm_up, use.private_phase)]
    assert sizes == [warm_up, private_phase]


@pytest.mark.parametrize(
    ("scenario", "real", "made", "method", "named"),
    [
        ("tepid", True, False, "none", "scenario"),
        ("cold", True, False, "none", "public data"),
        ("cold", False, True, "none", "synthetic data"),
        ("cold", False, False, "dope", "public method"),
        ("warm", False, False, "none", "public data"),
        ("warm", True, True, "none", "synthetic data"),
        ("warm", True, False, "dope", "public method"),
        ("warm-synthetic", True, False, "none", "synthetic data"),
        ("extended", True, False, "none", "public method"),
        ("extended", False, False, "dope", "public data"),
    ],
)
def test_scenarios_refuse_what_they_lack_or_would_ignore(
    scenario: str, real: bool, made: bool, method: str, named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        plan_public_use(scenario, REAL if real else None, MADE if made else None, method)


def test_the_scenarios_are_those_of_the_paper() -> None:
    assert [str(scenario) for scenario in Scenario] == ["cold", "warm", "warm-synthetic", "extended"]
