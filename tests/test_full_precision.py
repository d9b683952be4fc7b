"""Whatever a caller chose, nothing is rounded to fewer bits inside, and the choice is back afterwards."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from privmix.devices import full_precision

BACKENDS: Any = torch.backends
KINDS = [
    (BACKENDS.cuda.matmul, "tf32"), (BACKENDS.cudnn.conv, "tf32"), (BACKENDS.cudnn.rnn, "tf32"),
    (BACKENDS.mkldnn.matmul, "bf16"), (BACKENDS.mkldnn.conv, "bf16"), (BACKENDS.mkldnn.rnn, "bf16"),
]  # fmt: skip


def _set(place: Any, value: str) -> Callable[[], None]:
    return lambda: setattr(place, "fp32_precision", value)


CHOICES: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "no tf32": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "all by tf32": _set(BACKENDS, "tf32"),
    "all by bf16": _set(BACKENDS, "bf16"),
    "cudnn": _set(BACKENDS.cudnn, "tf32"),
    **{f"{place.__class__.__name__} {number}": _set(place, value) for number, (place, value) in enumerate(KINDS)},
}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    for place, _ in KINDS:
        place.fp32_precision = "none"
    BACKENDS.fp32_precision = BACKENDS.cudnn.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def chosen() -> list[Any]:
    """By the newer names and the older, which fail where the newer were used."""
    found: list[Any] = [place.fp32_precision for place, _ in KINDS]
    for get in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
        try:
            found.append(get())
        except RuntimeError:
            found.append("fails")
    return found


@pytest.mark.parametrize("choice", CHOICES)
def test_the_whole_of_float32_whatever_was_chosen(choice: str) -> None:
    CHOICES[choice]()
    before = chosen()
    with full_precision(torch.device("cpu")):
        with full_precision(torch.device("cpu")):
            assert {place.fp32_precision for place, _ in KINDS} == {"ieee"}
        assert {place.fp32_precision for place, _ in KINDS} == {"ieee"}
        assert not torch.is_autocast_enabled("cpu")
    assert chosen() == before


def test_who_chose_nothing_of_a_kind_goes_on_to_follow_the_choice_for_all() -> None:
    for value in ("bf16", "ieee"):
        BACKENDS.fp32_precision = value
        with full_precision(torch.device("cpu")):
            pass
        assert BACKENDS.mkldnn.conv.fp32_precision == value


def test_threads_do_not_end_each_others_blocks() -> None:
    torch.set_float32_matmul_precision("high")
    inside, left, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with full_precision(torch.device("cpu")):
            inside.set()
            assert left.wait(60)
            seen.append(BACKENDS.cuda.matmul.fp32_precision)

    thread = threading.Thread(target=other)
    with full_precision(torch.device("cpu")):
        thread.start()
        assert inside.wait(60)
    left.set()
    thread.join()
    assert seen == ["ieee"]
    assert torch.get_float32_matmul_precision() == "high"
