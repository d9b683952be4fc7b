"""Encoded images are scaled to what is declared; where nothing is, to what the extractor says, which is public too."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from privmix.features.efficientnet import EfficientNet
from privmix.features.identity import Pixels
from privmix.features.projected import Projected
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_for
from tests.refusals import refuses


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two images of different sizes and colours."""
    encoded = []
    for size, mode in ((20, "RGB"), (33, "L")):
        stream = io.BytesIO()
        Image.fromarray(np.full((size, size + 3), 7, np.uint8)).convert(mode).save(stream, "png")
        encoded.append({"bytes": stream.getvalue(), "path": None})
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"image": encoded, "label": [0, 1]}), path)
    return path


def test_the_extractors_own_size_is_the_default(pictures: Path) -> None:
    for extractor in (EfficientNet(size=64), Projected(EfficientNet(size=64), 9)):
        source = open_for(extractor, pictures, "train", 2, Columns())
        assert source.schema.input_shape == (64, 64, 3)
        assert source.read().x.shape == (2, 64, 64, 3)


def test_what_is_declared_goes_first(pictures: Path) -> None:
    encoder = EfficientNet(size=64)
    for columns, shape in [
        (Columns(image_size=32), (32, 32, 3)),
        (Columns(colour="grey"), (64, 64)),
        (Columns(image_size=32, colour="grey"), (32, 32)),
    ]:
        assert open_for(encoder, pictures, "train", 2, columns).schema.input_shape == shape
    # As a model's or another dataset's inputs.
    assert open_for(encoder, pictures, "train", 2, Columns(), (16, 16)).schema.input_shape == (16, 16)


def test_an_extractor_without_a_size_needs_a_declaration(pictures: Path) -> None:
    with refuses("images"):
        open_for(Pixels(), pictures, "train", 2, Columns())
