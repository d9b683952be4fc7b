"""The studio's pages: templates filled in, their styles and scripts, and the state that all of them share."""

import csv
import math
import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse

from privmix.errors import StorageError
from privmix.fields import printable
from privmix.reports import page as report_page
from privmix.rounding import exact, percent_up, rounded_down, rounded_up
from privmix.studio.asked import Column, FormData
from privmix.studio.runs import FormKeys, Runs
from privmix.studio.security import AccessGuard

_HERE: Final = Path(__file__).parent
ASSETS: Final = {
    "page.css": (Path(report_page.__file__).parent / "templates" / "page.css", "text/css"),
    "studio.css": (_HERE / "static" / "studio.css", "text/css"),
    "studio.js": (_HERE / "static" / "studio.js", "text/javascript"),
    "icon.svg": (_HERE / "static" / "icon.svg", "image/svg+xml"),
    "htmx.min.js": (_HERE / "static" / "htmx.min.js", "text/javascript"),
}
"""Files that pages load, by name: style sheets of report and studio, and scripts."""

EXAMPLE_FILE: Final = "privmix-example.csv"
# As the data's own description has them: public.
_RANGES: Final = {
    "mean radius": "6:29",
    "mean texture": "9:40",
    "mean perimeter": "43:190",
    "mean area": "143:2510",
    "mean smoothness": "0.05:0.17",
    "mean compactness": "0.01:0.35",
}
_EXAMPLE: Final = FormData(
    data=EXAMPLE_FILE,
    label="diagnosis",
    classes="malignant,benign",
    columns=tuple(Column(name, "number", values) for name, values in _RANGES.items()),
    records="569",
    epsilon="4",
    out="example-release",
)


def render(name: str, **content: Any) -> str:
    return _environment().get_template(f"{name}.html.j2").render(**content)


@cache
def _environment() -> Environment:
    made = report_page.templates(FileSystemLoader(_HERE / "pages"))
    made.filters.update(up=rounded_up, down=rounded_down, exact=exact, line=line, at_most=percent_up)
    made.globals.update(words=words(), plot=plot)
    return made


def line(text: object) -> str:
    """Return a text from a file, as one line of marks that can be printed."""
    return printable(str(text))


@cache
def words() -> dict[str, str]:
    """Return the glossary: word -> what it means. It is the documentation's; a test holds the two together."""
    text = (_HERE / "pages" / "words.md").read_text(encoding="utf-8")
    found = re.findall(r"^\*\*([^*]+)\.\*\* (.+?)(?:\n\n|\n?\Z)", text, re.MULTILINE | re.DOTALL)
    # The documentation's links lead to pages that are not here.
    return {word: re.sub(r"\[([^\]]+)\]\([^)]+\)|`", r"\1", " ".join(said.split())) for word, said in found}


def write_example(folder: Path) -> FormData:
    """Write a public table into the folder, unless it is there, and fill in the form for it."""
    # scikit-learn's: 569 images of cells, six measures of each, and whether they are malignant.
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    places = [list(found.feature_names).index(name) for name in _RANGES]
    try:
        # Never over a file of the user's.
        with open(folder / EXAMPLE_FILE, "x", encoding="utf-8", newline="") as stream:
            table = csv.writer(stream, lineterminator="\n")
            table.writerow([*_RANGES, _EXAMPLE.label])
            for row, label in zip(found.data, found.target, strict=True):
                table.writerow([*(f"{row[place]:g}" for place in places), found.target_names[label]])
    except FileExistsError:
        pass
    except OSError as error:
        raise StorageError(f"{EXAMPLE_FILE}: cannot be written: {error.strerror}") from None
    free = _EXAMPLE.out
    number = 2
    while (folder / free).exists():
        free, number = f"{_EXAMPLE.out}-{number}", number + 1
    return replace(_EXAMPLE, out=free)


def plot(curve: dict[float, float], epsilon: float, chance: float) -> dict[str, Any]:
    """Return the marks of an accuracy curve by epsilon in a picture of 320 by 180; ``chance``: accuracy of guessing."""
    left, right, top, bottom = 44.0, 308.0, 12.0, 146.0
    known = sorted(curve)
    low = math.floor(10 * min([chance, *curve.values()])) / 10
    ends = math.log(known[0]), math.log(known[-1])

    def across(value: float) -> float:
        share = (math.log(value) - ends[0]) / ((ends[1] - ends[0]) or 1.0)
        return round(left + min(1.0, max(0.0, share)) * (right - left), 1)

    def down(value: float) -> float:
        return round(bottom - (value - low) / (1 - low) * (bottom - top), 1)

    return {
        "points": [(across(one), down(curve[one])) for one in known],
        "now": across(epsilon),
        "across": [(across(one), f"{one:g}") for one in known],
        "down": [(down(value), f"{100 * value:.0f}%") for value in (low, (1 + low) / 2, 1.0)],
        "box": (left, top, right, bottom),
    }


_MOST_BYTES: Final = 2**20
_MOST_FIELDS: Final = 5000


class Desk:
    """State that pages share: `folder`: base of paths, `door`: access."""

    def __init__(self, folder: Path, door: AccessGuard) -> None:
        self.folder: Final = folder
        self.root: Final = door.root
        self.runs: Final = Runs()
        self.keys: Final = FormKeys()

    def page(self, name: str, status: int = 200, **content: Any) -> HTMLResponse:
        shared = {"root": self.root, "place": self.folder, "running": self.runs.running}
        return HTMLResponse(render(name, **shared, **content), status)

    def to(self, path: str) -> RedirectResponse:
        return RedirectResponse(self.root + path, 303)

    def path(self, text: str) -> Path:
        """Return a path as it was typed: in the studio's folder, unless it is a whole one."""
        return self.folder / Path(text)

    def is_there(self, text: str, *, file: bool = False) -> bool:
        """Whether such a path, or file, is on this machine; False for a name that the system refuses."""
        return (os.path.isfile if file else os.path.exists)(self.path(text))

    async def form(self, request: Request) -> list[tuple[str, str]]:
        """Return a form's fields; raise HTTPException for one too large."""
        body = b""
        async for part in request.stream():
            # Counted while reading: a client may state a false length, or none.
            body += part
            if len(body) > _MOST_BYTES:
                raise HTTPException(413)
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        except ValueError:
            raise HTTPException(400) from None
        return [(name, "\n".join(printable(line, "") for line in text.split("\n"))) for name, text in pairs]
