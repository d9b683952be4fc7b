"""All strategies sum what the definition says, and none lets a record through that is longer than the bound."""

from collections.abc import Callable, Sequence
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from privmix.training.gradients.closed_form import ClosedFormGradients
from privmix.training.gradients.config import AUTOMATIC, FLAT
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation
from privmix.training.gradients.strategies import GradientStrategy, LoopGradients, VmapGradients
from privmix.training.models.hf import PretrainedClassifier
from privmix.training.models.networks import LinearHead, ReluCNN, ResNet9, TanhCNN, WideResNet
from tests.refusals import refuses
from tests.training.naive import naive_clipped, naive_gradient, naive_sum

# PyTorch has no batched attention for vmap on the CPU yet, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")

CLASSES = 4


def tiny_vit() -> nn.Module:
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": "vit", "image_size": 8, "patch_size": 4, **sizes}
    given = {"side": 8, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    return PretrainedClassifier(config=config, channels_in=1, height=8, width=8, classes=CLASSES, **given)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: LinearHead(dim=7, classes=CLASSES), (7,)),
    "linear-scaled": (lambda: LinearHead(dim=7, classes=CLASSES, norm=2.0), (7,)),
    "cnn": (lambda: TanhCNN(channels_in=1, height=16, width=16, classes=CLASSES), (1, 16, 16)),
    "cnn-relu": (lambda: ReluCNN(channels_in=1, height=8, width=8, classes=CLASSES), (1, 8, 8)),
    "resnet-9": (lambda: ResNet9(channels_in=3, classes=CLASSES, width=4, groups=4), (3, 8, 8)),
    "wrn-10-1": (lambda: WideResNet(channels_in=3, classes=CLASSES, depth=10, width=1), (3, 8, 8)),
    "vit": (tiny_vit, (1, 8, 8)),
}
ANY = (LoopGradients, VmapGradients)
STRATEGIES: dict[str, tuple[type[GradientStrategy], ...]] = {
    name: (*ANY, ClosedFormGradients) if name.startswith("linear") else ANY for name in MODELS
}
PAIRS = [(name, strategy) for name, strategies in STRATEGIES.items() for strategy in strategies]
EVERY_PAIR = pytest.mark.parametrize(
    ("name", "strategy"), PAIRS, ids=[f"{name}-{strategy.name}" for name, strategy in PAIRS]
)
ALL_OF_LINEAR = pytest.mark.parametrize("strategy", STRATEGIES["linear"], ids=lambda strategy: strategy.name)


@cache
def build(name: str) -> nn.Module:
    make, _ = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = make()
        for parameter in model.parameters():
            # No zero weights, and no norm layer at its start.
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def strategy_of(
    name: str, strategy: type[GradientStrategy], clipping: Clipping, model: nn.Module | None = None
) -> GradientStrategy:
    model = model or build(name)
    return strategy(model, FlatParameters(model), clipping)


def inputs(name: str, records: int, k: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(records, k, *MODELS[name][1], generator=generator)
    return x, torch.softmax(2 * torch.randn(records, k, CLASSES, generator=generator), -1)


def side_of(name: str, what: str, k: int) -> SideInformation:
    generator = torch.Generator().manual_seed(5)
    size = FlatParameters(build(name)).size

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, size, generator=generator)

    sides = {
        "none": SideInformation(),
        "perturbations": SideInformation(perturbations=0.05 * random(min(2, k))),
        "scale": SideInformation(scale=random().abs() + 0.5),
        "centre": SideInformation(centre=random() / size**0.5),
        "all": SideInformation(0.05 * random(k), random().abs() + 0.5, random() / size**0.5),
    }
    return sides[what]


@cache
def defined(name: str, records: int, k: int, what: str = "none") -> tuple[Tensor, ...]:
    """What the definition gives for each of :func:`inputs`: slow, and the same for every strategy."""
    side = side_of(name, what, k)
    return tuple(naive_gradient(build(name), *one, side) for one in zip(*inputs(name, records, k), strict=True))


def middle(gradients: tuple[Tensor, ...]) -> float:
    """A bound that clips some of the records and not others."""
    return float(torch.tensor([float(one.norm()) for one in gradients]).median())


def clipped_total(gradients: Sequence[Tensor], clipping: Clipping) -> Tensor:
    return torch.stack([naive_clipped(one, clipping) for one in gradients]).sum(0)


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    assert float((found.double() - expected).norm()) <= tolerance * float(expected.norm())


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("what", ["none", "perturbations", "scale", "centre", "all"])
@EVERY_PAIR
def test_equal_to_the_definition(name: str, strategy: type[GradientStrategy], what: str, k: int) -> None:
    call, each = (*inputs(name, 4, k), side_of(name, what, k)), defined(name, 4, k, what)
    for kind in (FLAT, AUTOMATIC):
        clipping = Clipping(middle(each), kind)
        assert_close(strategy_of(name, strategy, clipping).clipped_sum(*call), clipped_total(each, clipping))


@pytest.mark.parametrize("k", [2, 9], ids=["few-views", "more-views-than-classes"])
@ALL_OF_LINEAR
def test_targets_that_do_not_sum_to_one(strategy: type[GradientStrategy], k: int) -> None:
    x, targets = inputs("linear", 5, k)
    targets = targets * torch.linspace(0, 3, 5)[:, None, None]
    clipping = Clipping(0.5)
    found = strategy_of("linear", strategy, clipping).clipped_sum(x, targets, SideInformation())
    assert_close(found, naive_sum(build("linear"), x, targets, clipping))


@EVERY_PAIR
def test_no_record_no_gradient(name: str, strategy: type[GradientStrategy]) -> None:
    x, targets = inputs(name, 0, 2)
    for what in ("none", "centre"):
        found = strategy_of(name, strategy, Clipping(1.0)).clipped_sum(x, targets, side_of(name, what, 2))
        assert found.shape == (FlatParameters(build(name)).size,)
        assert not found.any()


BROKEN = {"nan": torch.nan, "infinite": torch.inf, "1e38": 1e38}


@pytest.mark.parametrize("broken", BROKEN)
@EVERY_PAIR
def test_total_a_record_that_is_not_finite_adds_zero(name: str, strategy: type[GradientStrategy], broken: str) -> None:
    """Whatever it holds, it raises nothing and leaves the others' shares as they were."""
    x, targets = inputs(name, 4, 2)
    each = defined(name, 4, 2)
    clipping = Clipping(middle(each))
    gradients = strategy_of(name, strategy, clipping)
    expected = clipped_total([each[0], *each[2:]], clipping)
    x[1] = BROKEN[broken]
    x[1, :, ..., ::2] *= -1
    alone = gradients.clipped_sum(x[1:2], targets[1:2], SideInformation())
    assert bool(torch.isfinite(alone).all())
    assert float(alone.double().norm()) <= clipping.clip_norm
    if not bool(torch.isfinite(naive_gradient(build(name), x[1], targets[1], SideInformation())).all()):
        assert not alone.any()
    assert_close(gradients.clipped_sum(x, targets, SideInformation()), expected + alone.double())
    assert not gradients.clipped_sum(x[1:2] * torch.nan, targets[1:2], SideInformation()).any()


@pytest.mark.parametrize("kind", [FLAT, AUTOMATIC])
@EVERY_PAIR
def test_clipped_once_and_never_longer(name: str, strategy: type[GradientStrategy], kind: str) -> None:
    """One vector of at most C a record, for any number of views and inputs from nothing to 1e30."""
    bound = 0.2
    gradients = strategy_of(name, strategy, Clipping(bound, kind))
    for k in (1, 4):
        x, targets = inputs(name, 1, k)
        for size in (0.0, 1e-30, 1.0, 1e3, 1e10, 1e20, 1e30, 3e38):
            norm = float(gradients.clipped_sum(x * size, targets, SideInformation()).double().norm())
            assert norm <= bound


@pytest.mark.parametrize("size", [1e2, 1e5, 1e8, 1e12])
@pytest.mark.parametrize("kind", [FLAT, AUTOMATIC])
@ALL_OF_LINEAR
def test_clipped_when_views_nearly_cancel(strategy: type[GradientStrategy], kind: str, size: float) -> None:
    """Views whose long gradients leave next to nothing: their rounding, up to size / 1e7, must not pass the bound."""
    generator = torch.Generator().manual_seed(3)
    model = LinearHead(dim=50, classes=CLASSES)
    gradients = strategy_of("linear", strategy, Clipping(1e-3, kind), model)
    feature = size * torch.rand(50, generator=generator)
    for _ in range(5):
        pull = torch.softmax(torch.randn(CLASSES, generator=generator), -1) - 1 / CLASSES
        share = torch.rand(3, generator=generator)
        weights = torch.tensor([1.0, float(share[0]), -1.0 - float(share[0])])
        targets = (1 / CLASSES + 0.3 * weights[:, None] * pull)[None]
        x = (feature * (1 + 1e-7 * torch.randn(3, 50, generator=generator)))[None]
        alone = gradients.clipped_sum(x, targets, SideInformation()).double()
        assert float(alone.norm()) <= 1e-3
        # Nor is it felt by others: they are added to it with what rounding their own share brings.
        other, wanted = inputs("linear", 1, 3)
        other = torch.nn.functional.pad(other, (0, 43))
        both = gradients.clipped_sum(torch.cat([x, other]), torch.cat([targets, wanted]), SideInformation())
        assert_close(both, alone + gradients.clipped_sum(other, wanted, SideInformation()), 1e-4)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e12, 1e18])
@pytest.mark.parametrize("strategy", ANY, ids=lambda s: s.name)
def test_clipped_when_positions_of_one_view_cancel(strategy: type[GradientStrategy], size: float) -> None:
    """What an image's pixels add to a filter's gradient sums to 0 but for rounding, which grows with the image."""
    generator = torch.Generator().manual_seed(0)
    # Each pixel is a position; the frozen head weighs them.
    head = nn.Linear(64, 2).requires_grad_(False)
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), head)
    apart = (head.weight[0] - head.weight[1]).double()
    gradients = strategy(model, FlatParameters(model), Clipping(1e-3))
    targets = torch.tensor([[[1.0, 0.0]]])
    for _ in range(40):
        image = torch.randn(64, generator=generator, dtype=torch.float64)
        image -= apart * (image @ apart) / (apart @ apart)
        x = (image * size).float().view(1, 1, 1, 8, 8)
        assert float(gradients.clipped_sum(x, targets, SideInformation()).double().norm()) <= 1e-3


@ALL_OF_LINEAR
def test_clipped_with_millions_of_parameters(strategy: type[GradientStrategy]) -> None:
    # So many that a norm in float32 is wrong by more than a part in a thousand.
    size = 1_500_000
    model, clipping = LinearHead(dim=size, classes=2), Clipping(0.1)
    for x in (torch.full((1, 1, size), 0.1), torch.rand(1, 2, size), torch.linspace(9, 0, size)[None, None]):
        targets = torch.tensor([0.9, 0.1]).expand(1, x.shape[1], 2)
        found = strategy_of("linear", strategy, clipping, model).clipped_sum(x, targets, SideInformation())
        assert 0.1 * (1 - 1e-5) < float(found.double().norm()) <= 0.1


@pytest.mark.parametrize("strategy", [LoopGradients, VmapGradients, ClosedFormGradients], ids=lambda s: s.name)
def test_clipped_when_the_centre_cancels(strategy: type[GradientStrategy]) -> None:
    """A centre that is long and nearly a record's gradient: clipping comes after the subtraction."""
    x, targets = inputs("linear", 1, 2)
    x, unclipped = x * 1e6, strategy_of("linear", strategy, Clipping(1e12))
    gradient = unclipped.clipped_sum(x, targets, SideInformation()).float()
    assert float(gradient.norm()) > 1e5
    side = SideInformation(centre=gradient * (1 + 1e-7 * torch.randn(gradient.shape)))
    found = strategy_of("linear", strategy, Clipping(1e-2)).clipped_sum(x, targets, side)
    assert 0 < float(found.double().norm()) <= 1e-2


def test_tf32_is_not_used() -> None:
    """The caller's choice of fast, coarse products is overruled where a coarse product would break the bound."""
    seen = []

    class Watched(Clipping):
        def factors(self, norms: Tensor) -> Tensor:
            seen.append(torch.get_float32_matmul_precision())
            return super().factors(norms)

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for strategy in STRATEGIES["linear"]:
            x, targets = inputs("linear", 2, 2)
            strategy_of("linear", strategy, Watched(1.0)).clipped_sum(x, targets, SideInformation())
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {"highest"}


@pytest.mark.parametrize("strategy", ANY)
def test_amp_still_clips(strategy: type[GradientStrategy]) -> None:
    """Forward passes in bfloat16 change gradients, not the bound on them."""
    gradients = strategy(build("cnn"), FlatParameters(build("cnn")), Clipping(1e-2), amp=True)
    for own, wanted in zip(*inputs("cnn", 3, 2), strict=True):
        assert 0 < float(gradients.clipped_sum(own[None], wanted[None], SideInformation()).double().norm()) <= 1e-2


def test_frozen_parameters_have_no_gradient() -> None:
    model = TanhCNN(channels_in=1, height=16, width=16, classes=CLASSES)
    model.convolutions.requires_grad_(False)
    x, targets = inputs("cnn", 3, 2)
    expected = naive_sum(model, x, targets, Clipping(0.1))
    for strategy in STRATEGIES["cnn"]:
        found = strategy(model, FlatParameters(model), Clipping(0.1)).clipped_sum(x, targets, SideInformation())
        assert_close(found, expected)


def test_the_reference_itself() -> None:
    """By hand, for one record of a linear head at zero weights: errors are uniform minus target."""
    model = LinearHead(dim=2, classes=2)
    views, targets = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    gradient = naive_gradient(model, views, targets, SideInformation())
    assert gradient.tolist() == [-0.5, -1.0, 0.5, 1.0, -0.5, 0.5]
    assert float(naive_clipped(gradient, Clipping(0.1)).norm()) == pytest.approx(0.1)
    assert float(naive_clipped(gradient, Clipping(9.0)).norm()) == pytest.approx(3**0.5)


def filled(part: Tensor, size: int) -> Tensor:
    """As a training fills a call up: with copies of its first record."""
    return torch.cat([part, part[:1].expand(size - len(part), *part.shape[1:])])


@pytest.mark.parametrize("what", ["none", "all"])
@EVERY_PAIR
def test_what_fills_a_call_up_adds_exactly_nothing(name: str, strategy: type[GradientStrategy], what: str) -> None:
    """Also other records, or one without a finite gradient."""
    gradients, side = strategy_of(name, strategy, Clipping(0.5)), side_of(name, what, 2)
    x, targets = inputs(name, 5, 2)
    plain = gradients.clipped_sum(x[:3], targets[:3], side)
    broken = filled(x[:3], 5)
    broken[[0, 3, 4]] = torch.nan
    other = x.clone()
    other[3:] *= -2
    same = gradients.clipped_sum(filled(x[:3], 5), targets, side, 3)
    assert torch.equal(same, gradients.clipped_sum(other, targets, side, 3)), "not by a bit"
    other[3:] = torch.nan
    assert torch.equal(same, gradients.clipped_sum(other, targets, side, 3)), "nor by what has no gradient"
    left = gradients.clipped_sum(broken, targets, side, 3)
    none = gradients.clipped_sum(broken[[0, 0, 0]], targets[:3], side, 2)
    assert_close(same, plain.double(), 1e-6)
    assert torch.equal(gradients.clipped_sum(x[:3], targets[:3], side, 3), plain), "all of them are counted"
    assert_close(left, gradients.clipped_sum(x[1:3], targets[1:3], side).double(), 1e-6)
    assert none.shape == (gradients.flat.size,)
    assert not bool(none.any())


def test_how_views_lie_in_memory_changes_nothing() -> None:
    """Views of images have their colours side by side, copies of some do not: libraries choose by that, too."""
    gradients = strategy_of("wrn-10-1", VmapGradients, Clipping(0.5))
    x, targets = inputs("wrn-10-1", 9, 1)
    beside = x.movedim(2, -1).contiguous().movedim(-1, 2)
    assert beside.stride() != x.stride()
    assert torch.equal(
        gradients.clipped_sum(beside, targets, SideInformation()), gradients.clipped_sum(x, targets, SideInformation())
    )


def tied(head: LinearHead, length: float, seed: int) -> Tensor:
    """(d,) features of such a length whose two largest logits are equal, but for what float32 makes of them."""
    drawn = torch.randn(head.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weight = head.head.weight.detach().double()
    first, second = torch.topk(weight @ drawn, 2).indices
    apart = weight[first] - weight[second]
    drawn -= apart * (apart @ drawn) / (apart @ apart)
    return (drawn * (length / drawn.norm())).float()


@ALL_OF_LINEAR
@pytest.mark.parametrize("length", [16.0, 1e4, 1e8])
def test_what_a_record_adds_depends_on_no_other(strategy: type[GradientStrategy], length: float) -> None:
    """Where classes tie, the last bits of logits decide: in float32, 65 such records moved together by 48 C."""
    head = LinearHead(dim=64, classes=3)
    torch.nn.init.normal_(head.head.weight, std=0.5, generator=torch.Generator().manual_seed(0))
    gradients = strategy(head, FlatParameters(head), Clipping(1.0))
    targets = torch.eye(3)[None, None, 2]
    for seed in range(10):
        views = tied(head, length, seed)[None, None]
        call = filled(views, 70), filled(targets, 70), SideInformation()
        alone = gradients.clipped_sum(*call, 1).double()
        for count in (2, 5, 65, 70):
            assert float((gradients.clipped_sum(*call, count).double() - count * alone).norm()) < 1e-4


def test_closed_form_is_for_linear_heads_only() -> None:
    assert ClosedFormGradients.fits(build("linear"))
    assert ClosedFormGradients.fits(build("linear-scaled"))
    for name in ("cnn", "resnet-9", "wrn-10-1"):
        assert not ClosedFormGradients.fits(build(name))
        with refuses("strategy"):
            strategy_of(name, ClosedFormGradients, Clipping(1.0))
    half = LinearHead(dim=3, classes=2)
    half.head.bias.requires_grad_(False)
    assert not ClosedFormGradients.fits(half)
