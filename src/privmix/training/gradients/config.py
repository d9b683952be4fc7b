"""Options of gradients: how they are clipped and computed; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from privmix._registry import behind, literals_of
from privmix.fields import Choice, Count, Number, check_fields
from privmix.options import described, option

FLAT: Final = "flat"
AUTOMATIC: Final = "automatic"
CLIPPINGS: Final = (FLAT, AUTOMATIC)
AUTO: Final = "auto"

ClippingKind = Annotated[str, Choice(*CLIPPINGS)]
# Within these, sums of any number of records, and the noise, stay in float32's range: a sum that overflows would reveal
# an extra record in it.
ClipNorm = Annotated[float, Number(1e-30, 1e25)]


def _strategies() -> Sequence[str]:
    return [AUTO, *behind("privmix.training.gradients.strategies:STRATEGIES")]


STRATEGY_HELP: Final = "Strategy for record gradients; changes speed only."
STRATEGIES: Final = ", ".join(["auto (measured)", *(one["name"] for one in literals_of("privmix.training.gradients"))])


@described
@dataclass(frozen=True)
class ExecutionConfig:
    """Settings that change speed and memory, and results only in float32's last digits.

    Strategy ``auto`` is ``closed-form`` where it fits, else the fastest on random numbers in the shape of the data. No
    chunk has more than 4,096 records, as the noise covers the rounding of that many.
    """

    strategy: Annotated[str, Choice(of=_strategies)] = option(AUTO, STRATEGY_HELP, python=True)
    chunk: Count | None = option(None, "Number of records computed at once. Default: as many as fit.", stored=False)
    amp: bool = option(False, "Use bfloat16 in forward passes (not in closed-form).")
    compile: bool = option(False, "Use torch.compile.")

    def __post_init__(self) -> None:
        check_fields(self)
