"""What lies in a cluster's object store shows nothing without a key that does not lie there."""

import pickle
import zlib

import numpy as np
import pytest

from privmix.engine.cluster import ClusterLost, ObjectKey, Sealed, lost, reason_of
from privmix.engine.ray import Failure, ObjectTiles, OpenedTiles, PassTask, RowPass, merge_sums, pass_sums
from privmix.engine.records import ArrayTiles
from privmix.engine.tiles import empty_sums
from privmix.errors import StorageError
from privmix.mechanisms.streams import SecretStreams
from privmix.publication.dataset import RecordTransform
from tests.releases.helpers import make_plan, make_records

pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")


def content(sealed: object) -> bytes:
    return pickle.dumps(sealed, protocol=5)


def test_nothing_of_an_object_shows() -> None:
    """Also of one whose bytes are all alike; and an object that is sealed twice is not seen to be the same."""
    key, sums = ObjectKey(), np.full(50_000, 7.0)
    sealed, again = content(key.seal({"sums": sums}, "a")), content(key.seal({"sums": sums}, "a"))
    assert len(zlib.compress(sums.tobytes())) < 1000
    assert len(zlib.compress(sealed)) > 0.99 * len(sealed)
    assert sealed[1000:2000] not in again
    assert key._key not in sealed
    assert repr(key) == "<ObjectKey>"
    assert repr(key.seal(1, "a")) == "<Sealed>"


def test_it_comes_back_as_it_was_and_can_be_written_to() -> None:
    key = ObjectKey()
    was = {"x": np.arange(6.0).reshape(2, 3), "f": np.ones((3, 2), order="F"), "none": np.zeros((0, 4)), "word": "sums"}
    found = pickle.loads(pickle.dumps(key)).opened(pickle.loads(content(key.seal(was, "a"))), "a")
    for name in ("x", "f", "none"):
        np.testing.assert_array_equal(found[name], was[name])
        found[name] += 1
    assert found["word"] == "sums"
    assert was["x"][0, 1] == 1


def test_what_is_spent_is_encrypted_where_it_is() -> None:
    key, sums = ObjectKey(), np.arange(1000)
    sealed = key.seal(sums, "a", spent=True)
    assert np.shares_memory(sealed.pieces[1], sums)
    np.testing.assert_array_equal(key.opened(sealed, "a"), np.arange(1000))


@pytest.mark.parametrize("what", ["bit", "order", "key", "name"])
def test_what_was_changed_does_not_open(what: str) -> None:
    key = ObjectKey()
    sealed = key.seal([np.arange(10), np.arange(10) + 1], "a")
    if what == "bit":
        sealed.pieces[1][3] ^= 1
    elif what == "order":
        first, *others = zip(sealed.pieces, sealed.seals, strict=True)
        pieces, seals = zip(first, *reversed(others), strict=True)
        sealed = Sealed(pieces, seals)
    with pytest.raises(ClusterLost, match="was changed"):
        (ObjectKey() if what == "key" else key).opened(sealed, "b" if what == "name" else "a")


def test_sums_and_passes_travel_sealed_and_the_key_by_itself() -> None:
    plan, records, key = make_plan(), make_records(), ObjectKey()
    membership = SecretStreams.from_seed(0).derive("membership").share()
    tiles = ArrayTiles(records.features, records.labels)
    one = RowPass(plan, tiles.units, range(1), RecordTransform(plan.clip_norm), membership)
    sealed, task = key.seal(one, "pass 1"), PassTask(plan, tiles)
    assert membership in pickle.dumps(one)
    assert membership not in content(sealed)
    spans = [range(1), range(1, 1)]
    (made, _), (none, _) = (pass_sums(key, "pass 1", task, span, sealed) for span in spans)
    assert isinstance(made, Sealed)
    assert isinstance(none, Sealed)
    both = merge_sums(key, "pass 1", sealed, spans, made, none)
    assert isinstance(both, Sealed)
    # Neither the same sums twice, nor another pass's, nor a part left out.
    for name, where, parts in (
        ("pass 1", spans, (made, made)),
        ("pass 1", [range(1), range(1)], (made, made)),
        ("pass 2", spans, (made, none)),
        ("pass 1", [range(1), range(2, 3)], (made, none)),
    ):
        assert isinstance(merge_sums(key, name, sealed, where, *parts), Failure)
    once = empty_sums(plan, one.rows)
    once.merge(key.opened(made, "sums of pass 1 over tiles 0 to 1"))
    np.testing.assert_array_equal(key.opened(both, "sums of pass 1 over tiles 0 to 1").x, once.x)
    assert once.x.any()
    assert merge_sums(key, "pass 1", sealed, spans, made, Failure(None, "died")) == Failure(None, "died")
    # It is an argument of its own, which Ray sends with the call: larger ones it puts into its store.
    assert len(pickle.dumps(key)) < 1000


def test_records_lie_there_without_their_key() -> None:
    """Nor do the numbers of records in the tiles travel in the clear: of persons, these are private."""
    key, facts = ObjectKey(), (3_141_592_653, 7, (1, 2))
    tiles = ObjectTiles(1, key.seal(facts, "facts of tiles"), ())
    sent = pickle.dumps(tiles)
    assert key._key not in sent
    assert pickle.dumps(facts[0])[3:7] not in sent
    found = OpenedTiles(pickle.loads(sent), key)
    assert (found.count, found.units, found.length(1)) == (3_141_592_653, 7, 2)
    with pytest.raises(ClusterLost):
        OpenedTiles(tiles, ObjectKey())


def test_a_reason_is_the_systems_word_and_no_librarys() -> None:
    full = OSError(28, "row 17")
    assert reason_of(full).startswith("No space left on device: free space")
    worded = StorageError("row 17")
    worded.__context__ = full
    assert reason_of(worded) == reason_of(full)
    assert reason_of(OSError("row 17")) == "OSError"


def test_errors_of_rays_say_what_helps() -> None:
    from ray.exceptions import ActorDiedError, OutOfDiskError

    assert "no space on the disk with Ray" in str(lost(OutOfDiskError("row 17")))
    assert "could not finish" in str(lost(ActorDiedError()))
    assert "17" not in str(lost(OutOfDiskError("row 17")))
