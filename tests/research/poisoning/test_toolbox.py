"""The adversarial robustness toolbox is tied to a scene's seed, kept quiet and asked for by its extra."""

import importlib
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from privmix.research.poisoning.toolbox import toolbox
from tests.research.poisoning.scenes import needs_toolbox


def test_the_callers_logging_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ART is imported it configures logging, and Python closes all handlers for whoever does that."""
    its, other = {"loggers": {"art": {}}}, {"loggers": {"caller": {}}}
    code = f"from logging import config\nfor one in ({its}, {other}):\n    config.dictConfig(one)\n"
    (tmp_path / "art.py").write_text(code)
    configured: list[object] = []
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("privmix.research.poisoning.toolbox.version", lambda name: "1")
    monkeypatch.setattr("logging.config.dictConfig", configured.append)
    monkeypatch.delitem(sys.modules, "art", raising=False)
    with toolbox(0):
        assert configured == [other]
    importlib.reload(sys.modules["art"])
    assert configured == [other, its, other]
    del sys.modules["art"]


def test_global_generators_start_from_the_seed_and_are_restored(capsys: pytest.CaptureFixture[str]) -> None:
    needs_toolbox()

    def draws() -> tuple[float, float, float]:
        return float(np.random.random()), random.random(), float(torch.rand(1))  # noqa: NPY002

    def inside(seed: int) -> tuple[float, float, float]:
        with toolbox(seed):
            print("chatter")
            return draws()

    def seeded() -> None:
        np.random.seed(5)  # noqa: NPY002
        random.seed(5)
        torch.manual_seed(5)

    seeded()
    expected = draws()
    seeded()
    assert inside(2**61) == inside(2**61) != inside(1)
    with pytest.raises(RuntimeError, match="stop"), toolbox(3):
        raise RuntimeError("stop")
    assert draws() == expected
    assert capsys.readouterr().out == ""
