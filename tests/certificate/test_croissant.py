"""Croissant metadata: valid by MLCommons' own reader, and the same for whoever has the certificate."""

import json
from collections.abc import Callable
from pathlib import Path

import mlcroissant
import numpy as np
import pytest
from safetensors import safe_open

from privmix.certificate.croissant import CROISSANT_FILE, croissant
from privmix.errors import PrivmixError
from privmix.releases.folder import file_hash, load_release
from privmix.releases.verify import verify_release
from tests.releases.test_folder import write

# What nobody but the publisher knows.
LEFT_OUT = ("citeAs", "datePublished", "license")


@pytest.mark.parametrize("design", ["poisson", "moments", "classwise"])
def test_mlcroissant_accepts_it_and_reads_the_rows(design: str, tmp_path: Path) -> None:
    certificate = write(tmp_path / "REL", design=design, rows=300)
    dataset = mlcroissant.Dataset(tmp_path / "REL" / CROISSANT_FILE)
    issues = dataset.metadata.ctx.issues
    assert not issues.errors
    assert len(issues.warnings) == len(LEFT_OUT)
    assert all(any(name in warning for name in LEFT_OUT) for warning in issues.warnings)
    assert str(dataset.metadata.ctx.conforms_to.value).endswith("/1.1")
    rows = list(dataset.records("rows"))
    released = load_release(tmp_path / "REL")
    np.testing.assert_array_equal(np.array([row["rows/x"] for row in rows], np.float32), released.x)
    np.testing.assert_array_equal(np.array([row["rows/y"] for row in rows], np.float32), released.y)
    named = {item.id: item.sha256 for item in dataset.metadata.file_objects}
    assert named.pop("certificate.json") == file_hash(tmp_path / "REL" / "certificate.json")
    assert named == {item["file"]: item["sha256"] for item in certificate["files"]}


def test_it_follows_from_the_certificate(tmp_path: Path) -> None:
    write(tmp_path / "REL", rows=300)
    path = tmp_path / "REL" / "certificate.json"
    made = (tmp_path / "REL" / CROISSANT_FILE).read_bytes()
    assert made == croissant(json.loads(path.read_text()), file_hash(path))
    content = json.loads(made)
    # This one came from a seed.
    assert content["rai:personalSensitiveInformation"][0].startswith("Not protected")
    assert "license" not in content
    write(tmp_path / "SECRET", seed=None, rows=300)
    secret = json.loads((tmp_path / "SECRET" / CROISSANT_FILE).read_text())
    assert "epsilon at most 4 at delta 1e-05" in secret["rai:personalSensitiveInformation"][0]
    assert [field["arrayShape"] for field in content["recordSet"][0]["field"]] == ["7", "3"]


def test_released_arrays_are_described_and_older_folders_without_them_verify(tmp_path: Path) -> None:
    write(tmp_path / "REL", design="moments", rows=300)
    path, place = tmp_path / "REL" / "certificate.json", tmp_path / "REL" / CROISSANT_FILE
    described = {
        item["name"]: item["description"]
        for item in json.loads(place.read_text())["distribution"]
        if "description" in item and item["@type"] == "cr:FileObject"
    }
    assert list(described) == ["moments.safetensors"]
    with safe_open(tmp_path / "REL" / "moments.safetensors", "numpy") as file:
        assert all(name in described["moments.safetensors"] for name in file.keys())  # noqa: SIM118 (a file, not a mapping)
    place.write_bytes(croissant(json.loads(path.read_text()), file_hash(path), mixes=False))
    verify_release(tmp_path / "REL")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(b"Not protected", b"Protected")),
        lambda path: path.write_bytes(path.read_bytes() + b" " * 2**22),
        lambda path: path.unlink(),
        lambda path: (path.rename(path.parent.parent / "c"), path.symlink_to(path.parent.parent / "c")),
    ],
    ids=["edited", "huge", "missing", "linked"],
)
def test_verify_compares_it(change: Callable[[Path], object], tmp_path: Path) -> None:
    write(tmp_path / "REL", rows=300)
    verify_release(tmp_path / "REL")
    change(tmp_path / "REL" / CROISSANT_FILE)
    with pytest.raises(PrivmixError, match=r"croissant\.json"):
        verify_release(tmp_path / "REL")
