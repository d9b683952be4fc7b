"""Run the command line in this process and look at what it said."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
from dataclasses import dataclass
from typing import Any
from unittest import mock

from privmix.cli import main

# Stands in private rows; no message may show it.
SECRET = "Zq7Secret"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error but for the lines on what was spent, which follow an error that comes after a charge, and for
        the note of the names that are published, and the warning of a bound that plain numbers do not fit.
        """
        lines = self.err.splitlines(keepends=True)
        left_out = ("budget: ", "continue: ", "published names: ", "warning: features are plain numbers")
        return "".join(line for line in lines if not line.startswith(left_out))

    def passed(self) -> Outcome:
        """The outcome, whose exit code must be 0."""
        assert self.code == 0, self.err
        return self

    def json(self) -> Any:
        """The JSON that a command printed, whose exit code must be 0."""
        return json.loads(self.passed().out)


def privmix(*arguments: object) -> Outcome:
    """Run ``privmix ARGUMENTS`` as a user would, but without a new process."""
    out, err = io.StringIO(), io.StringIO()
    wide = mock.patch.dict(os.environ, {"COLUMNS": "200"})
    # How long work takes is no part of what is said of it.
    patient = mock.patch("privmix.cli.console._SECONDS", math.inf)
    with wide, patient, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run([str(one) for one in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def refused(outcome: Outcome, *words: str, code: int = 2) -> None:
    """One line on standard error that says what would do, and nothing private."""
    assert outcome.code == code, (outcome.code, outcome.err)
    assert outcome.out == ""
    assert outcome.said.strip().count("\n") == 0
    assert "Traceback" not in outcome.err
    assert SECRET not in outcome.err
    for word in words:
        assert word in outcome.err
