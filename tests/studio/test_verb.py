"""``privmix studio``: the verb starts the server it was asked for, and says what is missing."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="serves the studio; in privmix[studio]")
pytest.importorskip("uvicorn", reason="serves the studio; in privmix[studio]")

from privmix.studio import server
from tests.cli.helpers import privmix


def test_it_serves_the_folder_and_prints_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(folder: Path, port: int, *, browser: bool, say: Any) -> None:
        asked.append((folder, port, browser))
        say("http://127.0.0.1:1/f/?token=t")

    monkeypatch.setattr(server, "run", run)
    found = privmix("studio", str(tmp_path), "--no-browser", "--port", "8124")
    assert found.code == 0
    assert asked == [(tmp_path, 8124, False)]
    assert found.out.startswith("studio: http://127.0.0.1:1/f/?token=t\n")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr("privmix.studio.command.find_spec", lambda name: None if name == "uvicorn" else found(name))
    outcome = privmix("studio", "--no-browser")
    assert outcome.code == 2
    assert "pip install '.[studio]'" in outcome.err


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    outcome = privmix("studio", str(tmp_path / "nowhere"), "--no-browser")
    assert outcome.code == 2
    assert "an existing folder" in outcome.err
