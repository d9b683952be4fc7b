"""Layers that mix the records of a batch are found, by type and by what they do."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.training.models.base import build_model
from privmix.training.models.layers_check import check_independence, check_model
from tests.refusals import refuses


def by_type() -> list[tuple[nn.Module, str]]:
    """Layers that mix records or draw, and what stands in the advice."""
    norms = [nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4, affine=False, track_running_stats=False)]
    norms += [nn.SyncBatchNorm(4), nn.LazyBatchNorm2d()]
    draws = [nn.Dropout(0.1), nn.Dropout2d(0.1), nn.AlphaDropout(0.1), nn.MultiheadAttention(4, 1, dropout=0.1)]
    draws += [nn.LSTM(4, 4, num_layers=2, dropout=0.1)]
    return [
        *((norm, "GroupNorm") for norm in norms),
        (nn.InstanceNorm2d(4, track_running_stats=True), "track_running_stats=False"),
        *((layer, "set its rate to 0") for layer in draws),
        (nn.RReLU(), "LeakyReLU"),
        (nn.LazyLinear(4), "sizes given"),
    ]


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("layer", "advice"), by_type(), ids=lambda given: type(given).__name__)
def test_refused_by_type_with_name_and_advice(layer: nn.Module, advice: str, train: bool) -> None:
    model = nn.Sequential(nn.Identity(), nn.ModuleDict({"inner": nn.Sequential(nn.ReLU(), layer)})).train(train)
    with refuses("layer 1.inner.1 of the model") as error:
        check_model(model)
    assert type(layer).__name__ in str(error.value)
    assert advice in str(error.value)


def test_layers_of_one_record_pass() -> None:
    allowed = (nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm2d(4), nn.Dropout(0.0), nn.MultiheadAttention(4, 1))
    check_model(nn.Sequential(nn.Identity(), *allowed))


class Layer(nn.Module):
    """Does what a function of it and its input does; has a weight, a buffer, an attribute and attention for that."""

    seen: Tensor

    def __init__(self, act: Callable[[Any, Tensor], Tensor], weight: float = 0.0) -> None:
        super().__init__()
        self.act, self.last, self.weight = act, 0.0, nn.Parameter(torch.tensor(weight))
        self.register_buffer("seen", torch.zeros(()))
        self.attention = nn.MultiheadAttention(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self, x)


def counts(layer: Any, x: Tensor) -> Tensor:
    layer.seen += x.detach().sum()
    return x


def remembers(layer: Any, x: Tensor) -> Tensor:
    """Keeps the last batch in an attribute that is no buffer."""
    out, layer.last = x + layer.last, float(x.detach().mean())
    return out


def rewrites(layer: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        layer.weight += 1e-3
    return x * layer.weight.detach()


def only_pairs(layer: Any, x: Tensor) -> Tensor:
    if len(x) < 2:
        raise ValueError("one record")
    return x


def attends_across(layer: Any, x: Tensor) -> Tensor:
    """Attention that takes the batch for the sequence: the common slip of batch_first."""
    return layer.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]


def centres(layer: Any, x: Tensor) -> Tensor:
    return x - layer.weight * x.mean(0)


class MixesGradients(torch.autograd.Function):
    """Its outputs are each record's own, its gradients are not."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient + gradient.mean(0)


class FirstBatch(nn.Module):
    """Sets its shift from the first batch, as ActNorm does, and keeps that in one of several places."""

    fixed: Tensor

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.ready, self.plain = place, False, torch.zeros(4)
        self.register_buffer("fixed", torch.zeros(4))
        self.trained = nn.Parameter(torch.zeros(4))
        self.nested: Any = [{"means": [torch.zeros(4)]}]
        self.apart, self.numbers = SimpleNamespace(mean=torch.zeros(4)), np.zeros(4)
        self.hidden = [nn.Linear(4, 1)]

    def forward(self, x: Tensor) -> Tensor:
        if not self.ready and not (self.place == "gradients" and not torch.is_grad_enabled()):
            mean = x.detach().mean(0)
            match self.place:
                case "fixed" | "trained":
                    getattr(self, self.place).data.copy_(mean)
                case "plain" | "gradients":
                    self.plain = mean
                case "nested":
                    self.nested[0]["means"][0] = mean
                case "apart":
                    self.apart.mean = mean
                case "numbers":
                    self.numbers[:] = mean.numpy()
                case "hidden":
                    self.hidden[0].bias.data.fill_(float(mean[0]))
            # The flag alone would be noticed, too.
            self.__dict__["ready"] = self.place in ("plain", "gradients")
        return x - self.fixed


FIRST = ("fixed", "trained", "plain", "gradients", "nested", "apart", "numbers", "hidden")
BY_BEHAVIOUR: dict[str, tuple[Callable[[Any, Tensor], Tensor], float]] = {
    "centres": (centres, 1e-5),
    "would centre": (centres, 0.0),
    "counts": (counts, 0.0),
    "remembers": (remembers, 0.0),
    "rewrites": (rewrites, 1.0),
    "draws": (lambda layer, x: x + 1e-3 * torch.randn_like(x), 0.0),
    "mixes gradients": (lambda layer, x: MixesGradients.apply(x), 0.0),
    "takes pairs": (only_pairs, 0.0),
    "attends": (attends_across, 0.0),
}


@pytest.mark.parametrize("what", BY_BEHAVIOUR)
def test_refused_by_behaviour(what: str) -> None:
    layer = Layer(*BY_BEHAVIOUR[what])
    model = nn.Sequential(nn.Linear(6, 4), nn.Sequential(layer, nn.ReLU()), nn.Linear(4, 2))
    check_model(model)
    nn.init.zeros_(model[2].weight)
    with refuses("layer 1.0 of the model"):
        check_independence(model, (6,))


@pytest.mark.parametrize("place", FIRST)
def test_what_the_first_batch_sets_is_refused_wherever_it_is_kept(place: str) -> None:
    name = "plain" if place == "gradients" else place
    model = nn.Sequential(nn.Linear(6, 4), FirstBatch(place))
    for tried in (model, nn.Sequential(FirstBatch(place).requires_grad_(False), nn.Linear(4, 2))):
        with pytest.raises(InvalidInput, match=rf"changes \d\.({name}|ready) ") as error:
            check_independence(tried, (tried[0].in_features,) if tried is model else (4,))
        assert "FirstBatch" in str(error.value)
    assert not model[1].ready
    assert not any(tensor.any() for tensor in (model[1].fixed, model[1].trained, model[1].plain))


def test_what_public_inputs_set_before_is_kept() -> None:
    model = nn.Sequential(nn.Linear(6, 4), FirstBatch("plain"))
    model(torch.rand(3, 6))
    check_independence(model, (6,))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False), nn.Dropout(0.5)])
def test_batch_norm_and_dropout_show_by_behaviour_too(layer: nn.Module) -> None:
    with refuses("layer 1 of the model"):
        check_independence(nn.Sequential(nn.Linear(6, 4), layer, nn.Linear(4, 2)).eval(), (6,))


def test_tokens_may_come_first() -> None:
    """Three tokens, as many as the trial has records: layers whose rows are not the records'."""
    encoder = nn.TransformerEncoderLayer(4, 1, 8, dropout=0.0)
    tokens = Layer(lambda layer, x: x.unflatten(1, (3, 4)).transpose(0, 1))
    check_independence(nn.Sequential(tokens, encoder, Layer(lambda layer, x: x.mean(0))), (12,))


def test_models_that_need_float32_are_tried_in_it() -> None:
    first = Layer(lambda layer, x: x @ torch.eye(6))
    check_independence(nn.Sequential(first, nn.Linear(6, 4)), (6,))
    model = nn.Sequential(first, nn.Linear(6, 4), Layer(centres, 0.1))
    with refuses("layer 2 of the model"):
        check_independence(model, (6,))


@pytest.mark.parametrize("name", ["linear", "cnn", "cnn-relu", "resnet-9", "wrn-10-1"])
def test_models_of_this_package_pass(name: str) -> None:
    model = build_model(name, input_shape=(16, 16), dim=256, classes=3, seed=0)
    check_model(model)
    check_independence(model, (1, 16, 16) if model.takes_images else (256,))


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(6, 4), Layer(counts)).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random = torch.get_rng_state()
    with pytest.raises(InvalidInput):
        check_independence(model, (6,))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert not any(module.training or module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None and parameter.dtype == torch.float32 for parameter in model.parameters())


def test_outputs_need_a_row_a_record() -> None:
    with refuses("model"):
        check_independence(nn.Sequential(nn.Linear(6, 4), nn.Flatten(0)), (6,))
