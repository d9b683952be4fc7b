import ast
import contextlib
import io
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

import privmix
from privmix.data import open_dataset
from privmix.data.columns import Selection
from privmix.data.images import decode_images
from privmix.data.memory import open_arrays
from privmix.data.persons import persons_in_names
from privmix.data.source import DECODER, Source
from privmix.errors import InvalidInput
from privmix.features.identity import Pixels
from privmix.features.spec import check_spec, from_spec
from privmix.jobs import dataset as jobs_dataset
from privmix.jobs.columns import Columns
from tests.data.helpers import png
from tests.refusals import refuses

IMAGES = np.random.default_rng(0).integers(0, 256, size=(3, 5, 6, 3), dtype=np.uint8)
PIXELS = {"name": "pixels", "version": 1, "options": {}}


def opened(folder: Any, **changed: Any) -> Source:
    options: dict[str, Any] = {"classes": ["cat", "dog"], "image_size": (5, 6), "colour": "rgb"}
    return open_dataset(folder, **{**options, **changed})


def fill(folder: Path, images: np.ndarray = IMAGES) -> Path:
    for name, image in zip(["dog/b.png", "dog/a.PNG", "cat/z.png"], images, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(image))
    (folder / "dog" / "notes.txt").write_text("not an image")
    (folder / ".cache").mkdir(exist_ok=True)
    return folder


def only(folder: Path, content: bytes, suffix: str = ".png") -> Path:
    """A folder with one image."""
    (folder / "cat").mkdir(exist_ok=True)
    (folder / "cat" / f"a{suffix}").write_bytes(content)
    return folder


def written(image: Image.Image, format_name: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_name, **options)
    return stream.getvalue()


def test_classes_by_folder_in_alphabetical_order(tmp_path: Path) -> None:
    source = opened(fill(tmp_path))
    assert source.schema.classes == ("cat", "dog")
    assert (source.schema.records, source.schema.input_shape) == (3, (5, 6, 3))
    data = source.read()
    assert data.y.tolist() == [0, 1, 1]
    assert np.array_equal(data.x, IMAGES[[2, 1, 0]])
    grey = opened(fill(tmp_path, IMAGES[..., 0]), colour="grey").read()
    assert np.array_equal(grey.x, IMAGES[[2, 1, 0], :, :, 0])


def test_splits_are_sub_folders(tmp_path: Path) -> None:
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    (tmp_path / "test" / "dog" / "b.png").unlink()
    assert opened(tmp_path).schema.records == 3
    assert opened(tmp_path, split="test").schema.records == 2
    for folder, split in ((tmp_path, "val"), (fill(tmp_path / "flat"), "test")):
        with refuses("split"):
            opened(folder, split=split)


def test_classes_are_declared_and_may_be_wider_but_not_narrower(tmp_path: Path) -> None:
    fill(tmp_path)
    with refuses("classes"):
        opened(tmp_path, classes=None)
    assert opened(tmp_path, classes=["bee", "cat", "dog"]).read().y.tolist() == [1, 2, 2]
    assert opened(tmp_path, classes=["dog", "cat"]).read().y.tolist() == [0, 0, 1]
    source = opened(tmp_path, classes=["dog"])
    assert source.schema.records == 3
    with refuses("label"):
        source.read()


@pytest.mark.parametrize(
    ("declared", "missing"),
    [({}, "size and colour"), ({"colour": "grey"}, "size"), ({"image_size": 4}, "colour"), ({"input_shape": (4,)}, "")],
)
def test_size_and_colour_are_declared(tmp_path: Path, declared: dict[str, Any], missing: str) -> None:
    with pytest.raises(InvalidInput, match=rf"images: got 'no declared {missing}.*`image_size`.*`colour`"):
        open_dataset(fill(tmp_path), classes=["cat", "dog"], **declared)


def test_what_a_model_takes_is_a_declaration(tmp_path: Path) -> None:
    fill(tmp_path)
    assert opened(tmp_path, image_size=None, colour=None, input_shape=(4, 4)).schema.input_shape == (4, 4)
    assert opened(tmp_path, image_size=None, colour="rgb", input_shape=(4, 4)).schema.input_shape == (4, 4, 3)
    assert opened(tmp_path, image_size=2, colour=None, input_shape=(4, 4, 3)).schema.input_shape == (2, 2, 3)
    with refuses("colour"):
        opened(tmp_path, colour="blue")


@pytest.mark.parametrize("content", [b"", b"Smith", png(IMAGES[0])[:60]])
def test_damaged_and_odd_images_are_refused_silently(tmp_path: Path, content: bytes) -> None:
    fill(tmp_path)
    (tmp_path / "dog" / "b.png").rename(tmp_path / "dog" / "Smith.png")
    (tmp_path / "dog" / "Smith.png").write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        opened(tmp_path).read()
    assert "Smith" not in str(caught.value)


# How such pixels are stored, by the EXIF orientation.
STORED = {
    1: lambda x: x,
    2: np.fliplr,
    3: lambda x: np.rot90(x, 2),
    4: np.flipud,
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, 1),
    7: lambda x: np.rot90(x, 2).swapaxes(0, 1),
    8: lambda x: np.rot90(x, 3),
}
SEEN = np.kron(np.random.default_rng(3).integers(0, 256, (5, 6, 3)), np.ones((8, 8, 1))).astype(np.uint8)


def turned(orientation: int, format_name: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.ascontiguousarray(STORED[orientation](SEEN)))
    return written(image, format_name, exif=exif, quality=100, lossless=True)


def readings(folder: Path, content: bytes, suffix: str, **options: Any) -> dict[str, np.ndarray]:
    """One image by every way that images come."""
    features = datasets.Features(image=datasets.Image(), label=datasets.Value("int64"))
    held = datasets.Dataset.from_dict({"image": [{"bytes": content, "path": None}], "label": [0]}, features=features)
    held.to_parquet(str(folder / "a.parquet"))
    given = {
        "folder": only(folder, content, suffix),
        "parquet": folder / "a.parquet",
        "hugging face": held,
        "bytes": ([content], [0]),
        "pillow": ([Image.open(io.BytesIO(content))], [0]),
    }
    return {name: opened(data, **{"image_size": (40, 48), **options}).read().x[0] for name, data in given.items()}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
def test_images_are_read_as_they_are_seen(tmp_path: Path, orientation: int, format_name: str) -> None:
    content, suffix = turned(orientation, format_name), {"JPEG": ".jfif"}.get(format_name, f".{format_name.lower()}")
    for name, x in readings(tmp_path, content, suffix).items():
        assert np.abs(x.astype(int) - SEEN).mean() < 8, name
    # As releases and models read them that were made before.
    before = readings(tmp_path, content, suffix, decoder=1)
    close = [np.abs(x.astype(int) - SEEN).mean() < 8 for x in before.values()]
    assert close == [orientation == 1] * len(close)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB"])
@pytest.mark.parametrize("colour", ["rgb", "grey"])
def test_transparent_pixels_show_white(tmp_path: Path, mode: str, colour: str) -> None:
    black = Image.new("RGBA", (48, 40), (0, 0, 0, 0))
    black.paste((0, 0, 0, 255), (0, 0, 24, 40))
    if mode in ("RGBA", "LA"):
        content = written(black.convert(mode))
    else:
        # A colour that stands for transparent.
        image = Image.new(mode, (48, 40), 7)
        image.paste(0, (0, 0, 24, 40))
        if mode == "P":
            image.putpalette([0] * 768)
        content = written(image, transparency=(7, 0, 0) if mode == "RGB" else 7)
    for name, x in readings(tmp_path, content, ".png", colour=colour).items():
        assert (x[:, :24] == 0).all(), name
        assert (x[:, 24:] == 255).all(), name
    for x in readings(tmp_path, content, ".png", colour=colour, decoder=1).values():
        assert x.max() <= 7


def test_a_damaged_exif_part_leaves_an_image_as_it_is_stored() -> None:
    content = turned(6, "JPEG")
    place = content.index(b"Exif\0\0") + 6
    damaged = content[:place] + b"\xff" * 8 + content[place + 8 :]
    assert np.array_equal(decode_images(iter([damaged]), (40, 48, 3)), decode_images(iter([content]), (40, 48, 3), 1))


def test_the_decoder_travels_with_the_extractor(tmp_path: Path) -> None:
    fresh = Pixels()
    assert from_spec(json.loads(json.dumps(fresh.spec()))).decoder == fresh.decoder == DECODER
    # What was written before there was a rule.
    earlier = from_spec({"name": "projected", "version": 1, "options": {"inner": PIXELS, "dim": 8, "seed": 0}})
    assert earlier.spec()["options"]["inner"] == PIXELS
    content = turned(6, "PNG")
    for extractor, decoder in ((fresh, DECODER), (earlier, 1)):
        columns = Columns(image_size=40, colour="rgb")
        found = jobs_dataset.open_dataset(([content], [0]), extractor, classes=2, columns=columns).source.read().x
        assert np.array_equal(found, decode_images(iter([content]), (40, 40, 3), decoder))
    for wrong in (0, 1, DECODER + 1, "2", True):
        with pytest.raises(InvalidInput, match="decoder"):
            check_spec({**PIXELS, "decoder": wrong})
    with pytest.raises(InvalidInput, match="decoder"):
        check_spec({"name": "minilm", "version": 1, "options": {}, "decoder": 2})


def test_images_at_any_depth_are_records(tmp_path: Path) -> None:
    fill(tmp_path)
    for name in ("dog/patient 3/b, x.png", "dog/patient 3/scan/a.png", "dog/.hidden/a.png", "cat/y/漢.JPE"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(IMAGES[0]))
    (tmp_path / "dog" / "linked").symlink_to(tmp_path / "cat")
    source = opened(tmp_path)
    nested = ("dog/a.PNG", "dog/b.png", "dog/patient 3/b, x.png", "dog/patient 3/scan/a.png")
    assert source.names == ("cat/z.png", "cat/y/漢.JPE", *nested)
    assert source.read().y.tolist() == [0, 0, 1, 1, 1, 1]
    assert persons_in_names(source.names, r"(.*)/[^/]*$").tolist() == [0, 1, 2, 2, 3, 4]
    assert opened(tmp_path, labelled=False).names == source.names
    assert source.unread.startswith("2 files are not read: 1 .txt, 1 folder")


@pytest.mark.parametrize("labelled", [True, False])
def test_what_is_not_read_is_counted_by_suffix_and_not_named(tmp_path: Path, labelled: bool) -> None:
    fill(tmp_path)
    unread = ("dog/1.heic", "dog/deep/2.HEIC", "cat/3.tif", "cat/Mary Smith", "cat/Mary.SmithJones", "top.md")
    for name in (*unread, "dog/.DS_Store", "cat/Thumbs.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    source = opened(tmp_path, labelled=labelled)
    assert source.schema.records == 3
    assert source.unread.startswith("7 files are not read: 2 .heic, 2 other, 1 .md, 1 .tif, 1 .txt.")
    for path in (tmp_path / "dog").glob("*.[pP]*"):
        path.unlink()
    (tmp_path / "cat" / "z.png").unlink()
    with pytest.raises(InvalidInput, match=r"no image.*2 \.heic"):
        opened(tmp_path, labelled=labelled)


FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF")


@pytest.mark.parametrize("format_name", FORMATS)
def test_named_formats_are_decoded_whatever_the_suffix(format_name: str) -> None:
    """Formal guarantee: named."""
    flat = Image.new("RGB", (6, 5), (200, 40, 40))
    (x,) = decode_images(iter([written(flat, format_name)]), (5, 6, 3))
    assert np.abs(x.astype(int) - np.array([200, 40, 40])).max() <= 4


def test_every_other_format_of_pillows_is_refused_in_the_same_words() -> None:
    """Formal guarantee: named. Which formats there are is asked of Pillow itself."""
    Image.init()
    said, tried = set(), 0
    for format_name in sorted(set(Image.SAVE) - {*FORMATS, "MPO"}):
        for mode in ("RGB", "L", "1", "P"):
            try:
                content = written(Image.new(mode, (32, 32), 1), format_name)
            except Exception:
                continue
            tried += 1
            with refuses("images") as caught:
                decode_images(iter([content]), (5, 6, 3))
            said.add(str(caught.value))
    assert tried > 30
    assert len(said) == 1


def test_decoding_starts_no_program_writes_no_file_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Formal guarantee: named. Damaged images of all formats, and programs in PostScript, under Python's audit hook."""
    events: list[str] = []
    watching = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching[0] and (event.split(".")[0] in ("os", "subprocess", "tempfile", "ctypes", "socket")):
            events.append(event)

    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8))
    whole = [written(kind, name) for name in (*FORMATS, "TIFF", "EPS") for kind in (image, image.convert("L"))]
    random = np.random.default_rng(2)
    decode_images(iter(whole[:1]), (5, 6, 3))
    sys.addaudithook(hook)
    try:
        for number in range(1500):
            content = bytearray(whole[number % len(whole)])
            for _ in range(random.integers(0, 4)):
                content[random.integers(len(content))] = random.integers(256)
            with contextlib.suppress(InvalidInput):
                decode_images(iter([bytes(content)]), (5, 6, 3))
    finally:
        watching[0] = False
    assert events == []
    assert capfd.readouterr() == ("", "")


def test_every_door_to_pillow_names_its_formats() -> None:
    """Formal guarantee: named; of the whole library. Pillow is imported as modules: no door has another name."""
    root = Path(privmix.__file__).parent
    doors = 0
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Image.open", "ImageFile.Parser")):
                doors += 1
                assert "formats" in {word.arg for word in node.keywords}, f"{path.name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "PIL":
                names = {name.name for name in node.names}
                assert node.module == "PIL", f"{path.name}:{node.lineno}"
                assert names <= {"Image", "ImageDraw", "ImageEnhance", "ImageFont", "ImageOps"}, f"{path.name}: {names}"
                assert not any(name.asname for name in node.names), f"{path.name}:{node.lineno}"
            if isinstance(node, ast.Import):
                bad = {"imageio", "cv2", "skimage", "torchvision", "tifffile", "pydicom", "PIL", "PIL.Image"}
                assert not bad & {name.name for name in node.names}, f"{path.name}:{node.lineno}"
    assert doors == 1


def test_images_of_pillow_whose_kind_is_unknown_are_not_looked_into() -> None:
    class Trap(Image.Image):
        def load(self) -> Any:
            pytest.fail("an image was decoded")

    for made in ([Trap()], [Image.new("L", (4, 4)), Trap()], [np.zeros((4, 4)), Trap()]):
        with refuses("x"):
            open_arrays(made, [0] * len(made), 2, Selection(shape=(4, 4))).read()


def test_more_than_8_bits_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    Image.fromarray(np.full((5, 6), 40_000, dtype=np.uint16)).save(tmp_path / "cat" / "z.png")
    with refuses("image mode"):
        opened(tmp_path).read()


def test_images_of_any_size_are_scaled_and_cropped_one_by_one(tmp_path: Path) -> None:
    """Formal guarantee: per record."""
    fill(tmp_path)
    wide = np.zeros((40, 100, 3), dtype=np.uint8)
    wide[:, 30:70] = (200, 100, 50)
    tall = np.zeros((9, 3, 3), dtype=np.uint8)
    tall[3:6] = 255
    for name, image in (("a.PNG", wide), ("b.png", tall)):
        (tmp_path / "dog" / name).write_bytes(png(image))
    source = opened(tmp_path, image_size=16)
    assert source.schema.input_shape == (16, 16, 3)
    data = source.read()
    # The square in the middle is left of both; bicubic scaling sees a little beyond its edges.
    assert np.array_equal(data.x[1][:, 2:-2], np.broadcast_to(np.array([200, 100, 50]), (16, 12, 3)))
    assert (data.x[2][5:-5] == 255).all()
    assert data.x[2].min() > 100
    for path in (tmp_path / "dog").iterdir():
        path.unlink()
    assert np.array_equal(opened(tmp_path, image_size=16).read().x[0], data.x[0])


def test_scaling_is_that_of_the_shorter_side_and_a_crop(tmp_path: Path) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, size=(24, 40), dtype=np.uint8))
    only(tmp_path, written(image))
    x = opened(tmp_path, image_size=(12, 12), colour="grey").read().x[0]
    expected = np.asarray(image.resize((20, 12), Image.Resampling.BICUBIC).crop((4, 0, 16, 12)))
    assert np.abs(x.astype(int) - expected).max() <= 1
    assert opened(tmp_path, image_size=(24, 40), colour="grey").read().x[0].tolist() == np.asarray(image).tolist()
    assert opened(tmp_path, image_size=(48, 10), colour="grey").schema.input_shape == (48, 10)


def test_a_long_image_does_not_become_a_huge_one(tmp_path: Path) -> None:
    only(tmp_path, png(np.zeros((1, 60_000), dtype=np.uint8)))
    assert opened(tmp_path, image_size=1024, colour="grey").read().x.shape == (1, 1024, 1024)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8", (8,), (8, 0), (8, 8, 3), 10**9])
def test_image_sizes_that_are_none(tmp_path: Path, size: Any) -> None:
    with refuses("image_size"):
        opened(fill(tmp_path), image_size=size)


def test_an_image_that_announces_gigabytes_is_refused_undecoded(tmp_path: Path) -> None:
    """Formal guarantee: bounded."""
    content = bytearray(png(IMAGES[0]))
    # Width and height of a PNG's header, and its checksum.
    content[16:24] = struct.pack(">II", 9000, 9000)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    with refuses("image size"):
        opened(only(tmp_path, bytes(content))).read()
