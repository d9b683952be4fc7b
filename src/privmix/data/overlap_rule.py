"""When what somebody calls public is taken for the private data by its records: limits, and what a refusal tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

FLOOR: Final = 30
"""Different records that must be the same before anything is refused.

A refusal is seen, and costs no epsilon: it must not tell of one record, nor of a few that a stranger picked for it. At
this floor one record decides only for who knows already that 29 others are private records.
"""

SKETCH_FLOOR: Final = 100
"""The same of hashes on the card of a pool, which a stranger can write down without having the records: more than that,
and still so few that a sample of 1,024 finds a dataset of which a seventh is private."""

# Records of so many numbers are not alike by chance; rows of a small table and short texts often are.
TELLING: Final = 16
_SHARE_OF_ARRAYS: Final = 0.1
_SHARE_OF_OTHERS: Final = 0.5
# A record that stands more often than this says little about anybody, unless all do.
_FEW: Final = 3
_SHARE_OF_OFTEN: Final = 0.1
_SHARE_OF_ALIKE: Final = 0.9

PUBLISHED: Final = (
    "The guarantee is for what is published, given that it is. privmix release and privmix train compare data that are "
    f"taken as public with the private records, and publish nothing where at least {FLOOR} different ones are the same "
    f"({SKETCH_FLOOR} of those on a pool's card) and these are a large part of either: where just so many are, one "
    "record decides whether there is a publication, and that costs no epsilon."
)
"""What certificates say of it."""

PUBLISHED_OF_PERSONS: Final = (
    "The guarantee is for what is published, given that it is. privmix release and privmix train compare data that are "
    "taken as public with the private records, each person with one record, and publish nothing where those of at "
    f"least {FLOOR} persons are the same ({SKETCH_FLOOR} of those on a pool's card) and these are a large part of "
    "either: where just so many are, one person decides whether there is a publication, and that costs no epsilon."
)
"""The same where persons are the unit."""


def too_many(shared: float, public: int, private: int, *telling: bool) -> bool:
    """Whether so many different records of ``public`` and of ``private`` ones are the same that it is no chance.

    A tenth of either where records are arrays of 16 numbers or more, half where they are texts, rows of a table or
    shorter arrays, which are alike by chance.

    Args:
        shared: how many are the same.
        public, private: how many there are.
        telling: of both, whether records hold enough numbers.

    Example:
        >>> too_many(30, 40, 200, True, True), too_many(29, 29, 200, True, True)
        (True, False)
    """
    share = _SHARE_OF_ARRAYS if all(telling) else _SHARE_OF_OTHERS
    return shared >= max(FLOOR, share * min(private, public))


def single(counts: Mapping[bytes, int], telling: bool) -> set[bytes]:
    """Those records that say something about somebody: what many people share does not.

    Such stand at most three times, unless the dataset was oversampled: then many records stand often, and all count.
    Arrays of 16 numbers or more are taken as oversampled where a tenth of the different ones stand more than three
    times; texts and rows of a table, of which some are common in any dataset, where nine tenths stand equally often.

    Args:
        counts: how often each record stands there.
        telling: records hold enough numbers that equal ones are no chance.

    Example:
        >>> sorted(single({b"a": 4, b"b": 4, b"c": 40}, telling=True)), single({b"a": 1, b"b": 4}, telling=False)
        ([b'a', b'b', b'c'], {b'a'})
    """
    most = _FEW
    if telling and sum(count > _FEW for count in counts.values()) >= _SHARE_OF_OFTEN * len(counts):
        return set(counts)
    if counts:
        usual, holders = Counter(counts.values()).most_common(1)[0]
        most *= usual if holders >= _SHARE_OF_ALIKE * len(counts) else 1
    return {digest for digest, count in counts.items() if count <= most}
