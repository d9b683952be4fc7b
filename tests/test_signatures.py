"""What editors and `help` show of public calls: every option by name, type and default, and what it is."""

import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest

import privmix as pm
from privmix.research.collapse.verb import measure_collapse
from privmix.research.inversion.verb import invert
from privmix.research.poisoning.verb import poison
from privmix.research.synthesis.verb import synthesise

VERBS = [name for name in pm.__all__ if isinstance(getattr(pm, name), types.FunctionType)]


@pytest.mark.parametrize(
    "function",
    [*(getattr(pm, name) for name in VERBS), invert, measure_collapse, poison, synthesise],
    ids=lambda one: one.__name__,
)
def test_every_argument_has_a_name_and_a_type(function: Callable[..., Any]) -> None:
    for one in inspect.signature(function).parameters.values():
        assert one.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL), one
        assert one.annotation is not one.empty, one


@pytest.mark.parametrize("name", [name for name in pm.__all__ if isinstance(getattr(pm, name), type)])
def test_every_method_says_its_arguments_by_name(name: str) -> None:
    for method, function in inspect.getmembers(getattr(pm, name), inspect.isroutine):
        # scikit-learn's tools set parameters by set_params.
        own = str(getattr(function, "__module__", "")).startswith("privmix")
        if own and not method.startswith("_") and method != "set_params":
            kinds = {one.kind for one in inspect.signature(function).parameters.values()}
            assert inspect.Parameter.VAR_KEYWORD not in kinds, method
