"""One name for a device in every command."""

import pytest

from privmix.devices import chosen_device
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
