"""Norms of parameters that no layer applies: class tokens, tables of positions, scales of channels."""
# For one pass such a parameter is replaced by equal copies, one for each use. Tokens and tables have one a row (a
# record's view), scales one a row and position. Gradients by copies sum to the records' gradients.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

# (parameter, the module's first input) -> shape of the copies: rows, positions, then the parameter's own.
Expansion = Callable[[Tensor, Tensor], tuple[int, ...]]


def _by_row(parameter: Tensor, given: Tensor) -> tuple[int, ...]:
    """(1, ...) -> (rows, ...)."""
    return (len(given), *parameter.shape[1:])


def _by_position(parameter: Tensor, given: Tensor) -> tuple[int, ...]:
    """(D,) for (rows, T, D) tokens, or for (rows, D, H, W) images whose channels are put last."""
    return tuple(given.shape) if given.dim() == 3 else (len(given), *given.shape[2:], given.shape[1])


# Names as models of the transformers library have them. Errors for another model of the same names are found by the
# comparison with single gradients that every model goes through.
EXPANSIONS: Final[dict[str, Expansion]] = {
    "cls_token": _by_row,
    "distillation_token": _by_row,
    "position_embeddings": _by_row,
    "layer_scale_parameter": _by_position,
    "lambda1": _by_position,
}


@dataclass(frozen=True)
class Shares:
    """(b,) squared norms of records' gradients by one parameter, of single views' shares, and sums of term norms."""

    squares: Tensor
    view_squares: Tensor
    terms: Tensor


def shares(gradient: Tensor, parameter: Tensor, records: int) -> Shares:
    """Shares from the gradient by all copies: rows, positions (none for tokens), then the parameter's own axes."""
    rows = len(gradient)
    # (rows, positions, numbers of the parameter)
    uses = gradient.reshape(rows, -1, parameter.numel())
    by_view = uses.sum(1)
    by_record = by_view.view(records, -1, parameter.numel()).sum(1)
    return Shares(_norms(by_record).square(), _norms(by_view).square(), _norms(uses).reshape(records, -1).sum(1))


def _norms(x: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)
    return found


def expanded(module: nn.Module, wanted: frozenset[str], given: Tensor, anchor: Tensor) -> dict[str, Tensor]:
    """Return copies of a module's parameters for one pass, by name; gradients are taken by the zero ``anchor``."""
    found = {}
    for name in sorted(wanted):
        parameter = getattr(module, name)
        found[name] = parameter.expand(EXPANSIONS[name](parameter, given)) + anchor
    return found


def put(module: nn.Module, copies: dict[str, Tensor]) -> None:
    """Let the module's forward pass see the copies: an object's own attributes come before its parameters."""
    vars(module).update(copies)


def take_back(module: nn.Module, names: frozenset[str]) -> None:
    held: dict[str, Any] = vars(module)
    for name in names:
        held.pop(name, None)
