"""A few records of persons, in every format that says whose they are."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq

from tests.data.helpers import png

CLASSES: Final = ["well", "ill"]
NAMES: Final = ("a", "b", "c")
PERSONS, RECORDS = 30, 91
# Stand in private rows; nothing may show them.
SECRET: Final = "ZZ-PATIENT-"
# Hashes that stand in keys may hold any digits, but not these words.
BUDGET: Final[dict[str, Any]] = {"epsilon": 30.0, "delta": 1e-3, "classes": CLASSES, "records": PERSONS}
MOMENTS: Final[dict[str, Any]] = {**BUDGET, "design": "moments", "rows": 20, "features": "identity", "clip_norm": 2.0}


def frame(more: Iterable[int] = (), persons: int = PERSONS, records: int = RECORDS) -> pandas.DataFrame:
    """Records of persons; ``more`` are numbers of records of further ones, who stand among the others."""
    rng = np.random.default_rng(0)
    # Numbers that float32 and every text hold exactly.
    y = rng.integers(0, 2, records)
    x = np.round(64 * (rng.normal(0, 0.2, (records, 3)) + y[:, None])) / 64
    whose = np.concatenate([np.arange(persons), rng.integers(0, persons, records - persons)])
    found = pandas.DataFrame(x, columns=list(NAMES))
    found["who"] = [f"{SECRET}{number}" for number in rng.permutation(whose)]
    found["label"] = [CLASSES[label] for label in y]
    for number, count in enumerate(more):
        own = found.iloc[:1].loc[[0] * count].assign(who=f"{SECRET}more-{number}")
        found = pandas.concat([found.iloc[: count % 7], own, found.iloc[count % 7 :]], ignore_index=True)
    return found


def given(kind: str, folder: Path, data: pandas.DataFrame) -> tuple[Any, dict[str, Any]]:
    """The same records as a format holds them, and what is said of them."""
    folder.mkdir(exist_ok=True)
    person: dict[str, Any] = {"person": "who"}
    x = data[list(NAMES)].to_numpy(np.float32)
    y = np.array([CLASSES.index(label) for label in data["label"]])
    if kind == "csv":
        data.to_csv(folder / "d.csv", index=False)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pandas(data, preserve_index=False), folder / "d.parquet")
    elif kind == "jsonl":
        lines = [json.dumps(row) + "\n" for row in data.to_dict("records")]
        (folder / "d.jsonl").write_text("".join(lines))
        person["columns"] = list(NAMES)
    elif kind == "npz":
        np.savez(folder / "d.npz", x=x, y=y, who=data["who"].to_numpy(str), classes=np.array(CLASSES))
    elif kind == "pandas":
        return data, person
    elif kind == "table":
        return pa.Table.from_pandas(data, preserve_index=False), person
    elif kind == "polars":
        import polars

        return polars.from_pandas(data), person
    elif kind == "datasets":
        import datasets

        return datasets.Dataset.from_pandas(data, preserve_index=False), person
    else:
        return (x, data["label"].tolist()), {"person": data["who"].to_numpy()}
    return str(folder / f"d.{kind}"), person


def images(folder: Path, data: pandas.DataFrame) -> Path:
    """A folder of images whose names say whose they are, and a list that does, beside it; returns the list."""
    lines = ["file_name,person"]
    for number, row in enumerate(data.itertuples()):
        name = f"{row.who}_{number:03}.png"
        path = folder / str(row.label) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (6, 6), dtype=np.uint8)
        path.write_bytes(png(pixels))
        lines.append(f"{name},{row.who}")
    listed = folder.with_name(f"{folder.name}-persons.csv")
    listed.write_text("\n".join(lines) + "\n")
    return listed


KINDS: Final = ("csv", "parquet", "jsonl", "npz", "pandas", "polars", "table", "datasets", "arrays")
