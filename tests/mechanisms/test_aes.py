import random
from collections.abc import Iterator
from contextlib import suppress
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from randomgen import AESCounter

from privmix.mechanisms import streams
from privmix.mechanisms.streams import Lent, SecretStreams

KEYS = [random.Random(number).randbytes(16) for number in range(200)] + [bytes(16), b"\xff" * 16]


def made(key: bytes) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=int.from_bytes(key, "little")))


def test_the_schedule_is_that_of_the_standard() -> None:
    # FIPS 197, Appendix A.1: the last round key.
    schedule = streams._schedule(bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"))
    assert schedule[-16:].hex() == "d014f9a8c9ee2589e13f0cc8b6630ca6"


def test_same_bits() -> None:
    for key in KEYS:
        with Lent(key) as lent:
            expected = made(key)
            # An odd number of 32-bit draws leaves half a draw over, which the next key must not see.
            assert (lent.integers(2**32, size=3, dtype=np.uint32) == expected.integers(2**32, size=3, dtype="u4")).all()
            assert (lent.standard_normal(50) == expected.standard_normal(50)).all()
            assert (lent.integers(2**32, size=3, dtype=np.uint32) == expected.integers(2**32, size=3, dtype="u4")).all()


def test_alone() -> None:
    """Blocks inside one another, and in several threads, whose draws take turns."""
    with Lent(KEYS[0]) as outer:
        first = outer.random(3)
        with Lent(KEYS[1]) as inner:
            assert (inner.random(7) == made(KEYS[1]).random(7)).all()
            assert (np.append(first, outer.random(2)) == made(KEYS[0]).random(5)).all()
    turns, found = Barrier(4), {}

    def draw(key: bytes) -> None:
        for again in range(20):
            with Lent(key) as lent:
                parts = []
                for _ in range(3):
                    turns.wait()
                    parts.append(lent.random(5))
            found[key, again] = np.concatenate(parts)

    threads = [Thread(target=draw, args=(key,)) for key in KEYS[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all((drawn == made(key).random(15)).all() for (key, _), drawn in found.items())


def test_gone_is_gone() -> None:
    with suppress(KeyError), Lent(KEYS[0]) as lent:
        cipher = lent.bit_generator
        raise KeyError(lent.random())
    state = cipher.state["s"]
    assert (state["seed"] == AESCounter(key=0).state["s"]["seed"]).all()
    assert not state["state"].any()


class OtherForm(AESCounter):
    """As of another randomgen, which keeps keys in another form."""

    @property
    def state(self) -> Any:
        return {}

    @state.setter
    def state(self, value: Any) -> None:
        raise KeyError("key")


@pytest.fixture(params=[True, False], ids=["known form", "other form"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether randomgen keeps keys in the form that is known."""
    if not request.param:
        monkeypatch.setattr(streams, "AESCounter", OtherForm)
    streams._same_form.cache_clear()
    yield request.param
    streams._same_form.cache_clear()


def test_a_cipher_of_another_form_is_made_again(form: bool) -> None:
    assert streams._same_form() == form
    with Lent(KEYS[0]) as lent:
        assert lent.random() == made(KEYS[0]).random()


def test_streams_lend_what_they_generate() -> None:
    streams = SecretStreams.from_seed(3)
    with streams.lent("noise", 1, 2) as lent:
        assert lent.bytes(32) == streams.generator("noise", 1, 2).bytes(32)
    streams.destroy()
    with pytest.raises(RuntimeError):
        streams.lent("noise", 1, 2)


DRAWS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("random", "laplace", "exponential", "uniform"), ()),
    **dict.fromkeys(("integers", "bytes", "standard_normal", "choice", "permutation"), (5,)),
    "normal": (0, 1, 3),
    "binomial": (10, 0.5),
    "multinomial": (3, [0.5, 0.5]),
    "hypergeometric": (3, 4, 5),
    "dirichlet": ([1.0, 2.0],),
}


@pytest.mark.usefixtures("form")
def test_taken_back() -> None:
    """What is kept of a generator draws nothing after its block: not under key 0, and not another block's bits."""
    with Lent(KEYS[0]) as lent:
        kept = {name: getattr(lent, name) for name in DRAWS}
        first = lent.random()
    with Lent(KEYS[1]) as other:
        for name, arguments in DRAWS.items():
            for draw in (kept[name], getattr(lent, name)):
                with pytest.raises(RuntimeError, match="after its block"):
                    draw(*arguments)
        assert (other.random(5) == made(KEYS[1]).random(5)).all()
    assert first == made(KEYS[0]).random()
