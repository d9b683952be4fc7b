"""The sample report and certificate: `privmix demo`, run when the site is built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

from _site.pages import GENERATED, written

# Below `html_extra_path`: the report is a page of its own. docs/sample.md shows the other files.
FILES = GENERATED / "files" / "sample"
COPIED = ("report.html", "release/certificate.json", "release/README.md")


def make() -> None:
    """Run the demo, unless its files are there and nothing asks for new ones."""
    if FILES.exists() and not os.environ.get("PRIVMIX_GALLERY_ANEW"):
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "privmix", "demo"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        FILES.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            shutil.copy(Path(folder) / "demo-output" / name, FILES)
    written(FILES / "output.txt", done.stdout.replace(folder, "."))


def setup(app: Sphinx) -> dict[str, bool]:
    # Sphinx drops an extra path that is not there when it reads its configuration.
    FILES.parent.mkdir(parents=True, exist_ok=True)
    app.connect("builder-inited", lambda _: make())
    return {"parallel_read_safe": True}
