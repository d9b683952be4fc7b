"""A training run that survives a kill: a run (:mod:`privmix.mechanisms.run`) with checkpoints.

In addition to key and notes, its folder holds

* ``run.execution``: the gradient strategy and the chunk, where they were chosen by measurement;
* ``run.state``: weights, optimiser and step, replaced as a whole.

Batches, views and noise are functions of the key and the step. A resumed run repeats the steps after its last
checkpoint with the same noise: the final weights are those of a run without the kill. On the CPU this is bit for bit,
with as many threads; on GPUs up to the order of additions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from privmix.certificate.certificate import CERTIFICATE_FILE
from privmix.errors import InvalidInput
from privmix.folders import FolderKind
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_place import CertifiedContents
from privmix.training.card import FOLDER_CARD_FILE
from privmix.training.certificate import WEIGHTS_FILE
from privmix.training.trained import MODEL_FILE
from privmix.untrusted import read_json

MODEL_FOLDER: Final = FolderKind("out", "a trained model", frozenset({MODEL_FILE, CERTIFICATE_FILE}))
_EXECUTION, _STATE = "run.execution", "run.state"
_STEP: Final = "step"
# Seconds between checkpoints.
CHECKPOINT_SECONDS: Final = 30.0


class TrainingRun(Run):
    """The run that makes a trained model; arguments, guarantees and errors are those of :class:`Run`."""

    kind: ClassVar = MODEL_FOLDER
    packages: ClassVar = (*Run.packages, "torch")
    _saved_at: float | None = None

    @property
    def leaves(self) -> frozenset[str]:
        return frozenset({_EXECUTION, _STATE, MODEL_FILE, WEIGHTS_FILE, FOLDER_CARD_FILE})

    @classmethod
    def stated(cls, folder: Path) -> CertifiedContents:
        found = read_json(folder / CERTIFICATE_FILE, CERTIFICATE_FILE)
        try:
            # Settings that the certificate has at places of its own.
            settings = {**found["settings"], "plan": found["plan"], "public_data": found["public_data"]}
            files: dict[str, str | None] = {WEIGHTS_FILE: str(found["files"][0]["sha256"]), MODEL_FILE: None}
            files[CERTIFICATE_FILE] = None
            # Runs that an earlier build finished have no card.
            files |= {FOLDER_CARD_FILE: None} if (folder / FOLDER_CARD_FILE).is_file() else {}
            return CertifiedContents(str(found["id"]), settings, files)
        except (KeyError, TypeError, IndexError):
            raise InvalidInput(CERTIFICATE_FILE, "other content", "the certificate of a trained model") from None

    def once(self, choose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the first result of ``choose``, as JSON values: choices by measurement are made once a run."""
        kept = self.kept(_EXECUTION)
        if kept is None:
            kept = json.dumps(choose()).encode()
            self.keep(_EXECUTION, kept)
        found: dict[str, Any] = json.loads(kept)
        return found

    def load(self) -> tuple[int, dict[str, Tensor]]:
        """Completed steps, and the state after them; (0, {}) for a run without a checkpoint."""
        kept = self.kept(_STATE)
        return (0, {}) if kept is None else unpack_state(kept)

    def save(self, step: int, state: Callable[[], Mapping[str, Tensor]], *, now: bool = False) -> None:
        """Keep the state after ``step`` steps, if the last time was long enough ago or ``now``."""
        if self._saved_at is None:
            self._saved_at = time.monotonic()
        if now or time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS:
            self.keep(_STATE, pack_state(step, state()))
            self._saved_at = time.monotonic()


def pack_state(step: int, state: Mapping[str, Tensor]) -> bytes:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return bytes(dump_tensors({**tensors, _STEP: torch.tensor(step)}))


def unpack_state(content: bytes) -> tuple[int, dict[str, Tensor]]:
    tensors = load_tensors(content)
    return int(tensors.pop(_STEP)), tensors
