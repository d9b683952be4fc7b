"""What scenarios use public records for, and what their batches look like in the warm-up and in private steps."""

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.training import public_phase
from privmix.training.examples import ImageLayout
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.public.base import WithGradients
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.public_phase import Combined, PublicViews, plan_public_use
from privmix.training.views.augment import Crop, Cutout, Flip
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import Mixing
from tests.refusals import refuses
from tests.training.public.helpers import public_data
from tests.training.runs import config_of, job_of, private, public, weights_of

LAYOUT = ImageLayout(1, 8, 8)
COMMON = (Flip(), Crop(mode="zeros"))


def batch(size: int = 6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(size, 1, 8, 8, generator=generator)
    seeds = torch.randint(2**62, (size,), generator=generator)
    return images, torch.eye(size), seeds


def warm(network: str = "cnn-relu", **own: Any) -> Any:
    public = {"scenario": "extended", "extended": ExtendedConfig("dope", batch_size=8)}
    warm_up, views = WarmUpConfig(epochs=1, batch_size=10, **own), ViewConfig.self_aug(2)
    # Named: the fastest may be another one the next time.
    execution = ExecutionConfig("vmap")
    return config_of(network, **public, views=views, warm_up=warm_up, execution=execution, epochs=0.2)


def test_the_warm_up_has_augmentations_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flips, zero-padded crops and cutout there; what the private phase does with public records stays."""
    seen: list[PublicViews] = []
    honest = PublicViews.__call__

    def watched(self: PublicViews, x: Tensor, targets: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(self)
        return honest(self, x, targets, seeds)

    monkeypatch.setattr(public_phase.PublicViews, "__call__", watched)
    job = job_of(warm(augmentations=(*COMMON, Cutout())), public=public())
    job.run(private())
    names = [[augmentation.name for augmentation in views.augmentations] for views in seen]
    assert names == [["flip", "crop", "cutout"]] * 4 + [["flip", "crop"]] * 2
    assert job.settings()["warm_up"]["augmentations"][1]["mode"] == "zeros"
    assert [one["name"] for one in job.settings()["views"]["augmentations"]] == ["flip", "crop"]


def test_without_augmentations_of_its_own_the_warm_up_has_those_of_the_private_views() -> None:
    same = ViewConfig.self_aug(2).augmentations
    models = [
        job_of(warm(**own), public=public()).run(private(), streams=SecretStreams.from_seed(0))
        for own in ({}, {"augmentations": same}, {"augmentations": ()})
    ]
    first, second, third = map(weights_of, models)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_a_record_is_mixed_with_another_one_and_its_target_follows() -> None:
    images, targets, seeds = batch()
    mixed, soft = PublicViews(LAYOUT, (), Mixing("mixup", 1.0))(images, targets, seeds)
    # Of two records each, by the weights that the targets tell.
    assert ((soft > 0).sum(dim=1) == 2).all()
    torch.testing.assert_close(soft.sum(dim=1), torch.ones(6))
    torch.testing.assert_close(mixed, torch.einsum("bk,kchw->bchw", soft, images))
    # Each record is in two of the mixes.
    assert ((soft > 0).sum(dim=0) == 2).all()


def test_vectors_are_mixed_and_a_record_alone_stays_itself() -> None:
    images, targets, seeds = batch()
    x, mixing = images.flatten(1), PublicViews(None, (), Mixing("mixup", 0.2))
    mixed, soft = mixing(x, targets, seeds)
    torch.testing.assert_close(mixed, soft @ x)
    assert torch.equal(mixing(x, targets, seeds)[0], mixed), "a function of the seeds"
    alone, target = mixing(x[:1], targets[:1], seeds[:1])
    assert torch.equal(alone, x[:1])
    assert torch.equal(target, targets[:1])


def test_an_adversary_and_its_settings_are_in_the_settings() -> None:
    config = config_of("cnn-relu", scenario="warm", warm_up=WarmUpConfig(adversary=8 / 255, adversary_steps=2))
    assert config.settings()["warm_up"]["adversary"] == 8 / 255
    assert type(config).from_settings(config.settings()) == config
    assert "adversary" not in warm().settings()["warm_up"]
    with refuses("warm_up adversary"):
        job_of(config_of(scenario="warm", warm_up=WarmUpConfig(adversary=0.1)), public=public())


@pytest.mark.parametrize("own", [{"augmentations": (Flip(),)}, {"mixing": "cutmix"}], ids=["augmented", "cut"])
def test_vectors_are_neither_augmented_nor_cut(own: dict[str, Any]) -> None:
    config = config_of(scenario="warm", warm_up=WarmUpConfig(**own))
    with pytest.raises(InvalidInput, match=r"public records: got .*; allowed: .*the model takes vectors"):
        job_of(config, public=public())


def test_the_public_gradient_that_a_step_goes_along_is_cut_to_the_clipping_bound() -> None:
    """Uncut, it is many times as long as a mean of clipped gradients, and steps along it undo the warm-up."""
    for method, wanted in (("dope", True), ("mirror", True), ("multiplicity+dope", True), ("adadps", False)):
        config = replace(warm(), clip_norm=1e-3, extended=ExtendedConfig(method, batch_size=8, perturbations=2))
        found = job_of(config, public=public())._public.method(5)
        one = found.methods[-1] if isinstance(found, Combined) else found
        assert isinstance(one, WithGradients)
        assert one.source.max_norm == (1e-3 if wanted else None)
        assert (float(one.source.at(0).norm()) <= 1e-3 * (1 + 1e-6)) is wanted


def test_a_model_that_is_lost_on_public_records_is_told() -> None:
    job = job_of(warm(), public=public())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job_of(replace(warm(), scenario="cold", extended=ExtendedConfig()))._public.warn_if_lost()
    with torch.no_grad():
        for parameter in job.network.parameters():
            parameter.zero_()
    with pytest.warns(UserWarning, match="diverged: the model is right on .*cut public gradients shorter"):
        job._public.warn_if_lost()


REAL, MADE = public_data(3), public_data(5, seed=1)


@pytest.mark.parametrize(
    ("scenario", "data", "method", "found"),
    [
        ("cold", "", "none", [None, None]),
        ("warm", "real", "none", [3, None]),
        ("warm-synthetic", "real made", "none", [8, None]),
        ("warm-synthetic", "made", "none", [5, None]),
        ("extended", "real", "dope", [3, 3]),
        ("extended", "real made", "multiplicity", [8, 8]),
        # What is lacking, or would be ignored.
        ("cold", "real", "none", "public"),
        ("cold", "made", "none", "synthetic"),
        ("cold", "", "dope", "public_method"),
        ("warm", "", "none", "public"),
        ("warm", "real made", "none", "synthetic"),
        ("warm", "real", "dope", "public_method"),
        ("warm-synthetic", "real", "none", "synthetic"),
        ("extended", "real", "none", "public_method"),
        ("extended", "", "dope", "public"),
    ],
)
def test_scenarios_use_what_they_say(scenario: str, data: str, method: str, found: list[int | None] | str) -> None:
    given = REAL if "real" in data else None, MADE if "made" in data else None
    with pytest.raises(InvalidInput, match=found) if isinstance(found, str) else nullcontext():
        use = plan_public_use(scenario, *given, method)
        assert [None if data is None else data.size for data in use] == found
