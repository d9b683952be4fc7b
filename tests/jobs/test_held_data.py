"""Every job takes what people hold: plan, release, train, evaluate, predict, with persons where there are columns."""

from typing import Any

import datasets
import numpy as np
import polars
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import privmix as pm
from tests.refusals import refuses

pytestmark = [
    pytest.mark.usefixtures("fixed_keys", "own_folder"),
    pytest.mark.filterwarnings("ignore:.*(reproducible|plain numbers|delta)"),
]
N = 240
RNG = np.random.default_rng(0)
Y = np.arange(N) % 2
X = RNG.normal(size=(N, 3)) * 0.2 + Y[:, None]
FRAME = {"who": [f"p{place // 2}" for place in range(N)], **{name: X[:, at] for at, name in enumerate("abc")}}
FRAME["label"] = [("no", "yes")[label] for label in Y]
FEATURES = datasets.Features(
    who=datasets.Value("string"),
    **{name: datasets.Value("float64") for name in "abc"},
    label=datasets.ClassLabel(names=["no", "yes"]),
)
BUDGET: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-3}
MADE: dict[str, Any] = {"features": "identity", "clip_norm": 2.0, **BUDGET}
COLUMNS: dict[str, Any] = {"classes": ["no", "yes"], "columns": ["a", "b", "c"]}


TABLES: dict[str, Any] = {
    "lazy": polars.LazyFrame(FRAME),
    "arrow": pa.table(FRAME),
    "dataset": datasets.Dataset.from_dict(FRAME, features=FEATURES),
}


@pytest.mark.parametrize("data", TABLES.values(), ids=TABLES)
def test_tables_go_through_every_job(data: Any) -> None:
    moments = pm.designs.Moments()
    planned = pm.plan(data, design=moments, **MADE, **COLUMNS)
    release = pm.release(data, planned, seed=1)
    frame = pm.release(polars.DataFrame(FRAME), planned, seed=1)
    assert np.array_equal(release.x, frame.x)
    model = pm.fit(release)
    columns = COLUMNS["columns"]
    assert pm.evaluate(model, data, columns=columns).accuracy > 0.9
    assert len(pm.predict(model, data, columns=columns)) == N
    persons = pm.release(data, design=moments, person="who", records=N // 2, **MADE, **COLUMNS)
    assert persons.certificate.unit.one == "person"
    trained = pm.train(data, features="identity", epochs=2, **BUDGET, **COLUMNS)
    assert pm.evaluate(trained, data, columns=columns).quality.n == N


def test_pairs_go_through_every_job() -> None:
    for data in ((scipy.sparse.csr_array(X), Y), (torch.tensor(X), torch.tensor(Y))):
        made = {**MADE, "classes": 2, "design": pm.designs.Moments()}
        release = pm.release(data, seed=1, **made)
        assert np.array_equal(release.x, pm.release((X, Y), seed=1, **made).x)
        model = pm.fit(release)
        assert pm.evaluate(model, data).accuracy > 0.9
        assert np.array_equal(model.predict(data[0]), model.predict(X))
        assert pm.release(data, person=Y * 7, records=2, **made).certificate.unit.one == "person"


def test_images_go_through_every_job() -> None:
    pixels = np.clip(np.where(Y[:, None, None], 200, 40) + RNG.normal(size=(N, 6, 6)) * 20, 0, 255).astype(np.uint8)
    images = [Image.fromarray(one) for one in pixels]
    made: dict[str, Any] = {**BUDGET, "classes": 2, "features": "pixels", "design": pm.designs.Moments(), "seed": 1}
    release = pm.release((images, Y), columns=pm.Columns(image_size=6, colour="grey"), **made)
    assert np.array_equal(release.x, pm.release((pixels, Y), **made).x)
    model = pm.fit(release)
    assert pm.evaluate(model, (images, Y)).accuracy > 0.9
    assert np.array_equal(model.predict(images), model.predict(pixels))
    assert pm.predict(model, images).places.shape == (N,)


def test_a_loader_that_draws_is_refused_before_anything_is_charged() -> None:
    book = pm.Ledger.create("sqlite:///ledger.db")
    book.add_dataset("own", epsilon=60, delta=1e-3)
    drawing = DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)), shuffle=True)
    for job in (pm.release, pm.train):
        with refuses("data"):
            job(drawing, classes=2, features="identity", ledger=book, dataset="own", **BUDGET)
    assert book.budget("own").spent == 0
