"""Machines that do not see what work needs are found before it begins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from privmix.engine.cluster import check_places, lacks
from privmix.engine.ray import Cluster
from privmix.errors import InvalidInput
from tests.refusals import refuses

ASKED = "privmix.engine.cluster._asked"


def test_a_machine_sees_the_word_in_a_file_of_its_own_user(tmp_path: Path) -> None:
    place, here = tmp_path / "word", str(tmp_path)
    assert lacks(str(place), "abc", (), here) == "folder"
    place.write_text("abd")
    place.chmod(0o600)
    assert lacks(str(place), "abc", (), here) == "folder"
    assert lacks(str(place), "abd", (), here) == ""
    place.chmod(0o644)
    assert lacks(str(place), "abd", (), here) == "folder"


def test_a_machine_sees_the_files_also_by_relative_names(tmp_path: Path) -> None:
    place, here = tmp_path / "word", str(tmp_path)
    place.write_text("abc")
    place.chmod(0o600)
    (tmp_path / "d.csv").write_text("secret")
    assert lacks(str(place), "abc", (Path("d.csv"), tmp_path / "d.csv"), here) == ""
    assert lacks(str(place), "abc", (tmp_path / "d.csv", Path("e.csv")), here) == "data"


@pytest.mark.parametrize(("said", "field"), [("folder", "out, store"), ("data", "data")])
def test_one_machine_that_lacks_something_is_enough(
    tmp_path: Path, said: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def asked(place: str, word: str, *_: Any) -> list[str]:
        seen.append((Path(place).read_text() == word, os.stat(place).st_mode & 0o777))
        return ["", said, ""]

    monkeypatch.setattr(ASKED, asked)
    with pytest.raises(InvalidInput) as refused:
        check_places(tmp_path, (tmp_path / "d.csv",))
    assert refused.value.field == field
    assert seen == [(True, 0o600)]
    assert not list(tmp_path.iterdir())


def test_every_machine_of_a_cluster_is_asked(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    asked: list[int] = []
    original = ray.get
    monkeypatch.setattr(
        ray,
        "get",
        lambda refs, **more: (asked.append(len(refs) if isinstance(refs, list) else 1), original(refs, **more))[1],
    )
    with Cluster().open():
        check_places(tmp_path, ())
        assert asked[-1] == 2
        with refuses("data"):
            check_places(tmp_path, (tmp_path / "nothing",))
    assert not list(tmp_path.iterdir())
