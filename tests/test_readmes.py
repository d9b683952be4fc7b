"""Each layer has a README of a few lines, which names what there is; the table of layers follows from them."""

import re

import pytest
from docs._site.figures import DOCS, role_of, with_layers

from tests.test_layering import ALLOWED, SOURCE

MOST_LINES = 15


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_has_a_short_readme_that_names_what_there_is(layer: str) -> None:
    folder = SOURCE / layer
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert role_of(layer)
    assert "\n\n**Public names:** " in text
    assert "\n\n**Never imports** " in text
    assert len(text.splitlines()) <= MOST_LINES
    code = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    for name in re.findall(r"`([^`\s\"]+)`", text):
        found = (folder / name).exists() if "/" in name or name.endswith(".py") else re.search(rf"\b{name}\b", code)
        assert found or name in ALLOWED, f"{layer}/README.md: {name}"


def test_the_table_of_layers_follows_from_their_readmes() -> None:
    page = (DOCS / "design.md").read_text(encoding="utf-8")
    assert page == with_layers(page), "python -m docs._site.figures writes it"
    assert all(f"| [`{layer}`](" in page for layer in ALLOWED)
    stale = page.replace(f"| {role_of('engine')} |", "| adds noise twice |")
    assert stale != page
    assert with_layers(stale) == page
