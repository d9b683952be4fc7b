import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from randomgen import AESCounter

from privmix.mechanisms.streams import SecretStreams, _encode_name, shred
from tests.refusals import refuses

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


# Without their lengths the fields of these would hash the same bytes.
@example(("x", (int.from_bytes(b"abcdefgh", "little"),)), ("xabcdefgh", ()))
@given(NAMES, NAMES)
def test_encoding_of_names_is_injective(one: tuple[str, tuple[int, ...]], other: tuple[str, tuple[int, ...]]) -> None:
    assert (_encode_name(*one) == _encode_name(*other)) == (one == other)


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
    with refuses("stream index"):
        SecretStreams.from_seed(0).generator("noise", index)  # type: ignore[arg-type]
    with refuses("seed"):
        SecretStreams.from_seed(index)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="32 bytes"):
        SecretStreams(bytearray(16), insecure_seed=False)


def test_one_run() -> None:
    streams = SecretStreams.from_seed(0)
    streams.claim()
    with pytest.raises(RuntimeError, match="have served a run"):
        streams.claim()


# Derived keys: one way, for one purpose.


def test_derived_streams_are_their_own() -> None:
    streams = SecretStreams.from_seed(7)
    children = [streams.derive(name) for name in ("membership", "fingerprint", "")]
    seen = {_bits(child, "a", 1) for child in [streams, *children, children[0].derive("membership")]}
    assert len(seen) == 5
    assert _bits(SecretStreams.from_seed(7).derive("membership"), "a", 1) == _bits(children[0], "a", 1)
    # A derived key is no stream's key either: both are hashes of the same name, kept apart by their person.
    as_stream = np.random.Generator(AESCounter(key=int.from_bytes(children[0].share()[:16], "little")))
    assert as_stream.bytes(32) != _bits(streams, "membership")


def test_only_derived_keys_are_shared_and_only_master_keys_are_saved(tmp_path: Path) -> None:
    streams = SecretStreams.from_entropy()
    child = streams.derive("membership")
    assert _bits(SecretStreams.of_shared(child.share()), "a") == _bits(child, "a")
    with pytest.raises(RuntimeError, match="derived"):
        streams.share()
    with pytest.raises(RuntimeError, match="master"):
        child.save(tmp_path / "key")
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            escape(child)


def test_destroying_ends_the_derived_keys_too() -> None:
    streams = SecretStreams.from_seed(7)
    child = streams.derive("membership")
    streams.destroy()
    for work in (child.share, lambda: child.generator("a"), lambda: streams.derive("b")):
        with pytest.raises(RuntimeError, match=r"live|destroyed"):
            work()


@pytest.mark.parametrize("insecure", [True, False])
def test_a_saved_key_is_the_owners_alone_and_comes_back(tmp_path: Path, insecure: bool) -> None:
    streams = SecretStreams(bytearray(range(100, 132)), insecure_seed=insecure)
    path = tmp_path / "key"
    old = os.umask(0)
    try:
        streams.save(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    again = SecretStreams.load(path)
    assert again.insecure_seed == insecure
    assert _bits(again, "a", 3) == _bits(streams, "a", 3)
    with pytest.raises(FileExistsError):
        streams.save(path)


def test_a_shredded_key_is_overwritten_and_gone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    SecretStreams.from_entropy().save(path)
    with path.open("rb") as same_file:
        shred(path)
        assert not path.exists()
        assert same_file.read() == bytes(33)
    shred(path)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(bytes(33))
    with refuses("key file"):
        SecretStreams.load(path)


def test_keys_that_others_can_reach_are_neither_used_nor_overwritten(tmp_path: Path) -> None:
    """A planted link, hard link or open file: a key that somebody else chose, or a file that is no key."""
    path = tmp_path / "mine"
    SecretStreams.from_entropy().save(path)
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(path)
    os.link(path, tmp_path / "second name")
    (tmp_path / "open").write_bytes(before)
    (tmp_path / "open").chmod(0o644)
    for name in ("link", "second name", "open"):
        for work in (SecretStreams.load, shred):
            with refuses("key file"):
                work(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


def test_seals_need_the_key_and_are_of_one_purpose_and_content() -> None:
    streams, other = SecretStreams.from_seed(1), SecretStreams.from_seed(2)
    seals = {streams.seal(purpose, b"abc") for purpose in ("notes", "state")} | {other.seal("notes", b"abc")}
    seals |= {streams.seal("notes", content) for content in (b"abd", b"")}
    assert len(seals) == 5
    # Nothing handed out to workers makes one.
    assert streams.derive("notes").seal("notes", b"abc") not in seals
    assert SecretStreams.from_seed(1).seal("notes", b"abc") in seals
    streams.destroy()
    with pytest.raises(RuntimeError, match="destroyed"):
        streams.seal("notes", b"abc")


@pytest.mark.parametrize("content", [b"", b"\0" + bytes(range(31)), b"\2" + bytes(range(32)), bytes(range(34))])
def test_damaged_key_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_bytes(content)
    with refuses("key file"):
        SecretStreams.load(tmp_path / "key")
