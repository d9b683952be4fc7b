"""A training run that outlives a kill: a run (see :mod:`privmix.mechanisms.run`) that keeps checkpoints.

Beside key and notes, its folder holds

* ``run.execution``: the gradient strategy and the chunk, where they were chosen by measurement;
* ``run.state``: weights, optimiser and step, replaced as a whole.

Batches, views and noise are functions of the key and the step. Steps after the last checkpoint are therefore done
again with the very noise they had: nothing is drawn twice, and the final weights are those of a run without the kill
(on the CPU, bit for bit, with as many threads; on GPUs up to the order in which they add).
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
from privmix.mechanisms.run_place import Stated
from privmix.training.certificate import WEIGHTS_FILE
from privmix.training.trained import MODEL_FILE
from privmix.untrusted import read_json

MODEL_FOLDER: Final = FolderKind("out", "a trained model", frozenset({MODEL_FILE, CERTIFICATE_FILE}))
_EXECUTION, _STATE = "run.execution", "run.state"
_STEP: Final = "step"
# Seconds between checkpoints.
_EVERY: Final = 30.0


class TrainingRun(Run):
    """The run that makes a trained model; arguments, guarantees and errors are those of :class:`Run`.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "model"
        >>> with TrainingRun(out, {"epochs": 3}) as run:
        ...     run.save(1, lambda: {"weights": torch.ones(2)}, now=True)
        >>> with TrainingRun(out, {"epochs": 3}, resume=True) as run:
        ...     step, state = run.load()
        >>> step, state["weights"].tolist()
        (1, [1.0, 1.0])
    """

    kind: ClassVar = MODEL_FOLDER
    packages: ClassVar = (*Run.packages, "torch")
    _saved_at: float | None = None

    @property
    def leaves(self) -> frozenset[str]:
        """See :attr:`Run.leaves`."""
        return frozenset({_EXECUTION, _STATE, MODEL_FILE, WEIGHTS_FILE})

    @classmethod
    def stated(cls, folder: Path) -> Stated:
        """See :meth:`Run.stated`."""
        found = read_json(folder / CERTIFICATE_FILE, CERTIFICATE_FILE)
        try:
            # What the certificate says at places of its own.
            settings = {**found["settings"], "plan": found["plan"], "public_data": found["public_data"]}
            files = {WEIGHTS_FILE: str(found["files"][0]["sha256"]), MODEL_FILE: None, CERTIFICATE_FILE: None}
            return Stated(str(found["id"]), settings, files)
        except (KeyError, TypeError, IndexError):
            raise InvalidInput(CERTIFICATE_FILE, "other content", "the certificate of a trained model") from None

    def once(self, choose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``choose`` gave when the run first asked, as JSON values: choices by measurement are made once a run."""
        kept = self.kept(_EXECUTION)
        if kept is None:
            kept = json.dumps(choose()).encode()
            self.keep(_EXECUTION, kept)
        found: dict[str, Any] = json.loads(kept)
        return found

    def load(self) -> tuple[int, dict[str, Tensor]]:
        """Steps that are done, and the state after them; (0, {}) for a run that has no checkpoint.

        Raises:
            StorageError: the checkpoint can't be read.
            InvalidInput: it is not as it was written.
        """
        kept = self.kept(_STATE)
        return (0, {}) if kept is None else unpack_state(kept)

    def save(self, step: int, state: Callable[[], Mapping[str, Tensor]], *, now: bool = False) -> None:
        """Keep the state after ``step`` steps, if the last time was long enough ago or ``now``."""
        if self._saved_at is None:
            self._saved_at = time.monotonic()
        if now or time.monotonic() - self._saved_at >= _EVERY:
            self.keep(_STATE, pack_state(step, state()))
            self._saved_at = time.monotonic()


def pack_state(step: int, state: Mapping[str, Tensor]) -> bytes:
    """A checkpoint as bytes."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return bytes(dump_tensors({**tensors, _STEP: torch.tensor(step)}))


def unpack_state(content: bytes) -> tuple[int, dict[str, Tensor]]:
    """Inverse of :func:`pack_state`.

    Example:
        >>> unpack_state(pack_state(3, {"weights": torch.zeros(1)}))
        (3, {'weights': tensor([0.])})
    """
    tensors = load_tensors(content)
    return int(tensors.pop(_STEP)), tensors
