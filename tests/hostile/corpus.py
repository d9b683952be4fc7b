"""The corpus: one function a case, which spoils a copy of an honest folder as a stranger would.

To add a case, write in a module ``cases_*.py`` of this folder (it is found by its name)::

    @case("release", refused={"verify"})
    def shard_listed_twice(world: World, folder: Path) -> None:
        ...

``folder`` is a fresh copy of an honest release, fitted or trained model, or of a folder of records, which may come from
a stranger as well. All verbs that take such a folder are then run on it, in one process under
:mod:`tests.hostile.guard`. Whatever the verb, its exit code must be 0, 1 or 2, an error must be one line, and there
must be no side effect; the verbs named in ``refused`` must not exit with 0.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from PIL import Image

from privmix.certificate.certificate import content_hash
from privmix.plans.registry import plan_from_dict
from privmix.releases.card import data_card

Kind = Literal["release", "fitted", "trained", "records"]
KINDS: Final = ("release", "fitted", "trained", "records")
Make = Callable[["World", Path], object]


@dataclass(frozen=True)
class World:
    """Where things lie: the current folder is ``root/here``; ``bait`` registers a file that nobody may open."""

    root: Path
    bait: Callable[[Path], None]

    def base(self, kind: str) -> Path:
        """An honest folder of this kind."""
        return self.root / "base" / kind

    @property
    def data(self) -> Path:
        """The user's own records: train.npz and test.npz."""
        return self.root / "data"

    @property
    def proof(self) -> Path:
        """Code of a stranger would make this file."""
        return self.root / "home" / "PROOF"

    @property
    def programs(self) -> Path:
        """First in PATH: programs that some decoder of images would start leave a proof when they are."""
        return self.root / "programs"


@dataclass(frozen=True)
class Case:
    """One hostile folder."""

    name: str
    kind: Kind
    make: Make
    refused: frozenset[str]


CASES: Final[dict[str, Case]] = {}


def case(kind: Kind, *, refused: set[str]) -> Callable[[Make], Make]:
    """Register a case; ``refused`` names the verbs that must not exit with 0."""

    def register(make: Make) -> Make:
        name = make.__name__.replace("_", " ")
        assert name not in CASES, f"two cases are called {name}"
        assert refused <= set(VERBS[kind]), refused - set(VERBS[kind])
        CASES[name] = Case(name, kind, make, frozenset(refused))
        return make

    return register


def cases(kind: Kind, refused: set[str], **made: Make) -> None:
    """Register cases by name, each a change to a folder of the kind."""
    for name, make in made.items():
        make.__name__ = name
        case(kind, refused=refused)(make)


_PLAN: Final = "--classes 0,1,2,3,4,5,6,7,8,9 --features pixels --epsilon 8 --delta 1e-4"
_IMAGES: Final = f"--image-size 8 --colour grey {_PLAN}"
_EVERY: Final = {
    "verify": "verify {folder}",
    "inspect": "inspect {folder}",
    "fit": "fit {folder} --out {out}/model",
    "evaluate": "evaluate {folder} --data {data} --figure {out}/evaluate.png",
    "audit": "audit {folder} --runs 200",
    "report": "report {folder} --out {out}/report.html",
}
_MEMBERSHIP: Final = "attack membership {folder} --data {data}"
# Verb -> its command line for a folder of this kind; {folder}, {out}, {data} and the bases are filled in.
VERBS: Final[dict[str, dict[str, str]]] = {
    "release": {
        **_EVERY,
        "evaluate": "evaluate {out}/model --data {data} --figure {out}/evaluate.png",
        "sample": "sample {folder} --records 10 --out {out}/rows.csv",
        "collapse": "attack collapse {folder} --data {data}",
        "inversion": "attack inversion {folder} --data {data} --split test --images 1 --steps 1",
        "membership": "attack membership {fitted} --data {data} --release {folder}",
    },
    "fitted": {**_EVERY, "membership": _MEMBERSHIP, "report": "report {release} {folder} --out {out}/report.html"},
    "trained": {
        **_EVERY,
        "canaries": "audit {folder} --data {data} --canaries 20",
        "membership": _MEMBERSHIP,
        "export": "export {folder} --out {out}/net.safetensors",
    },
    "records": {
        "release": f"release --data {{folder}} {_IMAGES} --design moments --out {{out}}/release",
        "train": f"train --data {{folder}} {_IMAGES} --batch-size 10 --epochs 0.2 --out {{out}}/trained",
        "evaluate": "evaluate {fitted} --data {folder} --split train --figure {out}/evaluate.png",
    },
}
# What an honest folder is refused for: it is of another kind than the verb takes.
NOT_FOR: Final[dict[str, frozenset[str]]] = {
    "release": frozenset({"sample"}),
    "fitted": frozenset({"fit", "audit"}),
    "trained": frozenset({"fit"}),
    "records": frozenset(),
}
ALL: Final = {kind: set(verbs) for kind, verbs in VERBS.items()}


def told_first(case: Case) -> set[str]:
    """The first verb of such folders and one that must refuse it, for each case another one, with what that needs."""
    refusing = sorted(case.refused) or [next(iter(VERBS[case.kind]))]
    own = {next(iter(VERBS[case.kind])), refusing[sorted(CASES).index(case.name) % len(refusing)]}
    return own | ({"fit"} if case.kind == "release" and "evaluate" in own else set())


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n")


def certify(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a certificate as an attacker would: with the hash and the data card that follow, which anyone can make."""

    def again(content: dict[str, Any]) -> None:
        change(content)
        content["content_sha256"] = content_hash(content)

    edit(folder / "certificate.json", again)
    card = folder / "README.md"
    if card.exists():
        with suppress(Exception):
            certificate = json.loads((folder / "certificate.json").read_text())
            card.write_text(data_card(plan_from_dict(certificate["plan"]), certificate))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_digits(folder: Path) -> None:
    """Small images of one's own."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    folder.mkdir(parents=True)
    for split, rows in (("train", slice(0, 200)), ("test", slice(1000, 1100))):
        np.savez(folder / f"{split}.npz", x=(x[rows] * 15).astype(np.uint8).reshape(-1, 8, 8), y=y[rows])


def write_images(folder: Path) -> None:
    """Small images in a folder a class."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    for number in range(300, 340):
        place = folder / str(y[number])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((x[number] * 15).astype(np.uint8).reshape(8, 8)).save(place / f"{number}.png")
