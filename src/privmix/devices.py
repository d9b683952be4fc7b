"""The device that torch computes on, chosen by name. Every layer may use this module."""

from __future__ import annotations

from privmix.errors import InvalidInput
from privmix.packages import torch


def chosen_device(name: str | torch.device | None = "auto") -> torch.device:
    """Return the device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"auto"`` and None for CUDA where available."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        device = torch.device(("cuda" if count else "cpu") if name in (None, "auto") else name)
    except (RuntimeError, TypeError):
        raise InvalidInput("device", name, "cpu, cuda or auto") from None
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput("device", name, "cpu, cuda or auto")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise InvalidInput("device", str(name), f"cpu, auto, or one of the {count} CUDA devices of this machine")
    return device
