"""The planner's picture in a release: an SVG of lines and shapes, and nothing else that an SVG may hold.

Whoever opens a release's picture opens a stranger's file, in a browser as a rule. What passes here has no script, no
event, no reference to anything outside itself, no free text and no comment.
"""

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
    """A drawing of matplotlib's without comments and metadata, as :func:`check_picture` wants it.

    Example:
        >>> plain_picture(b'<svg><!-- 0.25 --><g id="a"/></svg>')
        b'<svg><g id="a"/></svg>'
    """
    return _EXTRAS.sub("", svg.decode("utf-8")).encode()


def check_picture(svg: bytes, name: str) -> None:
    """Raise :class:`InvalidInput` unless the bytes are an SVG of shapes alone.

    Formal guarantees:
        * elements are shapes and their groups, attributes are geometry and style, so nothing in it runs;
        * references point into the picture itself;
        * it has at most 128 KiB and is read in linear time. Numbers may say anything: they are not compared.

    Example:
        >>> check_picture(b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M 0 0"/></svg>', "picture")
        >>> check_picture(b"<svg><script/></svg>", "picture")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: picture: got 'other elements'; allowed: an SVG of shapes alone
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
