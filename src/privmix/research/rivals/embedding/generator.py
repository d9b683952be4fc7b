"""Rows from class embeddings: samples of a small generator network that is fitted to what was released.

After Harder, Adamczewski and Park (2021): the generator's own class embeddings approach the released ones. It sees
nothing else, so fitting it, and drawing rows from it, is post-processing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from privmix.optimisers import Adam
from privmix.progress import Progress
from privmix.research.rivals.embedding.plan import EmbeddingPlan
from privmix.research.rivals.embedding.released import ClassEmbeddings

if TYPE_CHECKING:
    import torch

# As published: random code and hidden layers, Adam from 0.01, a tenth less after each of ten stretches.
_CODE: Final = 5
_HIDDEN: Final = (200, 200)
_RATE: Final = 0.01
_FALL: Final = 0.9
_STRETCHES: Final = 10
_STEPS: Final = 300
# Samples a step: several of each class, and enough for stable layer statistics.
_LEAST_BATCH: Final = 200
_OF_A_CLASS: Final = 4
_SAMPLED_AT_ONCE: Final = 4096


def sample_rows(
    found: ClassEmbeddings, plan: EmbeddingPlan, seed: int, progress: Progress
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fit a generator to released embeddings and draw x (rows, d) and y (rows, K) one-hot from it; float32."""
    # `seed` needs no secret.
    import torch

    with torch.random.fork_rng(devices=[]):
        # Layers draw their first weights from the global generator alone; the fork puts the caller's back.
        torch.manual_seed(seed)
        network = _fitted(found, plan, progress)
        rng = np.random.default_rng(seed)
        sizes = found.class_sizes()
        labels = rng.choice(len(sizes), size=plan.rows, p=sizes / sizes.sum())
        x = np.empty((plan.rows, plan.dim), np.float32)
        with torch.no_grad():
            for start in range(0, plan.rows, _SAMPLED_AT_ONCE):
                part = labels[start : start + _SAMPLED_AT_ONCE]
                x[start : start + len(part)] = _samples(network, torch.from_numpy(part), plan).numpy()
    x *= np.float32(plan.clip_norm)
    return x, np.eye(plan.num_classes, dtype=np.float32)[labels]


def _samples(network: torch.nn.Module, labels: torch.Tensor, plan: EmbeddingPlan) -> torch.Tensor:
    """(b, d) samples of classes ``labels``, in clipping bounds, blurred by what the kernel does not see."""
    import torch

    codes = torch.cat([torch.randn(len(labels), _CODE), torch.nn.functional.one_hot(labels, plan.num_classes)], 1)
    made: torch.Tensor = network(codes)
    # As records are: clipped. Features far outside of the ball may look like those of records inside.
    made = made / made.norm(dim=1, keepdim=True).clamp(min=1.0)
    return made + torch.randn(made.shape) * (plan.blur / plan.clip_norm)


def _fitted(found: ClassEmbeddings, plan: EmbeddingPlan, progress: Progress) -> torch.nn.Module:
    import torch

    classes = plan.num_classes
    layers: list[torch.nn.Module] = []
    width = _CODE + classes
    for hidden in _HIDDEN:
        layers += [torch.nn.Linear(width, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU()]
        width = hidden
    network = torch.nn.Sequential(*layers, torch.nn.Linear(width, plan.dim))
    wanted = {name: torch.from_numpy(sums / np.float32(found.records)) for name, sums in found.sums.items()}
    each = max(_OF_A_CLASS, -(-_LEAST_BATCH // classes))
    labels = torch.arange(classes).repeat_interleave(each)
    weights = torch.from_numpy((found.class_sizes() / found.records / each).astype(np.float32)).repeat_interleave(each)
    one_hot = torch.nn.functional.one_hot(labels, classes) * weights[:, None]
    optimiser = Adam(network.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, max(1, _STEPS // _STRETCHES), _FALL)
    for step in range(_STEPS):
        made = found.map.torch_features(_samples(network, labels, plan))
        loss = sum(((made[name].T @ one_hot - wanted[name]) ** 2).sum() for name in wanted)
        optimiser.zero_grad()
        # Embeddings of n records are small numbers; so are their squares.
        (loss * classes).backward()  # type: ignore[union-attr]
        optimiser.step()
        schedule.step()
        progress("generator", step + 1, _STEPS)
    # Layer statistics of the last steps would be those of another network: with fixed ones, samples don't depend on
    # who else is drawn.
    return network.eval()
