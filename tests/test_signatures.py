"""What editors and `help` show of public calls: every option by name, type and default, and what it is."""

from __future__ import annotations

import inspect
import io
import pydoc
import types
from contextlib import redirect_stdout
from typing import Any

import pytest

import privmix as pm
import privmix.research
from privmix.signatures import readable

VERBS = [name for name in pm.__all__ if isinstance(getattr(pm, name), types.FunctionType)]


def test_completion_offers_the_verbs_and_nothing_of_the_source() -> None:
    offered = [name for name in dir(pm) if not name.startswith("__")]
    assert set(VERBS) <= set(offered) == set(pm.__all__)
    assert {"release", "replay", "report"} == {name for name in offered if name.startswith("re")}


@pytest.mark.parametrize(
    "name", [*VERBS, "research.invert", "research.measure_collapse", "research.poison", "research.synthesise"]
)
def test_every_argument_has_a_name_and_a_type(name: str) -> None:
    owner: Any = pm.research if name.startswith("research.") else pm
    signature = inspect.signature(getattr(owner, name.rpartition(".")[2]))
    for one in signature.parameters.values():
        assert one.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL), one
        assert one.annotation is not one.empty, one
    assert signature.return_annotation is not signature.empty


@pytest.mark.parametrize("name", [name for name in pm.__all__ if isinstance(getattr(pm, name), type)])
def test_every_method_says_its_arguments_by_name(name: str) -> None:
    for method, function in inspect.getmembers(getattr(pm, name), inspect.isroutine):
        # scikit-learn's own, by which its tools find and set parameters.
        if (
            not method.startswith("_")
            and method != "set_params"
            and str(getattr(function, "__module__", "")).startswith("privmix")
        ):
            kinds = {one.kind for one in inspect.signature(function).parameters.values()}
            assert inspect.Parameter.VAR_KEYWORD not in kinds, method


def test_defaults_are_those_that_hold() -> None:
    found = inspect.signature(pm.release).parameters
    assert (found["design"].default, found["clip_norm"].default, found["classes"].default) == ("auto", 1.0, None)
    assert inspect.signature(pm.train).parameters["batch_size"].default is None


def test_help_reads_line_by_line() -> None:
    written = io.StringIO()
    with redirect_stdout(written):
        pydoc.help(pm.release)
    lines = written.getvalue().splitlines()
    assert "    design: str | Design[Any] = 'auto'," in lines
    assert max(map(len, lines)) <= 125
    assert any(
        line.strip().startswith("design: Release design, as NAME or NAME:KEY=VALUE,...; auto:") for line in lines
    )
    # What is said of arguments comes before what comes out.
    titles = [line.strip() for line in lines if line.strip() in ("Options:", "Raises:")]
    assert titles == ["Options:", "Raises:"]


def test_another_name_is_refused_with_those_that_there_are() -> None:
    for name in ("plan", "release", "attack", "audit"):
        with pytest.raises(TypeError, match=rf"{name}\(\) takes no argument callback;"):
            getattr(pm, name)("own", callback=[])


def test_long_signatures_are_what_python_reads() -> None:
    """Line by line, it is still a signature."""

    def many(
        first: int, /, second: str = "x", *rest: int, third: dict[str, Any] | None = None, **more: int
    ) -> list[int]: ...

    for function in (many, pm.release, pm.plan):
        text = str(readable(function)).partition(" -> ")[0]
        for types_of in ("Design[Any]", "dict[str, Any]"):
            text = text.replace(types_of, "object")
        scope: dict[str, Any] = {}
        exec(f"from __future__ import annotations\ndef made{text}: ...", scope)
        made = inspect.signature(scope["made"])
        assert list(made.parameters) == list(inspect.signature(function).parameters)
        assert [one.kind for one in made.parameters.values()] == [
            one.kind for one in inspect.signature(function).parameters.values()
        ]
