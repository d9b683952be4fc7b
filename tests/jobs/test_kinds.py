"""What a folder is, by its certificate."""

import json
from pathlib import Path
from typing import Any

import pytest

from privmix.certificate import read_certificate
from privmix.errors import InvalidInput, StorageError
from privmix.jobs.kinds import FITTED, certified_plan, kind_of, read_certified, verify_certified
from privmix.learning.model_io import save_model
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.releases.certificate import read_certificate as read_release
from privmix.releases.folder import load_release
from privmix.training.certificate import read_certificate as read_model
from tests.refusals import refuses
from tests.releases.helpers import make_plan, replant, write_release
from tests.training.runs import config_of, job_of, private


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kinds")
    write_release(root / "release", make_plan(rows=60), seed=None)
    save_model(NoiseAwareRidgeClassifier().fit(load_release(root / "release")), root / FITTED)
    (root / "model").mkdir()
    job_of(config_of()).run(private()).write(root / "model")
    return root


def rewrite(folder: Path, source: Path, **changes: Any) -> None:
    """The certificate of another folder with changes, and its hash."""
    replant(folder, {**json.loads((source / "certificate.json").read_text()), **changes})


def test_every_folder_is_of_one_kind(made: Path) -> None:
    for name in ("release", "model", FITTED):
        assert kind_of(made / name) == name
    assert kind_of(made) is kind_of(made / "none") is None
    with pytest.raises(StorageError, match="certificate"):
        read_certified(made / FITTED)


@pytest.mark.parametrize("name", ["release", "model"])
def test_what_each_kind_can_be_asked(made: Path, name: str) -> None:
    certificate, found = read_certified(made / name), verify_certified(made / name)
    plan = certified_plan(certificate)
    assert (found.kind, found.id) == (certificate.kind, certificate.id) == (name, certificate["id"])
    assert found.recomputed_epsilon <= certificate.epsilon <= (plan.epsilon or 0)
    assert found.files == len(certificate.files) == (1 if name == "model" else len(certificate["files"]))
    assert certificate.plan == plan.to_dict()
    assert certificate == read_certificate(made / name)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(("kind", wrong, "certificate kind") for wrong in ("secret", None, ["model"])),
        ("schema_version", 3, "schema_version"),
        ("id", "x", "certificate id"),
        ("in_ledger", True, "in_ledger"),
        ("in_ledger", "yes", "in_ledger"),
        ("files", None, "files"),
    ],
)
def test_a_certificate_of_no_kind_is_none(made: Path, tmp_path: Path, name: str, value: Any, words: str) -> None:
    rewrite(tmp_path, made / "model", **{name: value})
    with pytest.raises(InvalidInput, match=words):
        kind_of(tmp_path)


def test_one_kind_is_not_read_as_another(made: Path, tmp_path: Path) -> None:
    read_as: dict[str, Any] = {"release": read_release, "model": read_model}
    for name, other in (("release", "model"), ("model", "release")):
        with refuses("certificate kind"):
            read_as[other](made / name)
        # Nor by saying so.
        rewrite(tmp_path, made / name, kind=other)
        assert kind_of(tmp_path) == other
        with refuses("certificate"):
            read_as[other](tmp_path)
