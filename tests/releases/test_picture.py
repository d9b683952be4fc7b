"""The planner's picture holds shapes and nothing that runs, refers or tells."""

from pathlib import Path

import pytest

from privmix.errors import InvalidInput
from privmix.releases.card import MOST_BYTES, check_picture, plain_picture
from privmix.reports.pictures import draw_predictions

RECORD = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "epsilons": [0.25, 1.0, 4.0],
    "chosen": "moments",
    "labels": {"moments": "second moments", "poisson": "mixed rows"},
    "curves": {"moments": [0.5, 0.7, 0.9], "poisson": [0.4, 0.6, 0.8]},
}
SHAPE = b'<path d="M 0 0" style="fill: #ffffff"/>'


def drawing(inside: bytes) -> bytes:
    return b'<svg xmlns="http://www.w3.org/2000/svg" version="1.1">' + SHAPE + inside + b"</svg>"


def test_an_honest_picture_passes_once_it_is_plain(tmp_path: Path) -> None:
    path = tmp_path / "predictions.svg"
    draw_predictions(RECORD, path)
    check_picture(plain_picture(path.read_bytes()), "picture")


@pytest.mark.parametrize(
    "svg",
    [
        b"",
        b"<html/>",
        drawing(b"<script>alert(1)</script>"),
        drawing(b"<script/>"),
        drawing(b"<!-- a raw record -->"),
        drawing(b"a raw record"),
        drawing(b"<text>a raw record</text>"),
        drawing(b'<metadata a="1"/>'),
        drawing(b'<foreignObject width="1"/>'),
        drawing(b'<image href="http://host/x"/>'),
        drawing(b'<use xlink:href="http://host/x"/>'),
        drawing(b'<path onload="alert(1)"/>'),
        drawing(b'<path style="fill: url(http://host/x)"/>'),
        drawing(b'<path style="fill: url(#a); stroke: url(//host)"/>'),
        drawing(b'<a href="#x"/>'),
        drawing(b"<style>@import url(http://host)</style>"),
        drawing(b"\xff"),
        drawing(b'<path d="' + b"1 " * MOST_BYTES + b'"/>'),
        b'<!DOCTYPE svg [<!ENTITY a "b">]>' + drawing(b""),
    ],
)
def test_whatever_is_no_shape_is_refused(svg: bytes) -> None:
    check_picture(drawing(b'<g id="a"><use xlink:href="#a"/></g>'), "picture")
    with pytest.raises(InvalidInput):
        check_picture(svg, "picture")
