"""One name for a device in every command."""

from __future__ import annotations

import pytest

from privmix.devices import chosen_device
from tests.cli.helpers import privmix, refused
from tests.refusals import refuses


def test_auto_is_the_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [str(chosen_device(name)) for name in (None, "auto", "cuda:1", "cpu")] == ["cuda", "cuda", "cuda:1", "cpu"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert str(chosen_device("auto")) == "cpu"
    for wrong in ("tpu", "meta", "cuda:99", ""):
        with refuses("device"):
            chosen_device(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "synthesise --public x.npz --out OUT",
        "attack poisoning --data x.npz",
        "attack inversion --data x.npz",
    ],
)
def test_commands_refuse_it_alike(line: str) -> None:
    refused(privmix(*line.split(), "--device", "tpu"), "--device: got 'tpu'; allowed: cpu, cuda or auto")
