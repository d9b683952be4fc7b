"""The device that torch computes on, chosen by name, and products in full float32. Every layer may use this module."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

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


# GPUs round factors to ten bits (TF32), some processors to seven (bfloat16). Features are then a thousandth off, and
# clipped gradients longer than their bound.


_WHOLE: Final = "ieee"
_KINDS: Final = (
    ("cuda", "matmul"),
    ("cudnn", "conv"),
    ("cudnn", "rnn"),
    ("mkldnn", "matmul"),
    ("mkldnn", "conv"),
    ("mkldnn", "rnn"),
)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Switch off TF32, bfloat16 and autocast for the block, also nested and in several threads."""
    # The caller's choice is back after the last block.
    with torch.autocast(device.type, enabled=False):
        _CHOICE.suspend()
        try:
            yield
        finally:
            _CHOICE.resume()


class _Choice:
    """The precision that the caller chose: torch keeps it for the whole process."""

    def __init__(self) -> None:
        self._lock, self._blocks = threading.Lock(), 0
        self._before: tuple[list[Any], list[str]] = [], []

    def suspend(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                older, kinds = [_known(get) for get, _ in _OLDER], [one.fp32_precision for one in _kinds()]
                self._before = older, kinds
                whole = [None if found is None else best for found, best in zip(older, _OLD_WHOLE, strict=True)]
                _choose(whole, [_WHOLE] * len(kinds))

    def resume(self) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                _choose(*self._before)


_CHOICE: Final = _Choice()
_OLD_WHOLE: Final = ("highest", False)
_OLDER: Final[tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...]] = (
    (lambda: torch.get_float32_matmul_precision(), lambda value: torch.set_float32_matmul_precision(value)),
    (lambda: torch.backends.cudnn.allow_tf32, lambda value: setattr(torch.backends.cudnn, "allow_tf32", value)),
)


def _known(get: Callable[[], Any]) -> Any:
    """Return a choice by torch's older names; None for newer names that the older ones cannot express."""
    try:
        return get()
    except RuntimeError:
        return None


def _choose(older: list[Any], kinds: list[str]) -> None:
    for (_, choose), value in zip(_OLDER, older, strict=True):
        if value is not None:
            choose(value)
    for one, value in zip(_kinds(), kinds, strict=True):
        # A kind without its own choice follows the choice for all of them, and continues to do so.
        one.fp32_precision = "none"
        if one.fp32_precision != value:
            one.fp32_precision = value


def _kinds() -> list[Any]:
    """Return settings of torch 2.9 and later with a choice for each kind of operation; empty before torch 2.9."""
    backends: Any = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):
        return []
    return [getattr(getattr(backends, backend), kind) for backend, kind in _KINDS]
