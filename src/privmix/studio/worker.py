"""The process that makes a release for the studio: an order comes in, lines on how it goes come out.

It alone reads private records. What it says are stages, hundredths, and the library's own errors, which show no value
of a record.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from privmix.errors import PrivmixError
from privmix.jobs.spending import spent_of
from privmix.private_files import no_core_dumps
from privmix.studio.order import Order

Tell = Callable[[dict[str, Any]], None]


def main() -> None:
    """Read an order as JSON from standard input, carry it out, and tell of it on standard output."""
    with quiet() as tell:
        given = json.load(sys.stdin)
        work(Order(**given["order"]), tell, resume=given["resume"])


@contextlib.contextmanager
def quiet() -> Iterator[Tell]:
    """Yield what writes a line of JSON; whatever else writes to standard output or error is not heard."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    if not os.environ.get("PRIVMIX_DEBUG"):
        os.dup2(nowhere, 2)

    def tell(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    yield tell


def work(order: Order, tell: Tell, *, resume: bool) -> None:
    """Carry out an order; every way in which it ends is told in one line."""
    no_core_dumps()
    last: tuple[str, int] | None = None

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last
        # How many records there really are is nobody's business: hundredths.
        now = (stage.partition(" (")[0], 100 * done // max(total, 1))
        if now != last:
            last = now
            tell({"stage": now[0], "percent": now[1]})

    try:
        _, told = order.carry_out(progress, resume=resume)
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
    """What may be said of an error: the library's own text; of others their kind, since a text may hold a value."""
    if isinstance(error, PrivmixError):
        return str(error).replace("`", "")
    if isinstance(error, KeyboardInterrupt):
        return "stopped, as you asked"
    if isinstance(error, MemoryError):
        return "there is not enough memory for this release"
    if isinstance(error, OSError):
        return f"input or output failed: {error.strerror or type(error).__name__}"
    more = "PRIVMIX_DEBUG=1 shows more in the terminal, which may be private"
    return f"a defect of privmix ({type(error).__name__}); {more}"


if __name__ == "__main__":
    main()
