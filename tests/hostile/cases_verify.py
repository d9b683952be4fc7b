"""Folders with more in them, or less, than was certified; all hashes fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.corpus import ALL, World, case, cases, certify, digest

# These look at a release's own files; the others read its certificate and nothing else.
READS = {"verify", "fit", "evaluate", "audit"}


def shard_of(folder: Path) -> Path:
    return sorted((folder / "data").iterdir())[0]


def certify_files(folder: Path) -> None:
    def again(certificate: dict[str, Any]) -> None:
        for item in certificate["files"]:
            item["sha256"] = digest(folder / item["file"])

    certify(folder, again)


@case("release", refused=READS)
def a_column_of_raw_records(world: World, folder: Path) -> None:
    table = pq.read_table(shard_of(folder))
    pq.write_table(table.append_column("raw", pa.array(["a record"] * len(table))), shard_of(folder))
    certify_files(folder)


@case("release", refused=READS)
def a_shard_of_eighty_gigabytes(world: World, folder: Path) -> None:
    """A dictionary of one long text, once a row: pyarrow would unpack it to hundreds of times the rows."""
    table = pq.read_table(shard_of(folder))
    text = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), pa.array(["x" * 2**23]))
    pq.write_table(table.append_column("note", text), shard_of(folder), compression="ZSTD")
    certify_files(folder)


@case("release", refused={"verify"})
def a_linked_folder_of_shards(world: World, folder: Path) -> None:
    hidden = folder.parent / f"{folder.name}-hidden"
    hidden.mkdir()
    (hidden / "train.parquet").write_bytes(shard_of(folder).read_bytes())
    (folder / "data" / "more").symlink_to(hidden)


@case("release", refused=READS)
def a_shard_that_is_a_link(world: World, folder: Path) -> None:
    shard = shard_of(folder)
    elsewhere = folder.parent / f"{folder.name}-shard"
    shard.rename(elsewhere)
    shard.symlink_to(elsewhere)


@case("trained", refused={"verify"})
def a_field_beside_the_models_extractors_own(world: World, folder: Path) -> None:
    certify(folder, lambda certificate: certificate["settings"]["extractor"].update(note="private records"))
    settings = json.loads((folder / "certificate.json").read_text())["settings"]
    model = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(model | {"extractor": settings["extractor"]}, indent=2) + "\n")


NOTE = {"note": "private records"}
cases(
    "release",
    READS,
    a_shard_listed_twice=lambda _, at: certify(at, lambda found: found["files"].insert(1, found["files"][0])),
    rows_without_number=lambda _, at: certify(at, lambda found: found["plan"].update(rows=10**30)),
    features_without_number=lambda _, at: certify(at, lambda found: found["plan"].update(dim=10**12)),
)
cases(
    "release",
    ALL["release"] - {"report", "membership"},
    a_certificate_nested_without_end=lambda _, at: (at / "certificate.json").write_text("[" * 200_000),
    a_field_beside_the_extractors_own=lambda _, at: certify(at, lambda found: found["extractor"].update(NOTE)),
)
cases(
    "trained",
    {"verify"},
    a_picture_beside_the_model=lambda _, at: (at / "confusion-train.png").write_bytes(b"private counts"),
    a_field_beside_the_certificates_own=lambda _, at: certify(at, lambda found: found.update(NOTE)),
)
