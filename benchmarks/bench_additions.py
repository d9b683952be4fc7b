"""What a new part touches: each kind is added once, as a commit of its own in a copy of this checkout, and counted.

A part is the smallest that privmix finds, offers and uses: a design is planned and released, a learner and a training
mechanism are found by their registries and used, a verb runs, a certificate's field is written and read, an attack of
the research wing is found by its registry. What is written for a part is in this file. Tests and docs are not counted.

    python benchmarks/bench_additions.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import common

HERE: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Part:
    """Files that are written, texts that are replaced in files that are there, and what must then run."""

    what: str
    check: str
    written: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


DESIGN = '''"""Design ``sparse``: Poisson rows of a quarter of the degree."""

from __future__ import annotations

from dataclasses import dataclass

from privmix.designs.rows.poisson import Poisson
from privmix.options import described
from privmix.plans.registry import register
from privmix.plans.setting import Setting


@register
@described
@dataclass(frozen=True)
class Sparse(Poisson):
    """Poisson rows of a quarter of the degree."""

    name = "sparse"
    labels = {"sparse": "sparse mixup"}

    def rate(self, setting: Setting) -> float:
        return super().rate(setting) / 4

    @classmethod
    def rate_of(cls, plan):
        return super().rate_of(plan) / 4
'''
LEARNER = '''"""Learner ``stiff-ridge``: ridge regression with more regularisation."""

from __future__ import annotations

from privmix.learning.base import LEARNERS
from privmix.learning.ridge import NoiseAwareRidgeClassifier


@LEARNERS.register
class StiffRidgeClassifier(NoiseAwareRidgeClassifier):
    """Ridge regression with a regularisation of 0.1."""

    name = "stiff-ridge"

    def __init__(self) -> None:
        super().__init__(regularisation=0.1)
'''
MECHANISM = '''"""Mechanism ``twice``: DP-SGD by another name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privmix.training.mechanisms.base import MECHANISMS
from privmix.training.mechanisms.dp_sgd.mechanism import DpSgdMechanism
from privmix.training.plan import TrainingPlan


@dataclass(frozen=True)
class TwicePlan(TrainingPlan):
    """A plan of it."""

    mechanism: ClassVar[str] = "twice"


@MECHANISMS.register
class Twice(DpSgdMechanism):
    """DP-SGD by another name."""

    name = "twice"
    called = "Twice"
    words = "as dp-sgd"
    plan: ClassVar[type[TrainingPlan]] = TwicePlan

    @classmethod
    def planned(cls, draft, settings):
        return TwicePlan(**vars(draft))
'''
VERB = '''"""``privmix greet``: say hello."""

from __future__ import annotations

from privmix.cli.app import app
from privmix.cli.console import out
from privmix.cli.verb import verb


@verb(app)
def greet(name: str = "you") -> None:
    """Say hello."""
    out.print(f"hello {name}")
'''
ATTACK = '''"""Attack ``nothing``: records stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privmix.research.poisoning.base import ATTACKS
from privmix.research.poisoning.poisons.label_flips import LabelFlips


@ATTACKS.register
@dataclass(frozen=True)
class Nothing(LabelFlips):
    """Records stay as they are."""

    name: ClassVar[str] = "nothing"
    about: ClassVar[str] = "records stay as they are"
'''
RELEASE = """
import numpy as np, privmix as pm
x = np.random.default_rng(0).normal(size=(200, 4))
made = pm.release((x, np.arange(200) % 2), classes=2, features="identity", epsilon=8, delta=1e-3, seed=1, {more})
"""
PARTS: Final = (
    Part(
        "design",
        RELEASE.format(more='design="sparse", options=dict(mixup_degree=8)').replace(
            ", options=dict(mixup_degree=8)", ""
        )
        + "assert made.certificate['plan']['design'] == 'sparse'\n",
        written={"designs/rows/sparse.py": DESIGN},
    ),
    Part(
        "learner",
        RELEASE.format(more='design="poisson"')
        + "assert pm.fit(made, learner='stiff-ridge').predict(x).shape == (200,)\n",
        written={"learning/stiff.py": LEARNER},
    ),
    Part(
        "training mechanism",
        "import numpy as np, privmix as pm\nx = np.random.default_rng(0).normal(size=(200, 4))\n"
        "made = pm.train((x, np.arange(200) % 2), classes=range(2), features='identity', epsilon=8, delta=1e-3, "
        "mechanism='twice', epochs=2)\nassert made.certificate['plan']['mechanism'] == 'twice'\n",
        written={"training/mechanisms/twice.py": MECHANISM},
    ),
    Part(
        "verb",
        "import subprocess, sys\n"
        "verb = [sys.executable, '-c', 'from privmix.cli.main import main; main()', 'greet', '--name', 'anna']\n"
        "said = subprocess.run(verb, capture_output=True, text=True)\nassert said.stdout == 'hello anna\\n', said\n",
        written={"cli/greet.py": VERB},
        replaced={
            "cli/app.py": (
                ("VERBS: Final = {\n", 'VERBS: Final = {\n    "greet": Verb("privmix.cli.greet", "Say hello."),\n'),
            )
        },
    ),
    Part(
        "field of a certificate",
        RELEASE.format(more='design="moments"') + "made.save('made')\nassert pm.verify('made')\n"
        "assert made.certificate['unit'] == 'record'\n",
        replaced={
            "certificate/certificate.py": (
                ("    content_sha256: Words\n", "    unit: Words | None = used(None)\n    content_sha256: Words\n"),
                ('        "kind": kind.of,\n', '        "kind": kind.of,\n        "unit": "record",\n'),
            )
        },
    ),
    Part(
        "poisoning attack",
        "from privmix.research.poisoning.base import ATTACKS\nassert ATTACKS['nothing'].about\n",
        written={"research/poisoning/poisons/nothing.py": ATTACK},
    ),
)


def added(part: Part, checkout: Path) -> dict[str, int]:
    """Add a part to the copy as a commit, run its check, and take it out again."""
    source = checkout / "src" / "privmix"
    for name, text in part.written.items():
        (source / name).write_text(text, encoding="utf-8")
    for name, pairs in part.replaced.items():
        text = (source / name).read_text(encoding="utf-8")
        for old, new in pairs:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        (source / name).write_text(text, encoding="utf-8")
    git = ["git", "-C", str(checkout), "-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run([*git, "add", "src"], check=True)
    subprocess.run([*git, "commit", "-qm", part.what], check=True)
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        subprocess.run([sys.executable, "-c", part.check], check=True, cwd=place, env=environment)
    counted = subprocess.run(
        [*git, "show", "--numstat", "--format="], check=True, capture_output=True, text=True
    ).stdout
    lines = [line.split("\t") for line in counted.splitlines()]
    subprocess.run([*git, "reset", "-q", "--hard", "HEAD~1"], check=True)
    return {"files": len(lines), "lines": sum(int(more) + int(less) for more, less, _ in lines)}


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        checkout = Path(place) / "privmix"
        subprocess.run(["git", "clone", "-q", str(HERE), str(checkout)], check=True)
        runs = {part.what: added(part, checkout) for part in PARTS}
    rows = [[what, found["files"], found["lines"]] for what, found in runs.items()]
    table = common.table(["new", "source files", "lines added or removed"], rows)
    common.save(
        "additions", "What a new part touches", {"counted": "source files of one commit, by git"}, runs, [table]
    )


if __name__ == "__main__":
    main()
