"""What is asked of gradients: how they are clipped and computed; importing this takes no time."""

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
# Within these, sums of any number of records, and the noise, stay in float32's range: a sum that overflows would tell
# that one more record was in it.
ClipNorm = Annotated[float, Number(1e-30, 1e25)]


def _strategies() -> Sequence[str]:
    return [AUTO, *behind("privmix.training.gradients.strategies:STRATEGIES")]


@described
@dataclass(frozen=True)
class ExecutionConfig:
    """Settings that change speed and memory, and results only in float32's last digits.

    Strategy ``auto`` is ``closed-form`` where it fits, else the fastest on random numbers in the shape of the data. No
    chunk has more than 4,096 records, as noise has room for the rounding of so many.
    """

    strategy: Annotated[str, Choice(of=_strategies)] = option(
        AUTO,
        f"auto (measured), {', '.join(one['name'] for one in literals_of('privmix.training.gradients'))}: speed only.",
    )
    chunk: Count | None = option(None, "Records computed at once. Default: what fits.", stored=False)
    amp: bool = option(
        False, "bfloat16 forward passes where PyTorch deems them safe; ghost and closed-form stay in float32."
    )
    compile: bool = option(False, "torch.compile.")

    def __post_init__(self) -> None:
        check_fields(self)
