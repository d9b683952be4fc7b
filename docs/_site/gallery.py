"""The gallery: in which order its examples stand, and how they are run."""

from __future__ import annotations

import os
from typing import Any, Final

# From what most people want to what few do.
ORDER: Final = (
    "table.py",
    "texts.py",
    "images.py",
    "signed_folder.py",
    "certificate.py",
    "false_claim.py",
    "training.py",
    "poisoning.py",
    "own_design.py",
)


class InOrder:
    """Sorts a folder's examples."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        return ORDER.index(name)


CONF: Final[dict[str, Any]] = {
    "examples_dirs": "gallery",
    "gallery_dirs": "generated/gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "_site.gallery.InOrder",
    "abort_on_example_error": True,
    # Those that have not changed are not run again, unless asked for: what they show may have changed.
    "run_stale_examples": bool(os.environ.get("PRIVMIX_GALLERY_ANEW")),
    "write_computation_times": False,
    "min_reported_time": 1,
    "show_memory": False,
    "show_signature": False,
    "plot_gallery": "True",
}
