"""``privmix attack inversion``: what images an attacker gets out of released rows."""

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
from privmix.research.inversion.options import InversionOptions

if TYPE_CHECKING:
    from privmix.research.inversion.job import InversionResult as Found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Inversion(InversionOptions, Recorded, Command["Found"]):
    """Recover images from mixed features, with and without noise.

    The attacker knows extractor, plan and number of members (He et al. 2019; Li et al. 2022, appendix G), and
    practises on half of `data`. Figures and pictures show the data: keep them private unless the data are public.
    With RELEASE, its plan is attacked.
    """

    example = "privmix attack inversion --data mnist --features scattering --records 60000 --figure inversion.png"
    panel = "Research"

    release: Path | None = option(
        None, "Release whose plan, extractor and mean to attack, instead of options.", argument=True
    )
    data: Any = option(MISSING, "Labelled images that the rows are mixed from.")
    split: str | None = option("test", InversionOptions.__dataclass_fields__["split"].metadata["help"])

    def run(self, progress: Progress) -> Found:
        self.check_record()
        from privmix.research.inversion.job import invert_rows

        return invert_rows(self, self.release, self.data, progress)


add_command(attack, Inversion, Inversion.panel)
invert: Final = function(Inversion, "invert")
