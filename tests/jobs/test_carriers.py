"""What a file carries beside its records is nowhere in a release, unless its owner declared it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.numpy import save_file

import privmix as pm
from privmix.errors import InvalidInput
from privmix.features.tabular import Tabular

pytestmark = pytest.mark.filterwarnings("ignore:.*(delta|plain numbers)")
SECRET = "Zq7Carrier"
COUNT = 40
X = np.random.default_rng(0).normal(size=(COUNT, 3))
Y = np.array(["no", "yes"] * (COUNT // 2))
FRAME = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(label=Y)
SPEC = {"ward": {"categories": ["north", "south"]}}
WARDS = pandas.DataFrame({"ward": ["north", "south"] * (COUNT // 2), "label": Y})
Made = tuple[Any, dict[str, Any]]


def table(**more: Any) -> pa.Table:
    return pa.table({**{name: X[:, place] for place, name in enumerate("abc")}, "label": Y, **more})


def written(path: Path, content: Any, **options: Any) -> Made:
    """A Parquet file of an Arrow table, a frame or a dataset."""
    pq.write_table(content, path) if isinstance(content, pa.Table) else content.to_parquet(path)
    return path, options


def csv_of(path: Path, header: str, **options: Any) -> Made:
    path.parent.mkdir(exist_ok=True)
    rows = (",".join([*map(str, row), label]) for row, label in zip(X, Y, strict=True))
    path.write_text("\n".join([header, *rows]) + "\n")
    return path, options


def categories(frame: pandas.DataFrame, column: str, *more: str) -> pandas.DataFrame:
    kinds = [*dict.fromkeys(frame[column]), *more]
    return frame.assign(**{column: pandas.Categorical(frame[column], categories=kinds)})


def tabular(data: Any) -> Made:
    return data, {"features": Tabular(SPEC)}


def images(folder: Path, class_: str, name: str) -> Made:
    for place, label in enumerate([*Y[:-1], class_]):
        (folder / label).mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(np.full((4, 4), place, np.uint8))
        info = {"comment": SECRET.encode()} if place else {}
        picture.save(folder / label / f"{name}{place}.gif", **info)
    return folder, {"features": "pixels", "columns": pm.Columns(image_size=4, colour="grey")}


def arrays(path: Path, **more: Any) -> Made:
    np.savez(path, x=X, y=Y, **more)
    return path, {}


def tensors(path: Path) -> Made:
    save_file({"x": X.astype(np.float32), "y": np.arange(COUNT) % 2, SECRET: X}, path, metadata={SECRET: SECRET})
    return path, {}


def hugging_face(names: list[str] | None = None, **more: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    features = {name: datasets.Value("float64") for name in ("a", "b", "c", *more)}
    label = datasets.Value("string") if names is None else datasets.ClassLabel(names=names)
    content = {**{name: X[:, place] for place, name in enumerate("abc")}, **more, "label": Y.tolist()}
    made = datasets.Dataset.from_dict(content, features=datasets.Features(**features, label=label))
    made.info.description = SECRET
    return made


NUMBERS = {"columns": ["a", "b", "c"]}
FIELDS = pa.schema([pa.field(one.name, one.type, metadata={SECRET: SECRET}) for one in table().schema])
CARRIERS: dict[str, Callable[[Path], Made]] = {
    "csv: name of a file": lambda at: csv_of(at / f"{SECRET}.csv", "a,b,c,label"),
    "csv: name of a folder": lambda at: csv_of(at / SECRET / "d.csv", "a,b,c,label"),
    "csv: a column not used": lambda at: csv_of(at / "d.csv", f"a,b,{SECRET},label", columns=["a"]),
    "parquet: metadata": lambda at: written(at / "d.parquet", table().replace_schema_metadata({SECRET: SECRET})),
    "parquet: metadata of columns": lambda at: written(at / "d.parquet", table().cast(FIELDS)),
    "parquet: a column not used": lambda at: written(at / "d.parquet", table(**{SECRET: X[:, 0]}), **NUMBERS),
    "parquet: categories": lambda at: tabular(written(at / "d.parquet", categories(WARDS, "ward", SECRET))[0]),
    "parquet: categories of labels": lambda at: written(at / "d.parquet", categories(FRAME, "label", SECRET)),
    "parquet: a ClassLabel": lambda at: written(at / "d.parquet", hugging_face(["no", "yes", SECRET])),
    "parquet: an index": lambda at: written(
        at / "d.parquet", FRAME.set_index(pandas.Index(range(COUNT), name=SECRET)), **NUMBERS
    ),
    "arrow: metadata": lambda _: (table().replace_schema_metadata({SECRET: SECRET}), {}),
    "arrow: a dictionary": lambda _: tabular(pa.table(categories(WARDS, "ward", SECRET))),
    "pandas: categories": lambda _: tabular(categories(WARDS, "ward", SECRET)),
    "pandas: categories of labels": lambda _: (categories(FRAME, "label", SECRET), {}),
    "pandas: names of index and columns": lambda _: (FRAME.rename_axis(SECRET).rename_axis(SECRET, axis=1), {}),
    "pandas: a column not used": lambda _: (FRAME.assign(**{SECRET: 0.5}), NUMBERS),
    "polars: an Enum": lambda _: tabular(
        polars.from_pandas(WARDS).with_columns(ward=polars.col("ward").cast(polars.Enum(["north", "south", SECRET])))
    ),
    "datasets: description": lambda _: (hugging_face(), {}),
    "datasets: a ClassLabel": lambda _: (hugging_face(["no", "yes", SECRET]), {}),
    "datasets: a feature not used": lambda _: (hugging_face(**{SECRET: X[:, 0]}), NUMBERS),
    "npz: names of members": lambda at: arrays(at / "d.npz", **{SECRET: X}),
    "npz: classes that others are declared for": lambda at: arrays(at / "d.npz", classes=np.array(["no", SECRET])),
    "safetensors: metadata and names": lambda at: tensors(at / "d.safetensors"),
    "images: names of files, comments": lambda at: images(at / "d", "yes", SECRET),
}
RECORD = ["0.5", "1.5", SECRET, "label"]
REFUSED: dict[str, Callable[[Path], Made]] = {
    "csv: a record in place of a header": lambda at: csv_of(at / "d.csv", f"0.5,1.5,{SECRET},no"),
    "parquet: a record in place of a header": lambda at: written(at / "d.parquet", table().rename_columns(RECORD)),
    "pandas: a record in place of a header": lambda _: (FRAME.set_axis(RECORD, axis=1), {}),
    "images: a folder of no declared class": lambda at: images(at / "d", SECRET, "i"),
}
UNDECLARED = (
    "parquet: a ClassLabel",
    "datasets: a ClassLabel",
    "pandas: categories of labels",
    "parquet: categories of labels",
    "images: names of files, comments",
)


def released(made: Made, out: Path, **more: Any) -> None:
    data, options = made
    wishes: dict[str, Any] = {"classes": ["no", "yes"], "features": "identity", "epsilon": 20, "delta": 1e-2}
    pm.release(data, design=pm.designs.Moments(), out=out, **{**wishes, **options, **more})


def texts_of(folder: Path) -> bytes:
    """All bytes of a folder, with what its Parquet files hold unpacked."""
    found = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            found += [file.name.encode(), file.read_bytes()]
        if file.suffix == ".parquet":
            content = pq.read_table(file)
            found += [str(content.schema).encode(), repr(content.schema.metadata).encode()]
            found += [repr(content.to_pydict()).encode()]
    return b"\n".join(found)


@pytest.mark.parametrize("name", CARRIERS)
def test_nothing_that_is_not_declared_is_published(tmp_path: Path, name: str) -> None:
    """Formal guarantee: declared."""
    made = CARRIERS[name](tmp_path)
    released(made, tmp_path / "REL")
    content = texts_of(tmp_path / "REL")
    assert b"yes" in content
    assert SECRET.encode() not in content
    # Where private data lie is the owner's business.
    assert bytes(tmp_path) not in content


@pytest.mark.parametrize("name", [*REFUSED, *(f"{name}, undeclared" for name in UNDECLARED)])
def test_what_can_only_be_published_or_refused_is_refused(tmp_path: Path, name: str) -> None:
    kind = name.removesuffix(", undeclared")
    made, more = (REFUSED[name], {}) if name in REFUSED else (CARRIERS[kind], {"classes": None})
    with pytest.raises(InvalidInput) as refused:
        released(made(tmp_path), tmp_path / "REL", **more)
    assert SECRET not in str(refused.value)
    assert not (tmp_path / "REL").exists()


def test_published_names_are_told_before(tmp_path: Path) -> None:
    names, given = {"columns": ["a", "b", "c"], "classes": ["no", "yes"]}, {"features": "identity"}
    given["classes"] = names["classes"]
    planned = pm.plan(FRAME, design=pm.designs.Moments(), epsilon=20, delta=1e-2, **given)
    assert planned.to_dict()["published_names"] == pm.check(FRAME, **given).to_dict()["published_names"] == names
    assert planned.facts()["published names"] == "columns a, b, c; classes no, yes"
