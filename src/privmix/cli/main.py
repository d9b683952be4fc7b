"""Entry point: runs a verb and turns errors into one line and an exit code."""

import os
import sys
from typing import Final

import typer
from rich.markup import escape

from privmix.cli.app import app
from privmix.cli.console import err, tell_spent
from privmix.cli.flags import message
from privmix.cli.frame import usage_message
from privmix.cli.lazy_verbs import command
from privmix.errors import HeadFailed, PrivmixError
from privmix.folders import no_core_dumps
from privmix.scratch import clear_scratch

# Exit code that shells give a program that ctrl-C ended; Typer turns most of these into this result.
_STOPPED: Final = 130


def main() -> None:
    """Run the command line.

    Exit codes: 0 on success, 2 for bad input, 3 for an overspent budget, 1 for input/output trouble, 70 for a defect.
    A check that fails gives 4: an audit refutes a claim, a replay differs, rows miss their release.
    """
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    # Private rows may be in memory soon; and what a killed command left on disk has been there long enough.
    no_core_dumps()
    clear_scratch()
    try:
        result = command(app)(arguments, prog_name="privmix", standalone_mode=False)
    except HeadFailed as error:
        # The first process prints the cause.
        return error.exit_code
    except PrivmixError as error:
        err.print(f"[bold red]error:[/] {escape(message(error, command(app), arguments))}", soft_wrap=True)
        tell_spent(error, arguments)
        return error.exit_code
    except typer.Exit as stop:
        return stop.exit_code
    except typer.TyperException as error:
        # Usage errors: an unknown option, a missing value, no arguments at all (whose message is the help).
        err.print(usage_message(error), markup=False, soft_wrap=True)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        err.print("stopped")
        return _STOPPED
    except MemoryError as error:
        err.print("[bold red]error:[/] memory: not enough for this job. Reduce the number of rows or features")
        tell_spent(error, arguments)
        return 1
    except OSError as error:
        # The file name may be private; the system's reason is not.
        err.print(f"[bold red]error:[/] input/output: {escape(error.strerror or type(error).__name__)}")
        tell_spent(error, arguments)
        return 1
    except Exception as error:
        # A defect of ours. Its message and traceback may hold private values, so they are shown on request only.
        if os.environ.get("PRIVMIX_DEBUG"):
            raise
        err.print(
            f"[bold red]error:[/] internal: {type(error).__name__}; set PRIVMIX_DEBUG=1 to see the traceback, "
            "which may show private values",
            soft_wrap=True,
        )
        tell_spent(error, arguments)
        return 70
    if result == _STOPPED:
        err.print("stopped")
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
