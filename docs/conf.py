"""How Sphinx makes the site: `make docs`. Nothing is fetched, and no page refers to another host for what it shows."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _site.gallery import CONF

project = "privmix"
author = "The privmix authors"
copyright = "The privmix authors"
release = version = version_of("privmix")
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "_site.pages",
    "_site.reference",
    "_site.sample",
    "_site.terms",
    "_site.accessible",
]
exclude_patterns = ["_build", "gallery", "generated/files"]
sphinx_gallery_conf = CONF
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = False
# A page of names begins with a table of them: the same list beside it made every page of the site twice as dear.
toc_object_entries = False

# Headings have the anchors that other readers of Markdown give them.
myst_heading_anchors = 4
suppress_warnings = []

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Formal guarantees", ("Options", "params_style")]

html_theme = "furo"
html_title = "privmix"
html_static_path = ["_static"]
html_extra_path = ["generated/files"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False}
