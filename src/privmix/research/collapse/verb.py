"""``privmix attack collapse``: whether classes survive mixing and noise, on a public proxy."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.cli.groups import attack
from privmix.cli.verb import add_command
from privmix.commands.base import Command, function
from privmix.jobs.options import Recorded
from privmix.options import option
from privmix.progress import Progress
from privmix.research.collapse.options import CollapseOptions

if TYPE_CHECKING:
    from privmix.research.collapse.job import CollapseResult as Found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Collapse(CollapseOptions, Recorded, Command["Found"]):
    """Measure on public data how well classes survive mixing.

    Reports neural collapse and the least distance of mixed pairs to other classes (Li et al. 2024, Figures 2 and
    14). Mixed labels are drawn as Poisson and hierarchical releases of the budget mix them. Reads no private data.
    """

    example = (
        "privmix attack collapse --data mnist --features scattering --epsilon 8 --records 60000 --figure labels.png"
    )
    panel = "Research"

    release: Path | None = option(None, "Release whose plan and extractor to judge, instead of options.", argument=True)
    data: Any = option(MISSING, "PUBLIC dataset like the private one, never private data.")

    def run(self, progress: Progress) -> Found:
        self.check_record()
        from privmix.research.collapse.job import measure

        return measure(self, self.release, self.data, progress)


add_command(attack, Collapse, Collapse.panel)
measure_collapse: Final = function(Collapse, "measure_collapse")
