"""``privmix attack poisoning``: what an attacker who controls some records reaches against a defence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from privmix.cli.groups import attack
from privmix.cli.verb import add_command
from privmix.commands.base import Command, Facts, function
from privmix.errors import InvalidInput
from privmix.jobs.options import Recorded
from privmix.options import option
from privmix.plugins import literals_of
from privmix.progress import Progress
from privmix.research.options import values_of
from privmix.research.poisoning.options import PoisoningOptions

if TYPE_CHECKING:
    from privmix.research.poisoning.job import PoisoningResults as Found

_KNOWN: Final = {"attack": "privmix.research.poisoning.poisons", "defence": "privmix.research.poisoning.defences"}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Poisoning(PoisoningOptions, Recorded, Command["Found | Facts"]):
    """Poison records, train with a defence, and measure the attacker's success.

    All defences meet the same trials. Next to each rate stands the most that the defence's guarantee allows. Give
    `design`, `epsilon` and `delta` to attack releases. The figures are private unless the data are public.
    """

    example = "privmix attack poisoning --data mnist --attack patch-backdoor --defence none,mixup:4 --records 2000"
    panel = "Research"

    data: Any = option(None, "Labelled images: file, folder, pattern or address.", common=True)
    known: bool = option(False, "List attacks and defences, and stop.", flag="list")

    def run(self, progress: Progress) -> Found | Facts:
        """Attack, or list what there is in the registries' own words."""
        if self.known:
            listed = {
                f"{kind} {said['name']}": said["about"]
                for kind, package in _KNOWN.items()
                for said in literals_of(package)
            }
            more = "settings stand behind a colon (mixup:4); changes of batches are joined by + (mixup:4+noise:16)"
            return Facts("attacks and defences", listed, (more,), listed)
        if self.data is None:
            raise InvalidInput("data", None, "images with labels")
        self.check_record()
        from privmix.research.poisoning.job import PoisoningJob

        return PoisoningJob(**values_of(PoisoningJob, self)).run(progress)


add_command(attack, Poisoning, Poisoning.panel)
poison: Final = function(Poisoning, "poison")
