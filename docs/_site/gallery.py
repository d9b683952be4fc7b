"""The gallery: in which order its examples stand, and how they are run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, Final

from matplotlib import pyplot
from matplotlib.figure import Figure

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


def scrape(block: Any, values: dict[str, Any], conf: dict[str, Any]) -> str:
    """Save a block's figures, and the last of them again as the example's thumbnail."""
    from sphinx_gallery.scrapers import matplotlib_scraper

    if pyplot.get_fignums():
        name = Path(values["src_file"]).stem
        _save_small(pyplot.gcf(), Path(conf["src_dir"]) / "generated" / "gallery" / "small" / f"{name}.png")
    return str(matplotlib_scraper(block, values, conf))


def _save_small(figure: Figure, path: Path) -> None:
    """Draw for the size of a card: curves and bars, at most three numbers an axis, no words."""
    small = pickle.loads(pickle.dumps(figure))
    small.set_size_inches(4, 2.8)
    small.suptitle("")
    for axes in small.axes:
        axes.set(title="", xlabel="", ylabel="")
        if axes.get_legend():
            axes.get_legend().remove()
        axes.minorticks_off()
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            places = axis.get_ticklocs()
            words = map(str, axis.get_major_formatter().format_ticks(places))
            ticks = [(place, word) for place, word in zip(places, words, strict=True) if low <= place <= high]
            kept = [ticks[0], ticks[len(ticks) // 2], ticks[-1]] if len(ticks) > 3 else ticks
            numbers = [word if len(word) < 8 and any(map(str.isdigit, word)) else "" for _, word in kept]
            axis.set_ticks([place for place, _ in kept], numbers)
        axes.tick_params(labelsize=22, width=2)
        for line in axes.lines:
            line.set_linewidth(4)
            line.set_markersize(12)
    path.parent.mkdir(parents=True, exist_ok=True)
    small.savefig(path, dpi=100)
    pyplot.close(small)


CONF: Final[dict[str, Any]] = {
    "examples_dirs": "gallery",
    "gallery_dirs": "generated/gallery",
    "image_scrapers": ("_site.gallery.scrape",),
    "remove_config_comments": True,
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
