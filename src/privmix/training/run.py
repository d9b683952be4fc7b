"""A training run that outlives a kill: a private folder beside the model's place, gone when the run is done.

``.NAME.run``, for its owner only, holds

* ``run.key``: the secret key, on disk before the first batch is drawn;
* ``run.json``: the settings, and what the caller must find again, such as a reservation;
* ``run.data``: a keyed digest of the records, so that one key never serves two datasets;
* ``state.safetensors``: weights, optimiser and step, replaced as a whole.

Batches, views and noise are functions of the key and the step. Steps after the last checkpoint are therefore done
again with the very noise they had: nothing is drawn twice, and the final weights are those of a run without the kill.
"""

from __future__ import annotations

import hmac
import json
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from privmix.errors import WITHHELD, InvalidInput, StorageError
from privmix.folders import FolderKind, PathLock, sync_folder, write_durably
from privmix.mechanisms.streams import SecretStreams, shred
from privmix.training.records import TrainingRecords

MODEL_FOLDER: Final = FolderKind("--out", "a trained model", frozenset({"model.json", "certificate.json"}))
_KEY, _RUN, _DATA, _STATE = "run.key", "run.json", "run.data", "state.safetensors"
_STEP: Final = "step"
_EVERY: Final = 30.0


class TrainingRun:
    """The run that makes ``out``; use it in ``with``. Leaving the block by an error keeps the folder for ``resume``.

    Formal guarantees:
        * One key, one dataset: a run goes on only with the records that it began with.
        * One key, one setting: it goes on only with the settings that it began with.
        * The key is gone once the model is in place, and not before.

    Args:
        out: the model's folder; nothing is there before the run is done.
        settings: JSON values; everything that decides the result.
        streams: secret streams, destroyed at the end; None takes a fresh key. A resumed run has its own.
        extra: what the caller wants to find again with :func:`read_run`.
        overwrite: a model at ``out`` is replaced; an interrupted run is discarded unless ``resume``.
        resume: go on with the interrupted run.

    Raises:
        InvalidInput: ``out`` exists; there is an interrupted run and neither flag is given; there is none to resume, or
            it has other settings; another process works on it.
        StorageError: the folder can't be written.
    """

    def __init__(
        self,
        out: str | Path,
        settings: Mapping[str, Any],
        *,
        streams: SecretStreams | None = None,
        extra: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        self.out = Path(out)
        self._overwrite = overwrite
        self._folder = _run_folder(self.out)
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._lock = PathLock(self._folder, InvalidInput("--out", str(out), "a folder that no other run is making"))
        except OSError as error:
            raise StorageError(f"--out: can't write {out}: {error.strerror}") from None
        try:
            self._open(json.loads(json.dumps(dict(settings))), streams, dict(extra or {}), overwrite, resume)
        except OSError as error:
            self._lock.release()
            raise StorageError(f"--out: can't write {out}: {error.strerror}") from None
        except BaseException:
            self._lock.release()
            raise
        self._saved_at = time.monotonic()

    def _open(
        self,
        settings: dict[str, Any],
        streams: SecretStreams | None,
        extra: dict[str, Any],
        overwrite: bool,
        resume: bool,
    ) -> None:
        self._end_if_published()
        MODEL_FOLDER.check_target(self.out, overwrite=overwrite)
        exists = (self._folder / _RUN).is_file()
        if exists and not resume and not overwrite:
            raise InvalidInput("--out", str(self.out), "--resume to go on with the interrupted run, or --overwrite")
        if resume:
            if not exists:
                raise InvalidInput("--resume", str(self.out), "the --out of an interrupted run; there is none here")
            found = read_run(self.out)
            assert found is not None
            self.check_settings(found, settings)
            self.id, self.extra = str(found["id"]), dict(found["extra"])
            self.streams = SecretStreams.load(self._folder / _KEY)
            return
        self.discard()
        self._folder.mkdir(mode=0o700)
        self.id, self.extra = uuid.uuid4().hex, extra
        self.streams = SecretStreams.from_entropy() if streams is None else streams
        self.streams.save(self._folder / _KEY)
        content = {"id": self.id, "settings": settings, "extra": extra}
        write_durably(self._folder / _RUN, json.dumps(content, indent=1).encode())
        sync_folder(self._folder.parent)

    def _end_if_published(self) -> None:
        """End a run that was killed after its model was in place and before its key was gone."""
        run = read_run(self.out)
        if run is None:
            return
        try:
            made = json.loads((self.out / "certificate.json").read_text(encoding="utf-8"))["model_id"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        if made == run["id"]:
            self.discard()

    @staticmethod
    def check_settings(run: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInput` unless an interrupted run (see :func:`read_run`) has these settings."""
        _check_same(run["settings"], json.loads(json.dumps(dict(settings))))

    def bind(self, records: TrainingRecords) -> None:
        """Note which records the key serves; call it before the first batch.

        Raises:
            InvalidInput: a resumed run began with other records.
        """
        digest = records.digest(self.streams.derive("record digest").share())
        path = self._folder / _DATA
        if path.exists():
            if not hmac.compare_digest(path.read_text(encoding="ascii"), digest):
                raise InvalidInput("--data", WITHHELD, "the records that the interrupted run began with, unchanged")
            return
        write_durably(path, digest.encode())

    def load(self) -> tuple[int, dict[str, Tensor]]:
        """Steps that are done, and the state after them; (0, {}) for a run that has no checkpoint."""
        path = self._folder / _STATE
        if not path.exists():
            return 0, {}
        try:
            state = load_tensors(path.read_bytes())
            return int(state.pop(_STEP)), state
        except (SafetensorError, KeyError, ValueError):
            raise StorageError(
                f"{self._folder.name}: the checkpoint is damaged; start again with --overwrite"
            ) from None

    def save(self, step: int, state: Callable[[], Mapping[str, Tensor]], *, now: bool = False) -> None:
        """Keep the state after ``step`` steps, if the last time was long enough ago or ``now``."""
        if not now and time.monotonic() - self._saved_at < _EVERY:
            return
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state().items()}
        tensors[_STEP] = torch.tensor(step)
        try:
            write_durably(self._folder / _STATE, dump_tensors(tensors))
        except OSError as error:
            raise StorageError(f"checkpoint: can't write it beside {self.out}: {error.strerror}") from None
        self._saved_at = time.monotonic()

    def publish(self, write: Callable[[Path], None]) -> None:
        """Put the model that ``write`` writes into a folder in its place, whole, and end the run and its key."""
        with MODEL_FOLDER.new(self.out, overwrite=self._overwrite) as draft:
            write(draft)
        self.discard()

    def discard(self) -> None:
        """Overwrite the key, and remove what is kept of the run."""
        if not self._folder.exists():
            return
        shred(self._folder / _KEY)
        shutil.rmtree(self._folder)

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.streams.destroy()
        self._lock.release()


def read_run(out: str | Path) -> dict[str, Any] | None:
    """``id``, ``settings`` and ``extra`` of the interrupted run that would make ``out``, or None. Changes nothing.

    Raises:
        StorageError: its notes are damaged.
    """
    path = _run_folder(Path(out)) / _RUN
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not {"id", "settings", "extra"} <= set(found):
        raise StorageError(f"{path}: damaged; start again with --overwrite")
    return found


def _run_folder(out: Path) -> Path:
    return out.with_name(f".{out.name}.run")


def _check_same(kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    differing = sorted(name for name in {*kept, *given} if kept.get(name) != given.get(name))
    if differing:
        name = differing[0]
        allowed = f"{kept.get(name)!r}, as in the interrupted run"
        more = "" if len(differing) == 1 else f"; also different: {', '.join(differing[1:])}"
        raise InvalidInput(f"--resume with {name}", given.get(name), allowed + more)


def as_arrays(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Numbers and arrays of a method's state as tensors, so that they can be kept with the weights."""
    return {
        name: value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
        for name, value in state.items()
    }
