"""Options from a file, and the file of what was typed: for every command."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from privmix.cli.frame import as_toml
from tests.cli.helpers import privmix
from tests.golden.help import verbs

COMMANDS = {words: command for words, command in verbs().items() if any(one.name == "config" for one in command.params)}
TEXTS = 'a "quoted" \\ text, with commas=and ü \U0001f600 \x7f'


def own(command: Any) -> list[Any]:
    # What acts at once, as --list does, is no option of a run.
    return [one for one in command.params if one.name not in ("config", "print_config") and not one.is_eager]


def typed(option: Any, round_: int) -> list[str]:
    """One option as somebody types it."""
    if getattr(option, "is_flag", False):
        return [(option.secondary_opts or option.opts)[0] if round_ else option.opts[0]]
    values = {"N": ["3", "1"], "FILE": ["a b.csv", "./x"], "FOLDER": ["a b", "./x"]}
    value = values.get(option.metavar, ["7", TEXTS])[round_]
    if option.param_type_name == "argument":
        return [value]
    return [option.opts[0], value] * (1 + option.multiple)


def parsed(command: Any, arguments: list[str]) -> tuple[Any, dict[str, Any]]:
    context = command.make_context("it", arguments)
    return context, {one.name: context.params[one.name] for one in own(command)}


@pytest.mark.parametrize("round_", [0, 1])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_printed_reads_as_what_was_typed(words: tuple[str, ...], round_: int, tmp_path: Path) -> None:
    command, file = COMMANDS[words], tmp_path / "config.toml"
    for chosen in (own(command), [one for one in own(command) if one.required]):
        first, values = parsed(command, [word for option in chosen for word in typed(option, round_)])
        file.write_text(as_toml(first), encoding="utf-8")
        again, read = parsed(command, ["--config", str(file)])
        assert read == values
        assert as_toml(again) == as_toml(first)
        # Those that take what is given apart from what is a default see the same.
        assert [one.name for one in own(command) if again.get_parameter_source(one.name).name != "DEFAULT"] == [
            one.name for one in chosen
        ]


def test_what_is_typed_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('records = 5000\ndesign = "poisson:mixup_degree=64"\nnoise_multiplier = 2\n')
    words = ["account", "--config", str(file), "--json"]
    found, other = (json.loads(privmix(*words, *more).out) for more in ([], ["--noise-multiplier", "4"]))
    assert (found["noise_multiplier"], other["noise_multiplier"]) == (2, 4)
    line = "account --records=5000 --design=poisson:mixup_degree=64 --noise-multiplier=2 --json"
    assert privmix(*line.split()).json() == found


def test_nothing_is_run_or_read_where_the_file_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "release --data none.csv --out R --epsilon 1 --delta 1e-5 --ledger sqlite:///l.db --print-config"
    outcome = privmix(*line.split())
    assert (outcome.code, outcome.err) == (0, "")
    said = {"data": "none.csv", "out": "R", "epsilon": 1.0, "delta": 1e-5, "ledger": "sqlite:///l.db"}
    assert tomllib.loads(outcome.out) == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recrds = 1", ("recrds", "nearest: records")),
        ("config = 'x'", ("config",)),
        ("records = true", ("records", "a number")),
        ("json = 'yes'", ("json", "true or false")),
        ("records = 'many'", ("--records",)),
        ("records = {a = 1}", ("records",)),
        ("noise-multiplier = 1\nnoise_multiplier = 2", ("noise_multiplier", "once")),
        ("records = 1 2", ("TOML",)),
    ],
)
def test_a_wrong_file_is_refused(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    outcome = privmix("account", "--config", file)
    assert (outcome.code, outcome.out) == (2, "")
    assert all(word in outcome.err for word in (*words, str(file)))


def test_lists_are_toml_s(tmp_path: Path) -> None:
    file = tmp_path / "lists.toml"
    file.write_text('runs = ["-a", "b"]\n')
    assert tomllib.loads(privmix("report", "--config", file, "--print-config").out) == {"runs": ["-a", "b"]}
    file.write_text('runs = "a"\n')
    assert privmix("report", "--config", file).code == 2
    line = "release --epsilon 1 --delta 1e-5 --data=x --out=R --print-config"
    words = [*line.split(), "--config", str(file)]
    file.write_text('classes = ["cat", "dog"]\n')
    assert tomllib.loads(privmix(*words).out)["classes"] == "cat,dog"
    file.write_text('classes = ["cat, dog", "cow"]\n')
    assert privmix(*words).code == 2
    assert privmix("account", "--config", "nowhere.toml").code == 1
