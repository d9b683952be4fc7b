"""Folders with more in them, or less, than was certified; all hashes fit."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.cases_models import LONG, linked, replaced, spoil
from tests.hostile.corpus import ALL, Make, World, case, cases, certify, digest

# These look at a release's own files; the others read its certificate and nothing else.
READS = {"verify", "fit", "evaluate", "audit"}


def shard_of(folder: Path) -> Path:
    return sorted((folder / "data").iterdir())[0]


def certify_files(folder: Path) -> None:
    def again(certificate: dict[str, Any]) -> None:
        for item in certificate["files"]:
            item["sha256"] = digest(folder / item["file"])

    certify(folder, again)


def column(name: str, values: Callable[[int], pa.Array], **options: Any) -> Make:
    """Another column, of so many values as there are rows."""

    def make(_: World, folder: Path) -> None:
        table = pq.read_table(shard_of(folder))
        pq.write_table(table.append_column(name, values(len(table))), shard_of(folder), **options)
        certify_files(folder)

    return make


def one_long_text(rows: int) -> pa.Array:
    """A dictionary of one text, once a row: pyarrow would unpack it to hundreds of times the rows."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 2**23]))


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
    a_column_of_raw_records=column("raw", lambda rows: pa.array(["a record"] * rows)),
    a_shard_of_eighty_gigabytes=column("note", one_long_text, compression="ZSTD"),
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
    "release",
    # The model that these two judge is another one.
    ALL["release"] - {"membership", "evaluate"},
    certificate_with_an_endless_number=replaced("certificate.json", '"delta"', f'"more": {LONG}, "delta"'),
    certificate_that_is_a_pipe=spoil("certificate.json", os.mkfifo),
    certificate_that_is_a_link=lambda world, at: linked(world, at, "certificate.json"),
)
cases(
    "release",
    {"collapse", "inversion"},
    inputs_of_absurd_sizes=lambda _, at: certify(at, lambda found: found.update(input_shape=[10**9, 10**9])),
)
cases(
    "trained",
    {"verify"},
    a_picture_beside_the_model=lambda _, at: (at / "confusion-train.png").write_bytes(b"private counts"),
    a_field_beside_the_certificates_own=lambda _, at: certify(at, lambda found: found.update(NOTE)),
)
