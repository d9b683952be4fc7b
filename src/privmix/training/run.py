"""A training run that outlives a kill: a private folder beside the model's place, gone when the run is done.

``.NAME.run``, for its owner only, holds

* ``run.key``: the secret key, on disk before the first batch is drawn;
* ``run.json``: the settings, and what the caller must find again, such as a reservation;
* ``run.data``: a keyed digest of the records, so that one key never serves two datasets;
* ``run.execution``: the gradient strategy and the chunk, where they were chosen by measurement;
* ``run.state``: weights, optimiser and step, replaced as a whole.

All but the key carry a seal that only the key makes.

Batches, views and noise are functions of the key and the step. Steps after the last checkpoint are therefore done
again with the very noise they had: nothing is drawn twice, and the final weights are those of a run without the kill
(on the CPU, bit for bit, with as many threads; on GPUs up to the order in which they add).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from privmix.errors import WITHHELD, InvalidInput, PrivmixError, StorageError
from privmix.folders import FolderKind, PathLock, sync_folder
from privmix.mechanisms.run_folder import KEY_FILE, NOTES_FILE, RunFolder, run_folder_of, sealed, unsealed
from privmix.mechanisms.streams import SecretStreams
from privmix.training.records import TrainingRecords
from privmix.untrusted import read_json

MODEL_FOLDER: Final = FolderKind("out", "a trained model", frozenset({"model.json", "certificate.json"}))
_DATA, _EXECUTION, _STATE = "run.data", "run.execution", "run.state"
_LEFT: Final = frozenset({KEY_FILE, NOTES_FILE, _DATA, _EXECUTION, _STATE, "state.safetensors"})
_SEAL_BYTES: Final = 64
_MOST_NOTES: Final = 2**24
_STEP, _HASH = "step", "sha256"
# Under another version of these, the same key may give other draws.
_PACKAGES: Final = ("privmix", "numpy", "randomgen", "torch")
_NOTES: Final = {"id": str, "settings": dict, "extra": dict, "made_with": dict}
# Seconds between checkpoints.
_EVERY: Final = 30.0


class TrainingRun:
    """The run that makes ``out``; use it in ``with``. Leaving the block by an error keeps the folder for ``resume``.

    Formal guarantees:
        * One key, one dataset: a run goes on only with the records that it began with.
        * One key, one setting: it goes on only with the settings that it began with, in the versions it began with.
        * Same bits: killed anywhere, it ends with the weights that it would have had without the kill.
        * For the owner: the folder and the key can be read by nobody else, and the key is in no published file; a
          folder that others can enter, or a link in its place, is neither used nor emptied.
        * Sealed: settings, choices and checkpoints that were changed since the key sealed them are refused.
        * The key is gone once the model is in place, and not before.

    Args:
        out: the model's folder; nothing is there before the run is done.
        settings: JSON values; everything that decides the result.
        streams: secret streams, destroyed at the end; None takes a fresh key. A resumed run has its own, and those
            given are destroyed.
        extra: what the caller wants to find again with :func:`read_run`.
        overwrite: a model at ``out`` is replaced; an interrupted run is discarded unless ``resume``.
        resume: go on with the interrupted run.

    Raises:
        InvalidInput: ``out`` exists; there is an interrupted run and neither flag is given; there is none to resume, or
            it has other settings; another process works on it.
        StorageError: the folder can't be written, or what it holds is damaged.

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
        self._held: RunFolder | None = None
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self._lock = PathLock(run_folder_of(self.out), _busy(out))
        except OSError as error:
            raise StorageError(f"out: can't write {out}: {error.strerror}") from None
        try:
            self._open(json.loads(json.dumps(dict(settings))), streams, dict(extra or {}), overwrite, resume)
        except OSError as error:
            self._lock.release()
            raise StorageError(f"out: can't write {out}: {error.strerror}") from None
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
        left = RunFolder.find(self.out, "out")
        if left is not None:
            with left:
                if not left.has(NOTES_FILE):
                    # Killed before its notes were made or after they were removed: nothing here can go on.
                    left.end(_LEFT)
        fresh = overwrite and not resume
        if _end_if_published(self.out, damaged_too=fresh) and resume:
            raise InvalidInput("resume", str(self.out), "an interrupted run; this one was done")
        MODEL_FOLDER.check_target(self.out, overwrite=overwrite)
        self._held = RunFolder.find(self.out, "out")
        if self._held is not None and not resume and not overwrite:
            # Say so now if it can't go on at all.
            _notes(self._held)[1].destroy()
            raise InvalidInput("out", str(self.out), "`resume` to go on with the interrupted run, or `overwrite`")
        if resume:
            if self._held is None:
                raise InvalidInput("resume", str(self.out), "the `out` of an interrupted run; there is none here")
            found, self.streams = _notes(self._held)
            self.check_settings(found, settings)
            self.id, self.extra = str(found["id"]), dict(found["extra"])
            if streams is not None:
                streams.destroy()
            return
        self.discard()
        self._held = RunFolder(self.out, "out", create=True)
        self.id, self.extra = uuid.uuid4().hex, extra
        self.streams = SecretStreams.from_entropy() if streams is None else streams
        self._held.save_key(self.streams)
        content = {"id": self.id, "settings": settings, "extra": extra, "made_with": _versions()}
        self._held.write_notes(self.streams, content)
        sync_folder(self.out.parent)

    @staticmethod
    def check_target(out: str | Path, *, overwrite: bool) -> None:
        """Raise :class:`InvalidInput` unless ``out`` is free or may be replaced: what opening a run asks, beforehand.

        A run that was killed after its model was in place and before its key was gone is ended here.
        """
        folder = RunFolder.find(Path(out), "out")
        if folder is not None:
            folder.close()
            PathLock(folder.path, _busy(out)).release()
        _end_if_published(Path(out), damaged_too=overwrite)
        MODEL_FOLDER.check_target(Path(out), overwrite=overwrite)

    @staticmethod
    def check_settings(run: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInput` unless an interrupted run (see :func:`read_run`) has these settings."""
        _check_same(run["settings"], json.loads(json.dumps(dict(settings))))
        _check_same({"made_with": run["made_with"]}, {"made_with": _versions()})

    def bind(self, records: TrainingRecords) -> None:
        """Note which records the key serves; call it before the first batch.

        Raises:
            InvalidInput: a resumed run began with other records.
        """
        digest = records.digest(self.streams.derive("record digest").share())
        if self._folder.has(_DATA):
            if not hmac.compare_digest(self._folder.read(_DATA, _MOST_NOTES), digest.encode()):
                raise InvalidInput("data", WITHHELD, "the records that the interrupted run began with, unchanged")
            return
        self._write(_DATA, digest.encode())

    def once(self, choose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``choose`` gave when the run first asked, as JSON values: choices by measurement are made once a run."""
        if self._folder.has(_EXECUTION):
            try:
                return unsealed(self.streams, _EXECUTION, self._folder.read(_EXECUTION, _MOST_NOTES))
            except InvalidInput:
                raise _damaged(self._folder, _EXECUTION) from None
        chosen = choose()
        self._write(_EXECUTION, sealed(self.streams, _EXECUTION, chosen))
        return chosen

    def load(self) -> tuple[int, dict[str, Tensor]]:
        """Steps that are done, and the state after them; (0, {}) for a run that has no checkpoint.

        Raises:
            StorageError: the checkpoint can't be read, or is not as it was written.
        """
        if not self._folder.has(_STATE):
            return 0, {}
        try:
            with self._folder.open(_STATE) as stream:
                content = stream.read()
            seal, packed = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
            # From other weights, the noise of the steps to come would be added to other sums.
            if not hmac.compare_digest(seal, self.streams.seal(_STATE, packed).encode()):
                raise ValueError
            return unpack_state(packed)
        except OSError as error:
            raise StorageError(f"{self._folder.path / _STATE}: {error.strerror}") from None
        except ValueError:
            raise _damaged(self._folder, _STATE) from None

    def save(self, step: int, state: Callable[[], Mapping[str, Tensor]], *, now: bool = False) -> None:
        """Keep the state after ``step`` steps, if the last time was long enough ago or ``now``."""
        if not now and time.monotonic() - self._saved_at < _EVERY:
            return
        packed = pack_state(step, state())
        self._write(_STATE, self.streams.seal(_STATE, packed).encode() + packed)
        self._saved_at = time.monotonic()

    def _write(self, name: str, content: bytes) -> None:
        try:
            self._folder.write(name, content)
        except OSError as error:
            raise StorageError(f"{name}: can't write it beside {self.out}: {error.strerror}") from None

    def publish(self, write: Callable[[Path], None]) -> None:
        """Put the model that ``write`` writes into a folder in its place, whole, and end the run and its key."""
        with MODEL_FOLDER.new(self.out, overwrite=self._overwrite) as draft:
            write(draft)
        try:
            sync_folder(self.out.parent)
            self.discard()
        except OSError as error:
            place = run_folder_of(self.out)
            raise StorageError(f"{place}: the model is in place, but its key is not gone: {error}") from None

    def discard(self) -> None:
        """Overwrite the key, and remove what is kept of the run."""
        if self._held is not None:
            self._held.end(_LEFT)
            self._held = None

    @property
    def _folder(self) -> RunFolder:
        if self._held is None:
            raise RuntimeError("this run is over")
        return self._held

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.streams.destroy()
        if self._held is not None:
            self._held.close()
        self._lock.release()


def read_run(out: str | Path) -> dict[str, Any] | None:
    """``id``, ``settings`` and ``extra`` of the interrupted run that would make ``out``, or None. Changes nothing.

    Raises:
        InvalidInput: a folder of that name is not this user's alone.
        StorageError: its notes are damaged, or were changed since the key sealed them, or the key is gone.
    """
    try:
        folder = RunFolder.find(Path(out), "out")
        if folder is None:
            return None
        with folder:
            if not folder.has(NOTES_FILE):
                return None
            found, streams = _notes(folder)
    except OSError as error:
        raise StorageError(f"{run_folder_of(Path(out))}: {error.strerror or type(error).__name__}") from None
    streams.destroy()
    return found


def _notes(folder: RunFolder) -> tuple[dict[str, Any], SecretStreams]:
    """A run's notes, once its key has shown that they are unchanged, and the key."""
    try:
        streams = folder.load_key()
    except (FileNotFoundError, InvalidInput):
        # Killed while it was being discarded: the key is the first thing to go.
        gone = "the key is gone or not the owner's alone"
        raise StorageError(f"{folder.path.name}: {gone}; start again with `overwrite`") from None
    try:
        found = folder.read_notes(streams)
    except InvalidInput:
        found = {}
    if any(not isinstance(found.get(name), kind) for name, kind in _NOTES.items()):
        streams.destroy()
        raise _damaged(folder, NOTES_FILE)
    return found, streams


def _damaged(folder: RunFolder, name: str) -> StorageError:
    return StorageError(f"{folder.path / name}: damaged, changed or of another version; start again with `overwrite`")


def _busy(out: str | Path) -> InvalidInput:
    return InvalidInput("out", str(out), "a folder that no other run is making")


def _end_if_published(out: Path, *, damaged_too: bool) -> bool:
    """End a run that was killed after its model was in place and before its key was gone; say whether it was."""
    folder = RunFolder.find(out, "out")
    if folder is None:
        return False
    with folder:
        if not folder.has(NOTES_FILE):
            return False
        try:
            # The key may be gone already. Changed notes could only end a run that its owner asks for again.
            run = folder.read_unsealed().get("id")
        except InvalidInput:
            if not damaged_too:
                raise _damaged(folder, NOTES_FILE) from None
            return False
        try:
            made = read_json(out / "certificate.json", "certificate")["model_id"]
        except (PrivmixError, KeyError, TypeError):
            return False
        if run is None or made != run:
            return False
        folder.end(_LEFT)
        return True


def _check_same(kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    before, now = dict(_leaves(kept)), dict(_leaves(given))
    differing = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if differing:
        name = differing[0]
        allowed = f"{before.get(name)!r}, as in the interrupted run"
        more = "" if len(differing) == 1 else f"; also different: {', '.join(differing[1:])}"
        raise InvalidInput(f"`resume` with {name}", now.get(name), allowed + more)


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their full names, such as ``optimiser.momentum``."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES}


def pack_state(step: int, state: Mapping[str, Tensor]) -> bytes:
    """A checkpoint as bytes, with its own hash."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    tensors[_STEP] = torch.tensor(step)
    return bytes(dump_tensors({**tensors, _HASH: _digest(tensors)}))


def unpack_state(content: bytes) -> tuple[int, dict[str, Tensor]]:
    """Inverse of :func:`pack_state`; ValueError if the bytes are not as they were made.

    Example:
        >>> unpack_state(pack_state(3, {"weights": torch.zeros(1)}))
        (3, {'weights': tensor([0.])})
    """
    try:
        tensors = load_tensors(content)
    except SafetensorError as error:
        raise ValueError("no safetensors") from error
    found = tensors.pop(_HASH, None)
    if found is None or _STEP not in tensors or not torch.equal(found, _digest(tensors)):
        raise ValueError("other bytes")
    return int(tensors.pop(_STEP)), tensors


def _digest(tensors: Mapping[str, Tensor]) -> Tensor:
    return torch.tensor(list(hashlib.sha256(dump_tensors(dict(tensors))).digest()), dtype=torch.uint8)
