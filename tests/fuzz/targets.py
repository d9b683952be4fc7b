"""What is fuzzed: every door that a file of somebody else's comes in by."""

import json
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.numpy import load_file

from privmix.certificate import PrivateKey, sign_folder, verify_signature
from privmix.certificate.certificate import content_hash
from privmix.certificate.keys import Statement
from privmix.certificate.ledger_total import LedgerTotal, read_total
from privmix.certificate.signing import ATTESTATION_FILE, Subject
from privmix.engine.rows import PrivateRecords
from privmix.learning.model_io import load_model, save_model
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.mechanisms.run_folder import sealed, unsealed
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import file_hash, load_release
from privmix.releases.run import release_to_folder
from privmix.releases.verify import check_certificate, verify_release
from privmix.reports.page import render_page
from privmix.reports.records import read_record
from privmix.training.trained import load_trained
from privmix.training.verify import verify_trained
from privmix.untrusted import array_shapes, parse_json
from tests.data import test_fuzz as readers
from tests.fuzz.mutate import mutated_bytes, mutated_text
from tests.fuzz.runner import Target
from tests.reports import samples
from tests.training import runs

_KINDS: Final = (*readers.FORMATS, *readers.TABLES)


def _read_data(kind: bytes, content: bytes) -> None:
    readers.read(kind.decode(), content)


def _data(source: random.Random) -> bytes:
    kind = source.choice(_KINDS)
    return kind.encode() + b"\0" + mutated_bytes(readers.valid(kind), source)


@cache
def _folders() -> dict[str, Path]:
    """An honest release of rows, one of moments, a model fitted on it and a trained one."""
    root = Path(tempfile.mkdtemp(prefix="privmix-fuzz-"))
    x, y = runs.digits(0, 200)
    records = PrivateRecords(x.reshape(len(x), -1)[:, :16].astype(np.float32), y)
    facts: dict[str, Any] = {"extractor": {"name": "identity", "version": 1, "options": {}}, "input_shape": (16,)}
    choices: dict[str, dict[str, Any]] = {"rows": {"mixup_degree": 16, "rows": 60}, "moments": {"design": "moments"}}
    for name, given in choices.items():
        plan = ReleaseConfig(records=200, dim=16, classes=tuple("0123456789"), **given).calibrate(4.0, 1e-4)
        release_to_folder(plan, records, None, root / f"release-{name}", **facts)
    save_model(NoiseAwareRidgeClassifier().fit(load_release(root / "release-rows")), root / "fitted")
    runs.run_to(root / "trained", runs.job_of())
    return {path.name: path for path in root.iterdir()}


def _seal(content: dict[str, Any]) -> None:
    content["content_sha256"] = content_hash(content)


def _json(content: Callable[[], bytes], seal: Callable[[Any], None] | None = None) -> Callable[[random.Random], bytes]:
    return lambda source: mutated_text(content(), source, seal)


def _honest_file(folder: str, name: str) -> Callable[[], bytes]:
    return cache(lambda: (_folders()[folder] / name).read_bytes())


def _open_certificate(content: bytes, folder: Path) -> None:
    (folder / "certificate.json").write_bytes(content)
    check_certificate(read_certificate(folder))


def _files_of(*kinds: str) -> Callable[[random.Random], bytes]:
    """A folder of these kinds with one file mutated: kind and file, a zero byte, content."""

    def mutant(source: random.Random) -> bytes:
        root = _folders()[source.choice(kinds)]
        path = source.choice(sorted(path for path in root.rglob("*") if path.is_file()))
        content = path.read_bytes()
        if path.suffix == ".json" and "release" not in root.name:
            made = mutated_text(content, source, _seal if path.name == "certificate.json" else None)
        else:
            made = mutated_bytes(content, source)
        return path.relative_to(root.parent).as_posix().encode() + b"\0" + made

    return mutant


def _opened(content: bytes, folder: Path) -> Path:
    """The folder of a mutant; the files of a release are certified anew."""
    name, _, rest = content.partition(b"\0")
    kind, _, file = name.decode().partition("/")
    made = shutil.copytree(_folders()[kind], folder / "MADE")
    (made / file).write_bytes(rest)
    if kind.startswith("release") and file != "certificate.json":
        found = json.loads((made / "certificate.json").read_text())
        for item in found["files"]:
            if item["file"] == file:
                item["sha256"] = file_hash(made / file)
        _seal(found)
        (made / "certificate.json").write_text(json.dumps(found, indent=2) + "\n")
    return made


def _load_and_verify(load: Callable[[Path], object], verify: Callable[[Path], object]) -> Callable[[bytes, Path], None]:
    def opened(content: bytes, folder: Path) -> None:
        made = _opened(content, folder)
        try:
            load(made)
        finally:
            verify(made)

    return opened


@cache
def _records() -> list[bytes]:
    return [json.dumps(record.to_dict()).encode() for record in samples.everything()]


def _open_record(content: bytes, folder: Path) -> None:
    path = folder / "record.json"
    path.write_bytes(content)
    record = read_record(path)
    # A page takes longer than a thousand records.
    if len(content) % 16 == 0:
        for audience in ("owner", "public"):
            if audience == "owner" or not record.private:
                render_page([record, samples.guarantee()], audience)


def _open_arrays(content: bytes, folder: Path) -> None:
    path = folder / "arrays.safetensors"
    path.write_bytes(content)
    shapes = array_shapes(path, path.name)
    # What passed is a file that the library reads, and in which the arrays are as announced.
    found = load_file(path)
    assert {name: values.shape for name, values in found.items()} == {
        name: shape for name, (_, shape) in shapes.items()
    }


@cache
def _signed() -> tuple[bytes, PrivateKey]:
    """An attestation of a folder that holds one file, and the key that made it."""
    key = PrivateKey.new()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.json").write_text("{}")
        sign_folder(folder, key, _subject)
        return (Path(folder) / ATTESTATION_FILE).read_bytes(), key


def _subject(folder: Path) -> Subject:
    return Subject("model", "m1", 1.0, 1e-5, "add_remove")


def _open_signature(content: bytes, folder: Path) -> None:
    honest, key = _signed()
    (folder / "model.json").write_text("{}")
    (folder / ATTESTATION_FILE).write_bytes(content)
    verify_signature(folder, key.public, _subject)
    # What passes says what was signed: only the layout of the envelope may differ.
    assert json.loads(content) == json.loads(honest)


@cache
def _total() -> tuple[LedgerTotal, PrivateKey]:
    charges = {"release": 2, "training": 1}
    made = LedgerTotal(
        "visits", 4.0, 1e-5, "add_remove", "planned", 1.85, 2.15, charges, "2026-01-31T12:00:00+00:00", "ab" * 32
    )
    return made, PrivateKey.new()


def _total_mutant(source: random.Random) -> bytes:
    made, key = _total()
    if source.random() < 0.5:
        return mutated_text(made.statement().payload, source)
    payload = mutated_text(made.statement().payload, source)
    envelope = Statement(payload, key.public.key_id, key.sign(Statement(payload).signed_bytes)).to_bytes()
    return envelope if source.random() < 0.5 else mutated_text(envelope, source)


def _open_total(content: bytes, folder: Path) -> None:
    path = folder / "total.json"
    path.write_bytes(content)
    key = _total()[1] if content.startswith(b'{\n  "payloadType"') else None
    found = read_total(path, None if key is None else key.public)[0]
    # What passes is stated as privmix states it, and a page shows it.
    assert LedgerTotal.of(found.statement()) == found


_NOTES: Final = {"plan": {"rows": 3, "noise": 1.5}, "fingerprint": None, "extra": {"reservation": ["a", 1]}}


@cache
def _sealed() -> tuple[bytes, SecretStreams]:
    streams = SecretStreams.from_seed(0)
    return sealed(streams, "notes", _NOTES), streams


def _open_notes(content: bytes, folder: Path) -> None:
    assert unsealed(_sealed()[1], "notes", content) == _NOTES


_CERTIFICATE: Final = _honest_file("release-rows", "certificate.json")
_ARRAYS: Final = _honest_file("release-moments", "moments.safetensors")
TARGETS: Final[dict[str, Target]] = {
    "data": Target(_data, lambda content, _: _read_data(*content.split(b"\0", 1)), share=60),
    "json": Target(_json(_CERTIFICATE), lambda content, _: parse_json(content, "file"), share=20),
    "arrays": Target(lambda source: mutated_bytes(_ARRAYS(), source), _open_arrays, share=40),
    "ledger total": Target(_total_mutant, _open_total, share=20),
    "signature": Target(_json(lambda: _signed()[0]), _open_signature, share=20),
    "run notes": Target(_json(lambda: _sealed()[0]), _open_notes, share=20),
    "certificate": Target(_json(_CERTIFICATE, _seal), _open_certificate, share=10),
    "fitted model": Target(_files_of("fitted"), lambda content, folder: load_model(_opened(content, folder)), share=10),
    "trained model": Target(_files_of("trained"), _load_and_verify(load_trained, verify_trained), share=5),
    "release": Target(
        _files_of("release-rows", "release-moments"), _load_and_verify(load_release, verify_release), share=3
    ),
    "record": Target(lambda source: mutated_text(source.choice(_records()), source, _seal), _open_record, share=2),
}

torch.set_num_threads(1)
