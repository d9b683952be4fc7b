"""``privmix synthesise``: a pool of synthetic images from public ones."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.cli.app import app
from privmix.cli.verb import add_command
from privmix.commands.base import Command, function
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.research.options import values_of
from privmix.research.synthesis.options import SynthesisOptions
from privmix.world import is_first

if TYPE_CHECKING:
    from privmix.research.synthesis.job import Synthesised


@dataclass(frozen=True, eq=False, repr=False)
class Synthesise(SynthesisOptions, NewFile, Command["Synthesised"]):
    """Train a diffusion model on PUBLIC images and draw others.

    `synthetic` and `pool` of privmix train take the output. Reads no private record and spends no privacy. Models:
    EDM (Karras et al. 2022), with `guidance` (Kim et al. 2023), or DDPM (Ho et al. 2020). `text` uses a text-to-
    image pipeline instead. The same command resumes a stopped run.

    Raises:
        InvalidInput: an option is out of range, the data are no images, the ledger knows them as private, or it knows
            no data at all.
        StorageError: something can't be read or written.
        MissingExtra: diffusers or torchmetrics is not installed.

    Example:
        >>> synthesise("PUBLIC.npz", out="POOL", images=0)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: images: got 0; allowed: an integer >= 1
    """

    example = "privmix synthesise --public PUBLIC.npz --images 10000 --out POOL --minutes 30 --precision bfloat16"
    panel = "Research"

    public: Any = option(None, "PUBLIC labelled images, never private ones.", common=True)
    _: KW_ONLY
    out: str | Path = option(MISSING, "Folder to create.")

    @property
    def prints(self) -> bool:
        return is_first()

    def run(self, progress: Progress) -> Synthesised:
        from privmix.research.synthesis.job import SynthesisJob

        return SynthesisJob(**values_of(SynthesisJob, self)).run(progress)


synthesise: Final = function(Synthesise)
add_command(app, Synthesise, Synthesise.panel)
