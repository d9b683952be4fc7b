"""Products and convolutions of torch in the whole of float32.

Graphics cards round what they multiply to ten bits (TF32) unless they are told not to, convolutions by default. A
network's features are then a thousandth off those of a processor, and clipped gradients longer than their bound.

This module sits beside the floors, so every floor may use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Without TF32 and autocast while the block lasts, whatever the caller's choice was.

    Example:
        >>> with full_precision(torch.device("cpu")):
        ...     torch.backends.cudnn.allow_tf32
        False
    """
    before = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    flags = {"enabled": cudnn.enabled, "benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    with torch.autocast(device.type, enabled=False), cudnn.flags(**flags, allow_tf32=False):
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
