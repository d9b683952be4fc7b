"""The process that makes a release for the studio: it alone reads private records, and writes lines on its progress."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from privmix.errors import PrivmixError
from privmix.folders import no_core_dumps
from privmix.jobs.budget import spent_of
from privmix.studio.order import Order

Tell = Callable[[dict[str, Any]], None]


def main() -> None:
    """Read an order as JSON from standard input, carry it out, and report on standard output."""
    with quiet() as tell:
        given = json.load(sys.stdin)
        work(Order(**given["order"]), tell, resume=given["resume"])


@contextlib.contextmanager
def quiet() -> Iterator[Tell]:
    """Yield a function that writes a line of JSON; all other text on standard output or error is discarded."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # A library's own message may hold a private value.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    if not os.environ.get("PRIVMIX_DEBUG"):
        os.dup2(nowhere, 2)

    def tell(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        # The studio shows each line as it comes.
        out.flush()

    yield tell


def work(order: Order, tell: Tell, *, resume: bool) -> None:
    """Carry out an order; every way in which it ends is reported in one line."""
    no_core_dumps()
    last: tuple[str, int] | None = None

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last
        # The real number of records is private: report hundredths.
        now = (stage.partition(" (")[0], 100 * done // max(total, 1))
        if now != last:
            last = now
            tell({"stage": now[0], "percent": now[1]})

    try:
        _, told = order.carry_out(progress, resume=resume)
    # Also KeyboardInterrupt, by which the studio stops a run.
    except BaseException as error:
        spent = spent_of(error)
        tell(
            {
                "error": words_of(error),
                "spent": "" if spent is None else str(spent).replace("`", ""),
                "kept": spent is not None and spent.kept,
                "stopped": isinstance(error, KeyboardInterrupt),
            }
        )
    else:
        tell({"done": True, "warnings": list(told)})


def words_of(error: BaseException) -> str:
    """Return an error's text if it is the library's own; of others their kind, since a text may hold a value."""
    if isinstance(error, PrivmixError):
        return str(error).replace("`", "")
    if isinstance(error, KeyboardInterrupt):
        return "stopped at your request"
    if isinstance(error, MemoryError):
        return "not enough memory for this release"
    if isinstance(error, OSError):
        return f"input or output failed: {error.strerror or type(error).__name__}"
    more = "PRIVMIX_DEBUG=1 shows details in the terminal, which may be private"
    return f"a bug in privmix ({type(error).__name__}); {more}"


if __name__ == "__main__":
    main()
