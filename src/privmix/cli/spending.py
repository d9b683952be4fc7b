"""What a command that failed had cost, and how to go on: printed below its error."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from privmix.cli.console import err, plain
from privmix.cli.flags import with_flags

_SECRET: Final = re.compile(r"://[^/]*:[^/]*@")


def tell_spent(error: BaseException, arguments: Sequence[str] | None = None) -> None:
    """Print what the job of this command was charged, if it was, and the command that goes on.

    Args:
        error: that ended it.
        arguments: of the command line, where they are known.
    """
    if "privmix.jobs.spending" not in sys.modules:
        # Nothing was charged by a command that needs no job; and it should not wait for one to be imported.
        return
    from privmix.jobs.spending import spent_of

    spent = spent_of(error)
    if spent is None:
        return
    err.print(plain(with_flags(str(spent))), soft_wrap=True)
    # A ledger's address may hold a password.
    if spent.kept and arguments is not None and not any(_SECRET.search(one) for one in arguments):
        more = [] if "--resume" in arguments else ["--resume"]
        err.print(f"go on: {plain(shlex.join(['privmix', *arguments, *more]))}", soft_wrap=True)
