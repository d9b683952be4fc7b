"""The terminal: what the command line writes to it, and a passphrase that it reads from it."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final

import typer
from rich.console import Console
from rich.markup import escape

from privmix.bars import progress_bars as bars_on
from privmix.cli.flags import with_flags
from privmix.errors import InvalidInput
from privmix.fields import printable
from privmix.progress import Progress
from privmix.untrusted import open_plain

# Results go to standard output, everything else to standard error, so --json output can be piped.
out: Final = Console(highlight=False)
err: Final = Console(stderr=True, highlight=False)


def plain(text: object) -> str:
    """Text from a file, safe to print: no markup, no control characters."""
    return escape(printable(str(text)))


VARIABLE: Final = "PRIVMIX_KEY_PASSPHRASE"
_HEAD: Final = 256


def passphrase_of(key: Path) -> bytes | None:
    """Return the passphrase of a key file, or None if the file is not locked."""
    from privmix.certificate.keys import is_locked

    with open_plain(key, "key") as stream:
        if not is_locked(stream.read(_HEAD)):
            return None
    if given := os.environ.get(VARIABLE):
        return given.encode()
    _check_terminal()
    return str(typer.prompt("passphrase", hide_input=True, err=True)).encode()


def new_passphrase() -> bytes:
    if given := os.environ.get(VARIABLE):
        return given.encode()
    _check_terminal()
    err.print("Without this passphrase the key cannot be used.")
    return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True)).encode()


def with_passphrase(command: Any) -> Any:
    if not hasattr(command, "passphrase"):
        return command
    if hasattr(command, "sign_key"):
        return replace(command, passphrase=passphrase_of)
    key = getattr(command, "key", None)
    passphrase = new_passphrase() if command.passphrase else None if key is None else passphrase_of(Path(key))
    return replace(command, passphrase=passphrase)


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("passphrase", "none", f"a passphrase in {VARIABLE}, or an interactive terminal")


_SECRET: Final = re.compile(r"://[^/]*:[^/]*@")


def tell_spent(error: BaseException, arguments: Sequence[str] | None = None) -> None:
    """Print what the job of this command was charged, if it was, and the command that resumes it."""
    if "privmix.jobs.budget" not in sys.modules:
        # A command that needs no job has charged no budget, and it should not wait for one to be imported.
        return
    from privmix.jobs.budget import spent_of

    spent = spent_of(error)
    if spent is None:
        return
    err.print(plain(with_flags(str(spent))), soft_wrap=True)
    # A ledger's address may hold a password.
    if spent.kept and arguments is not None and not any(_SECRET.search(one) for one in arguments):
        more = [] if "--resume" in arguments else ["--resume"]
        err.print(f"continue: {plain(shlex.join(['privmix', *arguments, *more]))}", soft_wrap=True)


# Between two lines where no bars can be drawn.
_SECONDS: Final = 30.0


@contextmanager
def progress_bars(*, quiet: bool = False, percent: bool = False) -> Iterator[Progress]:
    """:func:`privmix.bars.progress_bars` on standard error; where that is no terminal, now and then a line."""
    if not quiet and not err.is_terminal:
        yield _lines(percent)
        return
    with bars_on(console=err, quiet=quiet, percent=percent) as update:
        yield update


def _lines(percent: bool) -> Progress:
    """Write a line now and then if there is no terminal: a log shows that work goes on, and for how long."""
    last, begun = monotonic(), dict[str, tuple[float, int]]()

    def update(stage: str, done: int, total: int) -> None:
        nonlocal last
        now, name = monotonic(), plain(stage.partition(" (")[0])
        if percent:
            # The real number of records may not be for everyone's eyes.
            done, total = 100 * done // max(total, 1), 100
        start, first = begun.setdefault(name, (now, done))
        if now - last < _SECONDS:
            return
        last = now
        left = timedelta(seconds=round((now - start) * (total - done) / (done - first))) if done > first else None
        how_far = f"{done}%" if percent else f"{done:,} of {total:,}"
        err.print(f"{name}: {how_far}{'' if left is None else f', about {left} left'}", soft_wrap=True)

    return update
