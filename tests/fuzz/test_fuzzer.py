"""The fuzzer notices what is not handled, and its inputs can be made again."""

import json
import mmap
import random
from pathlib import Path

import pytest

from privmix.errors import InvalidInput
from tests.fuzz import runner
from tests.fuzz.mutate import mutated_bytes, mutated_json, mutated_text
from tests.fuzz.runner import Fuzzer, Target
from tests.fuzz.targets import TARGETS


def reader(content: bytes, folder: Path) -> None:
    """A reader as careless as readers are: deep or long JSON, another type, or no field at all end in tracebacks."""
    try:
        found = json.loads(content)
    except ValueError:
        raise InvalidInput("file", "other bytes", "JSON") from None
    if found["records"] < 0:
        raise InvalidInput("records", found["records"], "a count")


def greedy(content: bytes, folder: Path) -> None:
    # Not by malloc, which may hand out what earlier tests left to the process.
    with mmap.mmap(-1, 2 * runner.MOST_MEMORY) as pages:
        for place in range(0, len(pages), 2**12):
            pages[place] = 1


def endless(content: bytes, folder: Path) -> None:
    while True:
        pass


def mutant(source: random.Random) -> bytes:
    return mutated_text(b'{"records": 5, "names": ["a", "b"]}', source)


def test_what_is_not_handled_is_kept_and_told(tmp_path: Path) -> None:
    fuzzer = Fuzzer({"careless": Target(mutant, reader)}, "1", tmp_path)
    fuzzer.run(60, inputs=300)
    assert len(fuzzer.failures) >= 2
    assert fuzzer.refused["careless"] > 0
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == len(fuzzer.failures)
    with pytest.raises((TypeError, KeyError, RecursionError, UnicodeDecodeError)):
        reader(kept[0].read_bytes(), tmp_path)


@pytest.mark.parametrize("bad", [greedy, endless])
def test_what_takes_too_much_is_noticed(bad: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_SECONDS", 1)
    monkeypatch.setattr(runner, "MOST_MEMORY", 2**26)
    fuzzer = Fuzzer({"bad": Target(mutant, bad)}, "1", tmp_path)  # type: ignore[arg-type]
    fuzzer.run(60, inputs=1)
    assert len(fuzzer.failures) == 1


def test_one_seed_gives_one_sequence() -> None:
    value = {"a": [1, 2.5, {"b": None}], "c": "d"}
    for _ in range(2):
        sequences = [
            [(mutated_bytes(b"content", source), json.dumps(mutated_json(value, source))) for _ in range(50)]
            for source in (random.Random("seed"), random.Random("seed"))
        ]
        assert sequences[0] == sequences[1]
        assert len({made for made, _ in sequences[0]}) > 30


def test_every_door_handles_some_hundred_inputs(tmp_path: Path) -> None:
    fuzzer = Fuzzer(TARGETS, "a seed that stays", tmp_path)
    fuzzer.run(60, inputs=400)
    assert not fuzzer.failures, fuzzer.summary()
    assert all(fuzzer.inputs[name] for name in TARGETS)
