"""A trained network for programs that have torch and not privmix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.jobs.options import MODULE_HELP, NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.jobs.models import Model

_LINES: Final = {
    ".pt2": "torch.export.load({file}).module()(x)",
    ".safetensors": "net.load_state_dict(safetensors.torch.load_file({file}))",
}


@dataclass(frozen=True, repr=False)
class Exported(Shown):
    """A network in a file."""

    out: Path

    @property
    def line(self) -> str:
        return _LINES[self.out.suffix.lower()].format(file=repr(str(self.out)))

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return "Network written", {"file": self.out, "in torch": self.line}

    def to_dict(self) -> dict[str, Any]:
        return {"out": str(self.out), "in_torch": self.line}


@dataclass(frozen=True, eq=False, repr=False)
class Export(NewFile, Command[Exported]):
    """Write a trained network to a file without privmix.

    Formats: .pt2 (torch.export) and .safetensors (weights alone). The network maps images (b, C,
    H, W) in [0, 1], or features (b, d), to logits. The file has no certificate and is as private as the model.

    Raises:
        InvalidInput: another ending, a file that is there, a place in a model's folder; the model was fitted on a
            release; or its network can't be written so.
        StorageError: something can't be read or written.
    """

    example = "privmix export MODEL --out net.pt2"

    model: Model | str | Path = option(MISSING, "Folder of a model from privmix train.", argument=True)
    out: str | Path = option(MISSING, "File to write: .pt2 or .safetensors.")
    _: KW_ONLY
    module: Any = option(None, MODULE_HELP)

    def run(self, progress: Progress) -> Exported:
        from privmix.jobs.models import model_in

        return Exported(model_in(self.model, module=self.module).export(self.out, overwrite=self.overwrite))


export: Final = function(Export)
