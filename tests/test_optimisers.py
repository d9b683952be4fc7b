"""Optimisers that are made at once move weights as torch's own do."""

import pytest
import torch

from privmix.optimisers import Adam, Sgd

KINDS = [
    (Sgd, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (Adam, torch.optim.Adam, {"lr": 0.1, "weight_decay": 0.01}),
]


@pytest.mark.parametrize(("own", "torchs", "settings"), KINDS, ids=["sgd", "adam"])
def test_to_the_last_bit_also_after_its_state_was_kept(own: type, torchs: type, settings: dict[str, float]) -> None:
    ends = []
    for kind in (own, torchs):
        generator = torch.Generator().manual_seed(0)
        weights = torch.nn.Parameter(torch.randn(50, generator=generator))
        optimiser = kind([weights], **settings)
        for _ in range(5):
            weights.grad = torch.randn(50, generator=generator)
            optimiser.step()
            optimiser.zero_grad()
            assert weights.grad is None
            kept = optimiser.state_dict()
            optimiser = kind([weights], **settings)
            optimiser.load_state_dict(kept)
        assert not weights.grad_fn
        ends.append(weights.detach())
    assert torch.equal(*ends)
