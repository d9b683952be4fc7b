"""Norms of parameters that no layer applies: class tokens, tables of positions, scales of channels.

Such a parameter is used in its module's own forward pass. For one pass it is replaced by as many equal copies as it is
used times: one a row (a record's view) for tokens and tables, one a row and position for scales. The gradients by these
copies are what each use adds, and their sums are the records' gradients.
"""

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
    """(D,) beside (rows, T, D) tokens, or beside (rows, D, H, W) images whose channels are put last."""
    return tuple(given.shape) if given.dim() == 3 else (len(given), *given.shape[2:], given.shape[1])


# Names as models of the transformers library have them. What is wrong for another model of the same names is found by
# the comparison with single gradients that every model goes through.
EXPANSIONS: Final[dict[str, Expansion]] = {
    "cls_token": _by_row,
    "distillation_token": _by_row,
    "position_embeddings": _by_row,
    "layer_scale_parameter": _by_position,
    "lambda1": _by_position,
}


@dataclass(frozen=True)
class Shares:
    """What the records' gradients by one parameter are, (b,) float64 each; by view (b K,) where views are told apart.

    Attributes:
        squares: squared norms.
        view_squares: those of single views' shares.
        terms: sums of the norms of what each use adds.
    """

    squares: Tensor
    view_squares: Tensor
    terms: Tensor


def shares(gradient: Tensor, parameter: Tensor, records: int) -> Shares:
    """From the gradient by all copies.

    Args:
        gradient: rows, positions (none for tokens), then the parameter's own axes.
        parameter: as it is in the module; its first axis is 1 where copies are by row.
        records: b; rows are theirs, view by view.
    """
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
    """The copies of a module's parameters for one pass, by name; ``anchor`` is a zero that gradients are taken by."""
    found = {}
    for name in sorted(wanted):
        parameter = getattr(module, name)
        found[name] = parameter.expand(EXPANSIONS[name](parameter, given)) + anchor
    return found


def put(module: nn.Module, copies: dict[str, Tensor]) -> None:
    """Let the module's forward pass see the copies: an object's own attributes come before its parameters."""
    vars(module).update(copies)


def take_back(module: nn.Module, names: frozenset[str]) -> None:
    """Undo :func:`put`."""
    held: dict[str, Any] = vars(module)
    for name in names:
        held.pop(name, None)
