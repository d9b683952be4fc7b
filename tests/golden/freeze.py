"""What releases, certificates, JSON and trained models are today, in digests: code that moves must not move these.

``python -m tests.golden.freeze`` writes ``frozen.json`` anew, for changes that are meant to change results; the commit
then says which and why.

Rows are whole numbers on a grid: their bytes are the same on every machine with one NumPy, and are hashed. Prices and
weights come out of FFTs and BLAS, whose last bits differ between machines: prices are hashed to six digits, weights
are compared by norm, sum and a sample, within a tolerance. The noise of releases is given, not calibrated, so that no
price reaches their rows.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.engine.rows import PrivateRecords
from privmix.mechanisms.streams import SecretStreams
from privmix.named import in_words
from privmix.planning import ReleaseConfig
from privmix.plans.registry import design_named
from privmix.releases.folder import load_release
from privmix.releases.run import release_to_folder
from privmix.training.certificate import model_card
from privmix.training.views.augment import Flip
from privmix.training.views.config import ViewConfig
from tests.certificate.helpers import a_reservation
from tests.cli.helpers import privmix
from tests.training.runs import config_of, job_of, private, public, weights_of

FROZEN = Path(__file__).with_name("frozen.json")
CLASSES = ("ant", "bee", "cat")
RECORDS, DIM = 90, 5
TARGET = (20.0, 1e-3)

# The options of each design, beside the defaults of all.
DESIGNS: dict[str, dict[str, Any]] = {
    "poisson": {"design": "poisson", "mixup_degree": 8},
    "allocation": {"design": "allocation", "mixup_degree": 8},
    "fixed": {"design": "fixed", "mixup_degree": 8, "label_noise_ratio": 2.0},
    "laplace": {"design": "fixed", "mixup_degree": 8, "noise": "laplace"},
    "random-weight": {"design": "random-weight", "mixup_degree": 8, "dirichlet_alpha": 2.0, "max_weight": 0.5},
    "hierarchical": {"design": "hierarchical", "mixup_degree": 8, "expected_classes": 1.5},
    "classwise": {"design": "classwise", "mixup_degree": 8},
    "full-batch": {"design": "classwise", "full_batch": True},
    "gaussian-mixing": {"design": "gaussian-mixing"},
    "moments": {"design": "moments", "label_share": 0.35},
    "class-moments": {"design": "class-moments"},
}
CASES = {
    f"{name} {centre}": {**options, "centre": centre}
    for name, options in DESIGNS.items()
    for centre in ("none", "private")
    if (name, centre) != ("laplace", "private")
}
TRAININGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "linear": ("linear", {}, {}),
    "mixed views": ("cnn-relu", {"views": ViewConfig(2, 2, 0, (Flip(),))}, {}),
    "warm": ("linear", {"scenario": "warm"}, {"public": public()}),
}


def digest(content: bytes | str) -> str:
    """Sixteen hexadecimal digits of SHA-256."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def rounded(value: Any) -> Any:
    """Numbers to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def json_digest(value: Any) -> str:
    """Order matters: it is the order in which people read."""
    return digest(json.dumps(rounded(value)))


def records() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, len(CLASSES), RECORDS)
    features = rng.normal(size=(RECORDS, DIM)) + 2 * np.eye(len(CLASSES), DIM)[labels]
    return features.astype(np.float32), labels


def release_digests(
    folder: Path, choices: Mapping[str, Any], *, interrupted: bool = False, **options: Any
) -> dict[str, str]:
    """Digests of all that a release of ``choices`` shows, made at once or by a run that was ``interrupted`` before."""
    config = ReleaseConfig(records=RECORDS, dim=DIM, classes=CLASSES, **choices)
    plan = replace(config.with_noise(1.5, 4.0), epsilon=TARGET[0], delta=TARGET[1])
    streams = SecretStreams.from_seed(7)
    facts: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (DIM,)}
    make = partial(release_to_folder, plan, PrivateRecords(*records()), out=folder, **facts)
    make = partial(make, reservation=a_reservation(plan), **options)
    if interrupted:
        with suppress(KeyboardInterrupt):
            make(streams=streams, progress=_stop)
    certificate = make(streams=None, resume=True) if interrupted else make(streams=streams)
    released = load_release(folder)
    found = {
        # Not rounded: what a plan holds is arithmetic of its options.
        "plan": digest(json.dumps(plan.to_dict())),
        "event": digest(json.dumps(certificate["event"])),
        "card": digest((folder / "README.md").read_text()),
    }
    for name in ("guarantee", "epsilon_delta_curve", "noise_std", "statements", "warnings", "assessment"):
        found[name] = json_digest(certificate[name])
    found["fields"] = json_digest([*certificate, [item["file"] for item in certificate["files"]]])
    if released.moments is None:
        found["rows"] = digest(released.x.tobytes() + released.y.tobytes())
    else:
        # Rows sampled from moments come out of an eigendecomposition: what was released is the moments.
        found["moments"] = digest((folder / "moments.safetensors").read_bytes())
    if plan.centred:
        found["centre"] = digest((folder / "centre.safetensors").read_bytes())
    return found


def json_digests(folder: Path, choices: Mapping[str, Any]) -> dict[str, str]:
    """Digests of what ``account`` and ``release --dry-run`` print for machines."""
    known = {"mixup_degree", "expected_classes", "full_batch", "max_weight", "noise"}
    name = choices["design"]
    own = {one.name for one in design_named(name).options()} & set(choices)
    words = in_words(name, {key: choices[key] for key in choices if key in known})
    line = ["--records", str(RECORDS), "--classes", str(len(CLASSES)), "--noise-multiplier", "1.5", "--json"]
    account = privmix("account", "--design", words, *line)
    features, labels = records()
    folder.mkdir()
    np.savez(folder / "train.npz", x=features, y=labels)
    words = in_words(name, {key: choices[key] for key in choices if key in own})
    others = {key: value for key, value in choices.items() if key not in own} | {"design": words}
    line = [word for key, value in others.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    line += ["--data", str(folder), "--features", "identity", "--classes", ",".join(CLASSES)]
    line += ["--epsilon", str(TARGET[0]), "--delta", str(TARGET[1]), "--json"]
    release = privmix("release", *line, "--out", str(folder / "REL"), "--dry-run")
    assert account.code == release.code == 0, account.err + release.err
    found = {"account --json": account.out, "release --json": release.out}
    return {name: json_digest(json.loads(text)) for name, text in found.items()}


def digests(folder: Path, choices: Mapping[str, Any]) -> dict[str, str]:
    """Digests of one design's release and JSON; ``folder`` is empty."""
    return release_digests(folder / "REL", choices) | json_digests(folder / "data", choices)


def _stop(words: str, done: int, total: int) -> None:
    raise KeyboardInterrupt


def training_digests(name: str) -> dict[str, Any]:
    """A trained model's certificate, and numbers of its weights."""
    model, changes, given = TRAININGS[name]
    trained = job_of(config_of(model, **changes), **given).run(private(), streams=SecretStreams.from_seed(7))
    weights = weights_of(trained).double()
    sample = weights[:: max(1, len(weights) // 8)]
    found = {
        part: json_digest(trained.certificate[part])
        for part in ("guarantee", "plan", "event", "warnings", "statements", "assessment", "public_data")
    }
    card = digest(model_card(trained.certificate))
    return {**found, "card": card, "weights": [float(weights.norm()), float(weights.sum()), *sample.tolist()]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(len(CASES)):
            Path(folder, str(number)).mkdir()
        releases = {name: digests(Path(folder, str(number)), CASES[name]) for number, name in enumerate(CASES)}
    found = {"releases": releases, "trainings": {name: training_digests(name) for name in TRAININGS}}
    FROZEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
