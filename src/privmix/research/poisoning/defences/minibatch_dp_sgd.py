"""The method that some papers call DP-SGD: noise on the clipped gradient of a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from privmix.fields import Amount
from privmix.research.poisoning.base import DEFENCES, DefenceAugmentation


@DEFENCES.register
@dataclass(frozen=True)
class MiniBatchDpSgd(DefenceAugmentation):
    """The batch's gradient is clipped to norm 1, and Gaussian noise added (Borgnia et al. 2021, A.1.3, as "DP-SGD")."""

    # NOT differentially private: a batch's clipped gradient bounds no record's influence, and batch norm mixes
    # records. `deviation` per coordinate of the gradient; the paper tries 0.0001, 0.001 and 0.01.
    deviation: Amount = 0.01
    name: ClassVar[str] = "minibatch-dp-sgd"
    about: ClassVar[str] = "noise on the clipped gradient of the batch; NOT private (Borgnia et al. 2021)"

    def change_gradients(self, parameters: Sequence[nn.Parameter], generator: torch.Generator) -> None:
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for one in parameters:
            if one.grad is not None:
                noise = torch.randn(one.shape, generator=generator, device=one.device)
                one.grad.add_(noise, alpha=self.deviation)
