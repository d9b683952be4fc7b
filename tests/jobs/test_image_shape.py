"""Encoded images are scaled to what is declared; where nothing is, to what the extractor says, which is public too."""

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
from privmix.jobs.dataset import open_dataset
from tests.refusals import refuses


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    encoded = []
    for size, mode in ((20, "RGB"), (33, "L")):
        stream = io.BytesIO()
        Image.fromarray(np.full((size, size + 3), 7, np.uint8)).convert(mode).save(stream, "png")
        encoded.append({"bytes": stream.getvalue(), "path": None})
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"image": encoded, "label": [0, 1]}), path)
    return path


def test_what_is_declared_goes_before_the_extractors_own_size(pictures: Path) -> None:
    encoder = EfficientNet(size=64)
    for extractor, given, shape in [
        (encoder, {}, (64, 64, 3)),
        (Projected(encoder, 9), {}, (64, 64, 3)),
        (encoder, {"columns": Columns(image_size=32)}, (32, 32, 3)),
        (encoder, {"columns": Columns(colour="grey")}, (64, 64)),
        (encoder, {"columns": Columns(image_size=32, colour="grey")}, (32, 32)),
        # As a model's or another dataset's inputs.
        (encoder, {"input_shape": (16, 16)}, (16, 16)),
    ]:
        source = open_dataset(pictures, extractor, classes=2, **given).source
        assert source.schema.input_shape == shape
        assert source.read().x.shape == (2, *shape)
    with refuses("images"):
        open_dataset(pictures, Pixels(), classes=2)
