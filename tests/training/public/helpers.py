"""Small models and public records for the tests of this folder."""

import torch
from torch import Tensor, nn

from privmix.training.examples import PublicData
from privmix.training.gradients.parameters import FlatParameters, SideInformation
from privmix.training.public.base import PublicGradients
from tests.training import naive

CLASSES = 3


def public_data(records: int = 24, dim: int = 4, seed: int = 0) -> PublicData:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(records, dim, generator=generator)
    labels = torch.randint(CLASSES, (records,), generator=generator)
    x[torch.arange(records), labels] += 1.0
    return PublicData.of(x, labels, CLASSES)


def mlp(seed: int = 0, dim: int = 4, dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(dim, 5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, CLASSES))


def source(
    model: nn.Module, batch_size: int = 6, data: PublicData | None = None, **settings: object
) -> PublicGradients:
    chosen = public_data() if data is None else data
    return PublicGradients(model, FlatParameters(model), chosen, batch_size, 7, **settings)  # type: ignore[arg-type]


def naive_gradient(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The mean of all records' gradients, one backward pass each."""
    return naive.naive_gradient(model, x, targets, SideInformation()).float()


class Snapshot:
    """Everything that a public computation must leave alone."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for tensor in model.parameters():
            tensor.grad = torch.full_like(tensor, 3.0)
        self.state = torch.get_rng_state()
        self.training = model.training

    def check(self) -> None:
        assert all(torch.equal(tensor, self.values[name]) for name, tensor in self.model.state_dict().items())
        assert all(bool((tensor.grad == 3.0).all()) for tensor in self.model.parameters() if tensor.grad is not None)
        assert all(tensor.grad is not None for tensor in self.model.parameters())
        assert torch.equal(torch.get_rng_state(), self.state)
        assert self.model.training == self.training
