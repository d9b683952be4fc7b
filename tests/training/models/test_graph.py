"""Networks as lists of operations: the same numbers as the module, and nothing but pure operations."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput
from privmix.training.models.graph import MOST_VALUES, Graph, graph_bytes, written
from privmix.training.models.graph_ops import KNOWN, Operation


class Small(nn.Module):
    """Convolution, norm, a table that is not saved, a constant, and shapes by the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4 * 36, 3)
        self.register_buffer("table", torch.rand(4, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.norm(self.convolution(x)), inplace=True) * self.table
        hidden += torch.tensor([0.5])
        return self.head(hidden.view(x.size(0), -1))


class Attending(nn.Module):
    """Attention over rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x[:, 0]).mean(1))


class Recurrent(nn.Module):
    """An LSTM over rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(8, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x[:, 0])[0][:, -1])


def made_again(module: nn.Module, shape: tuple[int, ...]) -> tuple[Graph, nn.Module]:
    said, constants = written(module, shape)
    owner = nn.Module()
    graph = Graph(graph_bytes(said), owner)
    state = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    owner.load_state_dict({**state, **constants})
    return graph, owner


@pytest.mark.parametrize("kind", [Small, Attending, Recurrent])
def test_same_numbers_for_any_number_of_records(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    graph, _ = made_again(module, (1, 8, 8))
    for count in (1, 2, 7):
        x = torch.rand(count, 1, 8, 8)
        assert torch.allclose(graph.computed(x), module(x), atol=1e-6)


def test_writing_leaves_the_module_as_it_was() -> None:
    module = Small().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.get_rng_state()
    written(module, (1, 8, 8))
    assert module.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-9 * torch.randn(2)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.sum(0)
        return x


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x


class Asserting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._assert_async((x < 2).all(), "a record is too large")
        return x


@pytest.mark.parametrize(
    ("layer", "what"),
    [
        (Noisy(), "layer 1 of the model: got 'Noisy'.*random"),
        (Counting(), "layer 1 of the model: got 'Counting'.*1.seen"),
        (Branching(), "the same operations for every input"),
        (Asserting(), "Asserting"),
    ],
)
def test_what_is_no_list_of_pure_operations_is_refused_by_its_layer(layer: nn.Module, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        written(nn.Sequential(nn.Linear(2, 2), layer), (2,))


def test_operations_are_pure() -> None:
    # Of every name that is known: none that writes into its inputs, and none that reads memory nobody wrote.
    for name in KNOWN:
        packet = getattr(torch.ops.aten, name, None)
        for overload in [] if packet is None else packet.overloads():
            found = getattr(packet, overload)
            if found._schema.is_mutable:
                with pytest.raises(InvalidInput):
                    Operation(f"aten.{name}.{overload}")
        assert not name.startswith(("empty", "new_empty", "rand", "bernoulli", "set_", "as_strided"))


@pytest.mark.parametrize(
    "name",
    ["aten.randn.default", "aten.add_.Tensor", "aten.empty.memory_format", "op.__import__", "os.system", "aten..x"],
)
def test_other_operations_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="operation of the network"):
        Operation(name)


def test_dropout_is_allowed_where_it_drops_nothing() -> None:
    drop = Operation("aten.dropout.default")
    x = torch.ones(100)
    assert torch.equal(drop(x, 0.5, False), x)
    with pytest.raises(InvalidInput):
        drop(x, 0.5, True)


def broken(change: Any) -> bytes:
    said, _ = written(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), (2,))
    change(said)
    return graph_bytes(said)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["steps"].insert(0, ["aten.randn.default", [[2]], {}]),
        lambda said: said["steps"][1][1].__setitem__(0, "%1"),
        lambda said: said["steps"][1][1].__setitem__(0, "w:module.none"),
        lambda said: said["steps"][1][1].__setitem__(0, "s:../../etc"),
        lambda said: said["arrays"].__setitem__("module.__class__.x", ["object", [1], "b"]),
        lambda said: said["arrays"].__setitem__("other.x", ["float32", [1], "b"]),
        lambda said: said.__setitem__("more", 1),
        lambda said: said.__setitem__("schema_version", 2),
        lambda said: said.__setitem__("output", "%9"),
    ],
)
def test_a_strangers_file_is_checked(change: Any) -> None:
    with pytest.raises(InvalidInput):
        Graph(broken(change), nn.Module())


def test_a_file_has_one_form() -> None:
    said, _ = written(nn.Linear(2, 2), (2,))
    with pytest.raises(InvalidInput, match="another form"):
        Graph(json.dumps(said).encode(), nn.Module())


def test_a_step_that_would_take_all_memory_is_found_without_memory() -> None:
    side = int(MOST_VALUES**0.5) + 1

    def large(said: dict[str, Any]) -> None:
        said["steps"] = [["aten.zeros.default", [[side, side]], {}]]
        said["output"] = "%0"

    with torch.device("meta"):
        graph = Graph(broken(large), nn.Module())
        with pytest.raises(InvalidInput, match="numbers"):
            graph.measured(torch.empty(1, 2))


def test_sizes_stay_numbers_of_64_bits() -> None:
    times = Operation("op.mul")
    assert times(3, 4) == 12
    with pytest.raises(InvalidInput, match="64 bits"):
        times(2**40, 2**40)
    with pytest.raises(InvalidInput, match="whole numbers"):
        times(torch.ones(2), 3)
