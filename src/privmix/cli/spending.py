"""Print a failed command's cost, and how to resume, below its error."""

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
    """Print what the job of this command was charged, if it was, and the command that resumes it."""
    if "privmix.jobs.spending" not in sys.modules:
        # A command that needs no job has charged no budget, and it should not wait for one to be imported.
        return
    from privmix.jobs.spending import spent_of

    spent = spent_of(error)
    if spent is None:
        return
    err.print(plain(with_flags(str(spent))), soft_wrap=True)
    # A ledger's address may hold a password.
    if spent.kept and arguments is not None and not any(_SECRET.search(one) for one in arguments):
        more = [] if "--resume" in arguments else ["--resume"]
        err.print(f"continue: {plain(shlex.join(['privmix', *arguments, *more]))}", soft_wrap=True)
