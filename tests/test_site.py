"""The site of docs/: every page has its place, every word its explanation, every name its docstring; and it is built.

Building runs the gallery and takes minutes; it is one thorough test. What it builds is opened in a browser, offline.
"""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import privmix

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Pages of every kind, opened in a browser.
OPENED = (
    *("index", "choosing", "glossary", "limits", "figures", "search", "sample", "generated/commands/release"),
    *("generated/api/privmix.certificate", "generated/measured/frontier", "generated/gallery/index"),
    *("generated/gallery/table", "reproductions/dp-mix"),
)


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a part of what makes the site."""
    pytest.importorskip("sphinx", reason="makes the site; in privmix[docs]")
    monkeypatch.syspath_prepend(str(DOCS))
    return lambda name: importlib.import_module(f"_site.{name}")


def test_every_page_stands_in_one_group_of_readers() -> None:
    trees = "\n".join(re.findall(r"```\{toctree\}(.*?)```", read("index.md"), re.DOTALL))
    listed = re.findall(r"^[\w/-]+$", trees, re.M)
    assert len(set(listed)) == len(listed)
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert pages == {name for name in listed if "/" not in name}
    groups = ["Start", "Publish", "Use a release", "Train", "Review", "Extend", "Reference"]
    assert re.findall(r":caption: (.*)", read("index.md")) == groups


def test_words_of_the_glossary_are_in_order_and_explained_once() -> None:
    words = re.findall(r"^\*\*([^*]+)\.\*\*", read("glossary.md"), re.MULTILINE)
    assert words == sorted(words, key=str.lower)
    single = [word for entry in words for word in entry.lower().split(", ")]
    assert len(set(single)) == len(single) > 40
    # What pages cannot do without.
    assert {"mixup", "moments", "scattering", "clipping", "epsilon", "delta", "record", "unit of privacy"} <= set(
        single
    )


def test_links_are_those_of_the_site(site: Any) -> None:
    relinked = site("pages").relinked
    page, code = ("docs/learning.md", "learning.md"), "```md\n[x](nowhere.md)\n```"
    assert relinked(f"[a](../README.md)\n{code}", *page) == f"[a](index.md)\n{code}"
    changelog = ("CHANGELOG.md", "generated/project/changelog.md")
    assert relinked("[d](docs/learning.md#fit)", *changelog) == "[d](../../learning.md#fit)"
    for wrong in ("nowhere.md", "../pyproject.toml"):
        with pytest.raises(ValueError, match=wrong):
            relinked(f"[x]({wrong})", *page)


def test_the_check_finds_what_is_wrong(site: Any, tmp_path: Path) -> None:
    good = '<html lang="en"><head><title>t</title><link rel="stylesheet" href="s.css"></head><body><h1 id="x">T</h1>{}'
    (tmp_path / "s.css").write_text("a { color: red }")

    def found(body: str, page: str = good) -> list[str]:
        site("check").page.cache_clear()
        (tmp_path / "index.html").write_text(page.format(body))
        return list(site("check").problems(tmp_path))

    assert found('<h2>a</h2><a href="#x">l</a><a href="https://example.org">o</a><img src="data:," alt="w">') == []
    for body in (
        '<img src="https://example.org/a.png" alt="w">',
        '<script src="//example.org/a.js"></script>',
        '<img src="a.png" alt="w">',
        '<img src="data:,">',
        '<a href="other.html">l</a>',
        '<a href="#y">l</a>',
        '<a href="#x"><span> </span></a>',
        '<a href="#x"><a href="#x">l</a></a>',
        "<h3>skips</h3>",
        "<h1>second</h1>",
    ):
        assert len(found(body)) == 1, body
    assert len(found("", good.replace(' lang="en"', ""))) == 1
    assert len(found("", good.replace("<title>t</title>", ""))) == 1
    for sheet in ("@import url(https://h/f.css)", "@import 'https://h/f.css'", "a { src: url(//h/f) }"):
        (tmp_path / "s.css").write_text(sheet)
        assert len(found("")) == 1, sheet


def test_public_names_are_documented(site: Any) -> None:
    """Each has a docstring; what is called says what it takes where it takes something."""
    reference = site("reference")
    for package in reference.PACKAGES:
        for name, thing in reference.documented(package).items():
            assert inspect.getdoc(thing) or not (inspect.isclass(thing) or inspect.isroutine(thing)), (package, name)


def test_limits_say_how_bad_and_whose_duty() -> None:
    page = read("limits.md")
    guarantee = page.partition("### A secret number")[0]
    rows = [line.strip("| ").split(" | ") for line in guarantee.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[0] != "edge"]
    assert len(rows) > 20
    for edge, severity, duty, answer in rows:
        assert severity in ("critical", "serious", "slight"), edge
        assert set(duty.split(", ")) <= {"owner", "partner", "reviewer"}, edge
        assert len(answer) > 20, edge
    # What it advises can be done.
    helps = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "golden" / "help").glob("*.txt"))
    options = set(re.findall(r"`(?:[^`]* )?(--[a-z-]+)[^`]*`", page))
    assert len(options) > 8
    assert [option for option in sorted(options) if f"{option} " not in helps] == []


EXAMPLES = sorted((DOCS / "gallery").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_ends_with_a_picture_and_names_what_there_is(example: Path, site: Any) -> None:
    """It is run where the site is built; here: it parses, and what it takes of privmix is there, as it is called."""
    assert example.name in site("gallery").ORDER
    tree = ast.parse(example.read_text(encoding="utf-8"))
    assert re.match(r"\n.+\n=+\n", ast.get_docstring(tree, clean=False) or "")
    assert ast.unparse(tree.body[-1]) == "plt.show()"
    assert "set_title" in (text := ast.unparse(tree)) or "title=" in text
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("privmix"):
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pm":
            assert hasattr(privmix, node.attr), node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func)[:3] == "pm.":
            function = getattr(privmix, node.func.attr, None)
            if inspect.isfunction(function):
                taken = inspect.signature(function).parameters
                if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
                    assert {word.arg for word in node.keywords if word.arg} <= set(taken), ast.unparse(node)


REPRODUCTIONS = sorted((DOCS / "reproductions").glob("*.md"))
_FIGURE = re.compile(r"<!-- .+? -->[^<\n]*<!-- -->")


@pytest.mark.parametrize("page", REPRODUCTIONS, ids=lambda path: path.stem)
def test_no_figure_of_ours_is_typed_and_commands_are_those_that_pages_run(page: Path) -> None:
    """The runs have every figure in a column "here", and of what is proven, priced, predicted and simulated."""
    ours = ("here", "gain here", "for such images", "by PLD", "proven", "simulated", "predicted", "accuracy")
    figures, columns = 0, list[int]()
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("| "):
            columns = columns if line.startswith("|---") else []
            continue
        cells = [cell.strip() for cell in line.strip()[1:-1].split("|")]
        if not columns:
            columns = [place for place, cell in enumerate(cells) if cell.startswith(ours)]
            continue
        for place in columns:
            assert not re.search(r"\d", _FIGURE.sub("", cells[place])), line
            figures += len(_FIGURE.findall(cells[place]))
    assert figures >= 5 or page.stem == "index"
    run = {line for other in DOCS.glob("*.md") for line in other.read_text(encoding="utf-8").splitlines()}
    shown = re.findall(r"^privmix .*", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown or page.stem == "index"
    assert [line for line in shown if line not in run] == []


@pytest.mark.parametrize("page", [*sorted(DOCS.glob("*.md")), *REPRODUCTIONS], ids=lambda path: path.stem)
def test_a_page_has_its_readers_and_the_figures_of_the_runs(page: Path, site: Any) -> None:
    text = page.read_text(encoding="utf-8")
    title, first, *_ = text.split("\n\n")
    assert re.fullmatch(r"# [^\n]+", title)
    assert first.startswith("For ") or page.stem == "index" or page in REPRODUCTIONS, "for whom it is"
    assert text == site("figures").filled(text), "python -m docs._site.figures writes them"
    assert len(_FIGURE.findall(text)) == text.count("<!-- -->"), "a figure that the script does not find"
    assert not re.search(r"^<!-- .*<!-- -->", text, re.MULTILINE), "a line that starts with a comment is no Markdown"


def test_readme_has_the_figures_of_the_runs(site: Any) -> None:
    """Its results are those of docs/_site/readme.txt, which has an expression for each figure."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == site("figures").with_results(text), "python -m docs._site.figures writes them from readme.txt"
    assert len(text.splitlines()) <= 60, "it fits one screen"
    typed = _FIGURE.sub("", (DOCS / "_site" / "readme.txt").read_text(encoding="utf-8"))
    assert re.findall(r"\d+\.\d+|\d+%", typed) == []


def test_figures_are_those_of_the_runs(site: Any) -> None:
    figures = site("figures")
    runs = json.loads((ROOT / "benchmarks" / "results" / "utility.json").read_text(encoding="utf-8"))["results"]
    of: dict[str, Any] = {"dataset": "mnist", "method": "ps-ridge-centred", "epsilon": 1}
    own = [100 * run["accuracy"] for run in runs if {name: run[name] for name in of} == of]
    expected = f"{sum(own) / len(own):.1f} ({min(own):.1f} to {max(own):.1f}; {len(own)} runs)"
    head = '| a | <!-- mean("utility", dataset="mnist", method="ps-ridge-centred", epsilon=1) -->'
    assert figures.filled(f"{head}0<!-- --> |") == f"{head}{expected}<!-- --> |"
    with pytest.raises(ValueError, match="no run has"):
        figures.mean("utility", dataset="nothing")
    assert figures.level("utility", len(own), **of) == expected[:4]
    with pytest.raises(ValueError, match="the page states 6"):
        figures.level("utility", 6, **of)
    with pytest.raises(ValueError, match="no two seeds"):
        figures.gain("utility", {"method": "pixels-ps-cnn"}, {"method": "classwise-full"}, dataset="mnist", epsilon=1)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, from what git knows; a warning is an error."""
    pytest.importorskip("sphinx", reason="makes the site; in privmix[docs]")
    pytest.importorskip("sphinx_gallery", reason="makes the site; in privmix[docs]")
    out = tmp_path_factory.mktemp("site") / "html"
    # Packages on this process's path are on the other's.
    own = {"OMP_NUM_THREADS": "1", "PRIVMIX_GALLERY_ANEW": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(out)]
    outcome = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=1800, check=False)
    assert outcome.returncode == 0, outcome.stderr[-5000:]
    return out


@pytest.mark.thorough
def test_the_site_is_built_and_every_link_leads_somewhere(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    check = importlib.import_module("_site.check")
    assert list(check.problems(built)) == []
    index = (built / "searchindex.js").read_text(encoding="utf-8")
    assert "Accuracy against epsilon, every method" not in index
    assert "measured/frontier" not in (built / "index.html").read_text(encoding="utf-8").partition("<article")[0]
    linked = re.findall(r'href="glossary.html#term-', (built / "learning.html").read_text(encoding="utf-8"))
    assert len(linked) >= 13


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_offline_on_a_phone_and_axe_finds_nothing(built: Path, browser: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="checks accessibility; in privmix[dev]")
    # What the dark has of its own are colours.
    rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else None
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme, offline=True)
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    for name in OPENED:
        page = context.new_page()
        page.on("pageerror", lambda error, name=name: pytest.fail(f"{name}: {error}"))
        page.goto((built / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
        found = axe.Axe().run(page, options=rules).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], name
        page.close()
    page = context.new_page()
    page.goto((built / "search.html").as_uri() + "?q=clipping")
    # Results are added one after the other.
    page.locator("#search-results li").nth(5).wait_for(timeout=30_000)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()
