from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from randomgen import AESCounter

from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams, _encode_name

NAMES = st.tuples(st.text(max_size=4), st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple))


def _bits(streams: SecretStreams, purpose: str, *indices: int) -> bytes:
    return streams.generator(purpose, *indices).bytes(32)


def test_same_name_same_bits() -> None:
    one, other = SecretStreams.from_seed(7), SecretStreams.from_seed(7)
    expected = _bits(one, "noise", 1, 2)
    _bits(other, "unrelated", 5)
    assert _bits(other, "noise", 1, 2) == expected
    assert _bits(one, "noise", 1, 2) == expected


def test_different_name_or_key_different_stream() -> None:
    streams = SecretStreams.from_seed(7)
    names = [("a",), ("b",), ("ab",), ("", 0), ("a", 0), ("a", 1), ("a", 256), ("a", 0, 1), ("a", 1, 0), ("a", 0, 0)]
    seen = {_bits(streams, str(name), *indices) for name, *indices in names}
    seen |= {_bits(SecretStreams.from_seed(8), "a"), _bits(SecretStreams.from_entropy(), "a")}
    assert len(seen) == len(names) + 2
    assert _bits(SecretStreams.from_entropy(), "a") != _bits(SecretStreams.from_entropy(), "a")


@given(NAMES, NAMES)
def test_encoding_of_names_is_injective(one: tuple[str, tuple[int, ...]], other: tuple[str, tuple[int, ...]]) -> None:
    assert (_encode_name(*one) == _encode_name(*other)) == (one == other)


def test_encoding_keeps_neighbouring_fields_apart() -> None:
    # Without the lengths these would hash the same bytes.
    index = int.from_bytes(b"abcdefgh", "little")
    assert _encode_name("x", (index,)) != _encode_name("xabcdefgh", ())


def test_bits_are_those_of_aes_128() -> None:
    # FIPS-197, appendix C.1: the counter is the plaintext block, the first output block its encryption.
    key, plain = bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff")
    counter = AESCounter(key=int.from_bytes(key, "little"), counter=int.from_bytes(plain, "little"))
    assert counter.random_raw(2).tobytes() == bytes.fromhex("69c4e0d86a7b0430d8cdb78070b4c55a")
    generator = SecretStreams.from_seed(0).generator("noise")
    assert isinstance(generator, np.random.Generator)
    assert isinstance(generator.bit_generator, AESCounter)


def test_the_key_stays_inside() -> None:
    key = bytearray(range(100, 132))
    streams = SecretStreams(key, insecure_seed=False)
    for shown in (repr(streams), str(streams)):
        assert shown == "<SecretStreams live, insecure_seed=False>"
    assert not hasattr(streams, "__dict__")
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            escape(streams)


def test_gone_is_gone() -> None:
    key = bytearray(range(100, 132))
    streams = SecretStreams(key, insecure_seed=False)
    streams.generator("noise")
    streams.destroy()
    assert key == bytes(32)
    with pytest.raises(RuntimeError, match="destroyed"):
        streams.generator("noise")
    streams.destroy()
    assert "destroyed" in repr(streams)


def test_a_seed_marks_itself() -> None:
    assert SecretStreams.from_seed(0).insecure_seed
    assert not SecretStreams.from_entropy().insecure_seed


@pytest.mark.parametrize("index", [-1, 2**64, 0.5, "3", None])
def test_bad_indices_and_seeds_are_refused(index: object) -> None:
    with pytest.raises(InvalidInput, match="stream index"):
        SecretStreams.from_seed(0).generator("noise", index)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="seed"):
        SecretStreams.from_seed(index)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="32 bytes"):
        SecretStreams(bytearray(16), insecure_seed=False)


def test_one_run() -> None:
    streams = SecretStreams.from_seed(0)
    streams.claim()
    with pytest.raises(RuntimeError, match="have served a run"):
        streams.claim()
