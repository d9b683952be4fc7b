"""Ghost clipping gives what a loop over records gives, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput
from privmix.training.gradients import ghost_norms
from privmix.training.gradients.ghost import ghost_clipped_sum, supports_ghost
from privmix.training.gradients.parameters import FlatParameters, SideInformation
from privmix.training.models.networks import LinearHead, ResNet9, StandardisedConv2d, TanhCNN, WideResNet
from tests.refusals import refuses
from tests.training.naive import naive_gradient

CLASSES = 5


class Tokens(nn.Module):
    """An MLP on tokens: linear layers with many positions, and a residual branch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(8, 12), nn.LayerNorm(12)
        self.mix, self.head = nn.Linear(12, 12, bias=False), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x.unflatten(1, (-1, 8)))
        return self.head((hidden + functional.gelu(self.mix(self.norm(hidden)))).mean(1))


def convolutions(**options: Any) -> nn.Module:
    conv = nn.Conv2d(4, 6, kernel_size=(3, 2), **options)
    return nn.Sequential(conv, nn.GroupNorm(3, 6), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(CLASSES))


IMAGE, GREY = (3, 16, 16), (1, 28, 28)
SHAPED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (lambda: TanhCNN(channels_in=1, height=28, width=28, classes=CLASSES), GREY),
    "resnet-9": (lambda: ResNet9(channels_in=3, classes=CLASSES, width=4), IMAGE),
    "wrn": (lambda: WideResNet(channels_in=3, classes=CLASSES, depth=10, width=1, groups=4), IMAGE),
    "tokens": (Tokens, (48,)),
    "linear": (lambda: LinearHead(dim=48, classes=CLASSES, norm=1.0), (48,)),
    "grouped": (lambda: convolutions(groups=2, padding=1, stride=(2, 1)), (4, 9, 8)),
    "dilated": (lambda: convolutions(dilation=(1, 3), padding="same"), (4, 5, 6)),
    "reflected": (lambda: convolutions(padding=(2, 1), padding_mode="reflect"), (4, 5, 6)),
    "standardised-groups": (
        lambda: nn.Sequential(
            StandardisedConv2d(4, 6, 3, groups=2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(CLASSES, bias=False)
        ),
        (4, 5, 6),
    ),
}


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    make, shape = SHAPED[name]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = make()
        model(torch.zeros(1, *shape))
        for parameter in model.parameters():
            # No zero weights, and no norm layer at its start.
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model, shape


def views(shape: tuple[int, ...], records: int, k: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(records, k, *shape, generator=generator)
    return x, torch.softmax(2 * torch.randn(records, k, CLASSES, generator=generator), -1)


def naive(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """(b, P): each record's gradient, by itself."""
    return torch.stack([naive_gradient(model, *one, SideInformation()) for one in zip(x, targets, strict=True)]).float()


def ones(norms: Tensor, reach: Tensor) -> Tensor:
    return torch.ones_like(norms)


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("way", ["one-chunk", "one-record-chunks", "pairs", "gradients"])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", list(SHAPED))
def test_equal_to_a_loop(name: str, k: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms and sums, in either way to a norm; the bound is such that some records are clipped and some are not."""
    if way == "one-record-chunks":
        monkeypatch.setattr(ghost_norms, "CHUNK", 1)
    elif way != "one-chunk":
        monkeypatch.setattr(ghost_norms, "pairs_are_cheaper", lambda *sizes: way == "pairs")
    model, shape = build(name)
    flat = FlatParameters(model)
    x, targets = views(shape, 5, k)
    gradients = naive(model, x, targets)
    norms = gradients.double().norm(dim=1)
    bound = float(norms.median())
    seen: list[Tensor] = []

    def factors(found: Tensor, reach: Tensor) -> Tensor:
        seen.append(found)
        assert bool((reach >= found).all())
        return (bound / found).clamp(max=1)

    total = ghost_clipped_sum(model, flat, x, targets, factors)
    expected = ((bound / norms).clamp(max=1)[:, None] * gradients).sum(0)
    assert torch.allclose(seen[0], norms, rtol=1e-5)
    assert float((total - expected).norm()) <= 1e-5 * float(expected.norm())
    assert total.dtype == torch.float32
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["wrn", "cnn", "tokens", "grouped"])
def test_every_parameter_is_counted(name: str) -> None:
    """Of each layer's weight and bias alone, by freezing all others."""
    model, shape = build(name)
    x, targets = views(shape, 2, 2)
    for chosen, _ in list(model.named_parameters()):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name == chosen)
        flat = FlatParameters(model)
        seen: list[Tensor] = []
        ghost_clipped_sum(model, flat, x, targets, lambda *found, seen=seen: seen.extend(found) or found[0])
        assert torch.allclose(seen[0].float(), naive(model, x, targets).norm(dim=1), rtol=1e-4)


def test_nothing_is_left_behind() -> None:
    """Modes, hooks, weights, generators and precision stay as they were; no records give zeros."""
    model, shape = build("cnn")
    model.eval()
    flat = FlatParameters(model)
    before, state = flat.get(), torch.get_rng_state()
    x, targets = views(shape, 2, 1)
    torch.set_float32_matmul_precision("high")
    try:
        ghost_clipped_sum(model, flat, x, targets, ones)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(flat.get(), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training or module._forward_hooks for module in model.modules())
    assert ghost_clipped_sum(model, flat, x[:0], targets[:0], ones).tolist() == [0.0] * flat.size


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fc(torch.tanh(self.fc(x))))


class Spare(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def test_parameters_off_the_path_have_zeros() -> None:
    model = Spare()
    flat = FlatParameters(model)
    x, targets = views((6,), 3, 2)
    total = flat.unflatten(ghost_clipped_sum(model, flat, x, targets, ones))
    assert float(total["head.weight"].abs().max()) > 0
    assert float(total["fc.weight"].abs().max()) == 0


class Behind(Twice):
    """Uses weights past their layer, which is called as well."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fc(x) + functional.linear(x, self.fc.weight))


class Dropped(Twice):
    """Calls the layer, drops its output and uses its weights."""

    def forward(self, x: Tensor) -> Tensor:
        self.fc(x)
        return self.head(functional.linear(x, self.fc.weight))


class Uncalled(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.linear(x, self.fc.weight, self.fc.bias))


class SequenceFirst(Twice):
    """Views are the second axis of fc, and there are as many tokens as views."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = x[:, None] * torch.arange(1, 7, dtype=x.dtype)[:, None]
        return self.head(self.fc(tokens.transpose(0, 1)).transpose(0, 1).mean(1))


class Permuted(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fc(x.flip(0)).flip(0))


class Merged(Twice):
    """Tokens join the batch axis."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fc(torch.stack([x, 2 * x], 1).flatten(0, 1)).unflatten(0, (-1, 2)).mean(1))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, CLASSES))
    model[2].weight = model[0].weight
    return model


class Scaled(nn.Linear):
    """A subclass, which may compute anything."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * self.weight.sum()


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "twice": (Twice, "layer fc is used more than once"),
    "behind": (Behind, "parameter fc.weight is used 2 times"),
    "dropped": (Dropped, "the weights of layer fc are used outside its forward call"),
    "uncalled": (Uncalled, "parameter fc.weight is used outside its layer's forward call"),
    "sequence-first": (SequenceFirst, "first axis"),
    "permuted": (Permuted, "first axis"),
    "merged": (Merged, "the first axis of layer fc is not the batch"),
    "tied": (tied, "parameters 0.weight and 2.weight are tied"),
    "subclass": (lambda: nn.Sequential(Scaled(6, CLASSES)), "parameter 0.weight is of a Scaled"),
    "attention": (lambda: nn.Sequential(nn.MultiheadAttention(6, 1)), "0.in_proj_weight is of a MultiheadAttention"),
    "batch-norm": (lambda: nn.Sequential(nn.Linear(6, CLASSES), nn.BatchNorm1d(CLASSES)), "layer 1 of the model"),
    "parametrised": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, CLASSES))),
        "of a ParametrizedLinear",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_counted_is_refused_by_name(name: str) -> None:
    make, reason = REFUSED[name]
    torch.manual_seed(0)
    model = make()
    assert reason in str(supports_ghost(model, (6,)))
    x, targets = views((6,), 3, 2)
    with pytest.raises(InvalidInput) as error:
        ghost_clipped_sum(model, FlatParameters(model), x, targets, ones)
    assert "ghost clipping" in str(error.value)


def test_a_model_that_was_fine_is_looked_at_again() -> None:
    """Ties, frozen parameters and twofold use are found on every call, not the first alone."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, CLASSES))
    x, targets = views((6,), 3, 2)
    ghost_clipped_sum(model, FlatParameters(model), x, targets, ones)
    model[2].weight = model[0].weight
    with refuses("model"):
        ghost_clipped_sum(model, FlatParameters(model), x, targets, ones)


class Tables(nn.Module):
    """A class token that its module uses, and positions that are used behind its back."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token, self.position_embeddings = (nn.Parameter(torch.randn(1, n, 6)) for n in (1, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)


class Sometimes(nn.Module):
    """Adds positions past their module for some inputs alone, none of which a trial in [0, 1] has."""

    def __init__(self) -> None:
        super().__init__()
        self.tables, self.head = Tables(), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.tables(x)
        if x.max() > 1:
            tokens = tokens + self.tables.position_embeddings
        return self.head(torch.tanh(tokens).mean(1))


def test_a_table_that_is_used_past_its_module_is_found_on_the_inputs_that_do_so() -> None:
    torch.manual_seed(0)
    model = Sometimes()
    assert supports_ghost(model, (2, 6)) is None
    x, targets = torch.rand(3, 2, 2, 6), torch.softmax(torch.randn(3, 2, CLASSES), -1)
    assert ghost_clipped_sum(model, FlatParameters(model), x, targets, ones).norm() > 0
    with refuses("model"):
        ghost_clipped_sum(model, FlatParameters(model), 2 * x, targets, ones)


def test_zero_weights_hide_no_layer() -> None:
    """Behind a head of zeros all gradients vanish; the trial is of a jittered copy."""
    model = Permuted()
    nn.init.zeros_(model.head.weight)
    assert "first axis" in str(supports_ghost(model, (6,)))


@pytest.mark.parametrize("shapes", [((3, 6), (3, 5)), ((3, 2, 6), (3, 1, 5)), ((3, 0, 6), (3, 0, 5))], ids=str)
def test_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    model = nn.Linear(6, CLASSES)
    with refuses("views and targets") as error:
        ghost_clipped_sum(model, FlatParameters(model), *map(torch.zeros, shapes), ones)
    assert "3" not in str(error.value)


def test_errors_do_not_tell_the_number_of_records() -> None:
    """With Poisson batches that number is private."""
    model = nn.Linear(6, 4)
    x, targets = views((6,), 77, 1)
    with refuses("the model's output") as error:
        ghost_clipped_sum(model, FlatParameters(model), x, targets, ones)
    assert "77" not in str(error.value)


def test_a_norm_survives_views_that_cancel() -> None:
    """Pairs are summed in float64: what is left of gradients 1000 times its length is right to 1%."""
    a, difference = torch.randn(1, 1, 1, 300), torch.randn(1, 1, 1, 300)
    inputs = torch.cat([a, a + 1e-3 * difference], dim=2)
    gradients = torch.randn(1, 1, 1, 200) * torch.tensor([1.0, -1.0]).view(1, 1, 2, 1)
    exact = (gradients.double().mT @ inputs.double()).square().sum()
    found = ghost_norms._outer_product_squares(inputs, gradients)
    assert torch.isclose(found[0], exact, rtol=1e-6)
