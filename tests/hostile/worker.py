"""One process that opens the whole corpus with every verb; it writes what it saw as JSON lines.

``python -m tests.hostile.worker ROOT [--every-verb] [WORDS OF A CASE'S NAME]``; without that flag a case meets two
verbs.
"""

import contextlib
import importlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

from tests.hostile.corpus import CASES, KINDS, VERBS, World, told_first, write_digits, write_images
from tests.hostile.guard import Baits, Guard, memory
from tests.reports.drawn import drawn_once

# A command that waits longer waits for ever, as on a pipe that nobody writes to.
_SECONDS: Final = 120


class _StillWaiting(BaseException):
    pass


def main(root: Path, words: str, every_verb: bool) -> None:
    """Make the honest folders, then run all cases, and what is planted to see that the watch is awake."""
    for name in ("home", "here", "tmp", "base", "cases"):
        (root / name).mkdir(parents=True)
    os.environ.update(HOME=str(root / "home"), TMPDIR=str(root / "tmp"), COLUMNS="2000")
    tempfile.tempdir = None
    os.chdir(root / "here")
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"tests.hostile.{path.stem}")
    signal.signal(signal.SIGALRM, _stop)
    baits = Baits()
    world = World(root, baits.add)
    plant_programs(world)
    guard = Guard()
    with (root / "report.jsonl").open("w") as report:
        runner = Runner(world, guard, baits, report)
        make_bases(world)
        for kind in KINDS:
            # Libraries are loaded here; the second time nothing but the folder is read.
            runner.run_all(f"first {kind}", kind, world.base(kind), quiet=True)
        # A figure of the same numbers is the same, whoever's folder they are from.
        with drawn_once():
            for kind in KINDS:
                runner.run_all(f"honest {kind}", kind, world.base(kind))
            for case in CASES.values():
                if words in case.name:
                    folder = shutil.copytree(
                        world.base(case.kind), root / "cases" / case.name.replace(" ", "-") / "given"
                    )
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        case.make(world, folder)
                    runner.run_all(case.name, case.kind, folder, verbs=None if every_verb else told_first(case))
        planted(world, runner)


class Runner:
    """Runs command lines under the watch."""

    def __init__(self, world: World, guard: Guard, baits: Baits, report: TextIO) -> None:
        self.world, self.guard, self.baits, self.report = world, guard, baits, report

    def run_all(
        self, name: str, kind: str, folder: Path, *, quiet: bool = False, verbs: set[str] | None = None
    ) -> None:
        """All verbs of a kind on one folder, or these."""
        from privmix.cli.main import run

        out = self.world.root / "out" / name.replace(" ", "-")
        out.mkdir(parents=True)
        given = {"folder": str(folder), "out": str(out), "data": str(self.world.data)}
        given |= {kind: str(self.world.base(kind)) for kind in KINDS}
        self.guard.readable = [str(folder), str(self.world.data), str(self.world.root / "base")]
        self.guard.writable = [str(out), str(self.world.root / "tmp")]
        if kind == "records":
            # Runs open their files by the folder's descriptor, and the hook hears a name alone: what really lies in the
            # current folder is looked up afterwards.
            self.guard.readable.append(os.getcwd())
            self.guard.writable.append(os.getcwd())
        for verb, line in VERBS[kind].items():
            if verbs is not None and verb not in verbs:
                continue
            if verb == "evaluate" and kind == "release" and not (out / "model").is_dir():
                continue
            arguments = [word.format(**given) for word in line.split()]
            self.watched(name, kind, verb, lambda arguments=arguments: run(arguments), quiet=quiet)  # type: ignore[misc]

    def watched(self, name: str, kind: str, verb: str, act: Callable[[], int], *, quiet: bool = False) -> None:
        """One line of the report: what ``act`` returned and said, and what else happened."""
        self.baits.opened()
        before = set(Path.cwd().iterdir())
        started = time.process_time()
        out, err, code = io.StringIO(), io.StringIO(), -1
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with memory() as told, streams[0], streams[1], self.guard.watching() as found:
            signal.alarm(_SECONDS)
            try:
                code = act()
            except _StillWaiting:
                found.append("waits for ever")
            finally:
                signal.alarm(0)
        found += [f"bait opened: {path}" for path in self.baits.opened()]
        found += [f"write: {path}" for path in sorted(set(Path.cwd().iterdir()) - before)]
        if self.world.proof.exists():
            found.append("code of a stranger ran")
            self.world.proof.unlink()
        line: dict[str, Any] = {"case": name, "kind": kind, "verb": verb, "code": code, "error": err.getvalue()}
        line["seconds"] = time.process_time() - started
        if not quiet:
            self.report.write(json.dumps({**line, "found": found, **told}) + "\n")
            self.report.flush()


def plant_programs(world: World) -> None:
    """Stand-ins for what image libraries start: found first, they say that they were called, and make an image."""
    world.programs.mkdir()
    place = world.programs / "gs"
    place.write_text(
        f"""#!/bin/sh
echo "$@" >> '{world.proof}'
for word in "$@"; do
    case "$word" in -sOutputFile=*) {{ printf 'P6\n8 8\n255\n'; head -c 192 /dev/zero; }} > "${{word#*=}}";; esac
done
echo 10.0
"""
    )
    place.chmod(0o755)
    for name in ("djpeg", "gm", "convert", "magick", "ffmpeg"):
        (world.programs / name).symlink_to(place)
    os.environ["PATH"] = f"{world.programs}:{os.environ['PATH']}"


def make_bases(world: World) -> None:
    """An honest release, a model fitted on it, a model trained with DP-SGD, and honest records."""
    from tests.cli.helpers import privmix

    write_digits(world.data)
    write_images(world.base("records"))
    data, at = str(world.data), {kind: str(world.base(kind)) for kind in KINDS}
    common = ["--data", data, "--classes", "10", "--features", "pixels", "--epsilon", "8", "--delta", "1e-4"]
    lines = [
        ["release", *common, "--design", "poisson:mixup_degree=8", "--rows", "100", "--out", at["release"]],
        ["fit", at["release"], "--out", at["fitted"]],
        ["train", *common, "--batch-size", "20", "--epochs", "0.5", "--out", at["trained"]],
    ]
    for line in lines:
        found = privmix(*line)
        assert found.code == 0, found.err


def planted(world: World, runner: Runner) -> None:
    """Side effects of every kind, to see that each is noticed."""
    from tests.hostile import planted as effects

    runner.guard.writable, runner.guard.readable = [str(world.root / "out")], [str(world.data)]
    for name, act in effects.EFFECTS.items():
        runner.watched(f"planted {name}", "planted", name, lambda act=act: (act(world), 0)[1])  # type: ignore[misc]


def _stop(number: int, frame: Any) -> None:
    raise _StillWaiting


if __name__ == "__main__":
    flag = "--every-verb"
    main(Path(sys.argv[1]), " ".join(word for word in sys.argv[2:] if word != flag), flag in sys.argv)
