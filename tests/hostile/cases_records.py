"""Records that a person in the data, or whoever offers public data, has made for the programs that decode them."""

import shutil
import struct
import zlib
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.corpus import VERBS, Make, World, case, cases

# A program in PostScript; Pillow would start Ghostscript on it.
EPS: Final = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
%%EndComments
(a program) print
showpage
%%EOF
"""
ALL: Final = set(VERBS["records"])


def tiff(tile: int) -> bytes:
    """An image of 8 x 8 in a tile of another size, for which libtiff would take its square in bytes."""
    content = zlib.compress(bytes(64))
    place = 8 + 2 + 10 * 12 + 4
    tags = [(256, 8), (257, 8), (258, 8), (259, 8), (262, 1), (277, 1)]
    tags += [(322, tile), (323, tile), (324, place), (325, len(content))]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + content


def wide_png() -> bytes:
    """A header that announces 60,000 x 60,000 pixels."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + bytes(64)


def image(content: bytes) -> Make:
    return lambda _, folder: (folder / "3" / "zzz.png").write_bytes(content)


cases(
    "records",
    ALL,
    a_program_in_postscript_called_an_image=image(EPS),
    an_image_whose_tile_fills_memory=image(tiff(32_000)),
    an_image_that_announces_gigabytes=image(wide_png()),
)


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder)
    folder.mkdir()
    return folder


@case("records", refused=ALL)
def a_program_in_postscript_in_a_column_of_images(world: World, folder: Path) -> None:
    honest = [(path.read_bytes(), path.parent.name) for path in sorted(folder.rglob("*.png"))]
    images, labels = zip(*honest, (EPS, "3"), strict=True)
    table = pa.table({"image": list(images), "label": list(labels)})
    pq.write_table(table, emptied(folder) / "train.parquet")


@case("records", refused=ALL)
def a_program_in_postscript_in_hugging_faces_images(world: World, folder: Path) -> None:
    images = [{"bytes": EPS, "path": "/etc/passwd"}] * 20
    pq.write_table(pa.table({"image": images, "label": ["3"] * 20}), emptied(folder) / "train.parquet")


@case("records", refused=ALL)
def records_that_are_a_pickle(world: World, folder: Path) -> None:
    from tests.hostile.planted import Payload

    x = np.empty(20, dtype=object)
    x[:] = [Payload(world.proof)] * 20
    np.savez(emptied(folder) / "train.npz", x=x, y=np.zeros(20, dtype=np.int64))
