"""Export a trained network for programs with torch and without privmix: its weights, or the network in one file."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.training.models.base import quiet_torch
from privmix.training.models.own import OwnNetwork
from privmix.training.trained import TrainedModel, shaped

# A batch that the network is traced with, and another one, which it must be right for.
_TRACED: Final = 2
_TRIED: Final = 5
_TOLERANCE: Final = 1e-4


def weights(model: TrainedModel) -> bytes:
    """Return the weights as safetensors by ``state_dict`` names, for ``load_state_dict(load_file(FILE))``."""
    network = model.network
    state = network.module.state_dict() if isinstance(network, OwnNetwork) else network.state_dict()
    return bytes(dump_tensors({name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}))


def program(model: TrainedModel) -> bytes:
    """Bytes for ``torch.export.load(FILE).module()(x)``; raise where the forward pass is no fixed list of steps."""
    network, example = _ready(model, _TRACED)
    stream = io.BytesIO()
    try:
        with quiet_torch(), torch.no_grad():
            found = torch.export.export(
                network, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False
            )
            torch.export.save(found, stream)
            stream.seek(0)
            _check(torch.export.load(stream).module(), model)
    except InvalidInput:
        raise
    except Exception as error:
        raise _refused(".pt2", ".safetensors", error) from None
    return stream.getvalue()


def script(model: TrainedModel) -> bytes:
    """Bytes for ``torch.jit.load(FILE)(x)``; raise where tracing fails for batches of another size."""
    network, example = _ready(model, _TRACED)
    stream = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # torch calls the format deprecated; a user who asks for it has programs that read it.
            warnings.simplefilter("ignore")
            jit: Any = torch.jit
            jit.save(jit.trace(network, example, check_trace=False), stream)
            stream.seek(0)
            _check(jit.load(stream), model)
    except InvalidInput:
        raise
    except Exception as error:
        raise _refused(".pt", ".pt2", error) from None
    return stream.getvalue()


FORMS: Final[Mapping[str, Callable[[TrainedModel], bytes]]] = MappingProxyType(
    {".pt2": program, ".pt": script, ".safetensors": weights}
)
"""Ending of a file -> what makes its bytes."""


def _ready(model: TrainedModel, records: int) -> tuple[nn.Module, Tensor]:
    network = copy.deepcopy(model.network).cpu().eval().requires_grad_(False)
    x = torch.rand(records, model.facts_.dim, generator=torch.Generator().manual_seed(records))
    x = shaped(x, network, model.facts_).clone(memory_format=torch.contiguous_format)
    if not isinstance(network, OwnNetwork):
        return network, x
    # Raises without the module.
    network(x)
    return network.module, network.inputs(x)


def _check(written: Callable[[Tensor], Tensor], model: TrainedModel) -> None:
    """Raise unless what was written gives what the network gives, for a batch of another size, too."""
    network, x = _ready(model, _TRIED)
    wanted, found = network(x), written(x)
    if not torch.allclose(wanted, found, _TOLERANCE, _TOLERANCE):
        raise ValueError("other outputs")


def _refused(ending: str, instead: str, error: Exception) -> InvalidInput:
    why = (str(error).strip().splitlines() or [""])[0][:120]
    return InvalidInput("out", ending, f"{instead}: this network cannot be written so ({type(error).__name__}: {why})")
