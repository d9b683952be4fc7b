"""The planner's picture of a release: an SVG without scripts, events, outside references, text or comments."""

from __future__ import annotations

import re
from typing import Final

from privmix.errors import InvalidInput

MOST_BYTES: Final = 2**17
_HEAD: Final = re.compile(
    r'\s*(<\?xml version="1\.0" encoding="utf-8" standalone="no"\?>)?\s*(<!DOCTYPE svg [^>\[\]]*>)?\s*'
)
_STYLE: Final = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'
_TAG: Final = re.compile(r"\s+|</?(svg|defs|g|path|use|clipPath|rect)((?:\s+[a-zA-Z:-]+=\"[^\"<>&]*\")*)\s*/?>")
_ATTRIBUTE: Final = re.compile(r"\s+([a-zA-Z:-]+)=\"([^\"]*)\"")
_NAMES: Final = frozenset(
    ("id", "d", "style", "transform", "x", "y", "width", "height", "viewBox", "version", "clip-path", "xlink:href",
     "xmlns", "xmlns:xlink")
)  # fmt: skip
_PATH: Final = re.compile(r"[MLCQAZHVSTmlcqazhvst0-9eE.,+\-\s]*")
_EXTRAS: Final = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)


def plain_picture(svg: bytes) -> bytes:
    """Strip comments and metadata from a matplotlib drawing, as :func:`check_picture` requires."""
    return _EXTRAS.sub("", svg.decode("utf-8")).encode()


def check_picture(svg: bytes, name: str) -> None:
    """Raise :class:`InvalidInput` unless the bytes are an SVG of shapes alone.

    Formal guarantees:
        * elements are shapes and their groups, attributes are geometry and style, so nothing in it runs;
        * references point into the picture itself;
        * it has at most 128 KiB and is read in linear time. Numbers may be anything: they are not compared.
    """
    allowed = "an SVG of shapes alone"
    try:
        text = svg.decode("utf-8") if len(svg) <= MOST_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    head = _HEAD.match(text)
    place = head.end() if head else 0
    if not text.startswith("<svg", place):
        raise InvalidInput(name, "something else", allowed)
    while place < len(text):
        if text.startswith(_STYLE, place):
            place += len(_STYLE)
            continue
        found = _TAG.match(text, place)
        if found is None:
            raise InvalidInput(name, "other elements", allowed)
        for key, value in _ATTRIBUTE.findall(found.group(2) or ""):
            inside = value.startswith("#") if key == "xlink:href" else "url(" not in value.replace("url(#", "")
            if key not in _NAMES or not inside or (key == "d" and not _PATH.fullmatch(value)):
                raise InvalidInput(name, key, allowed)
        place = found.end()
