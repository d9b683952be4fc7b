"""The rule by which public data count as the private data: limits on shared records, and the refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

FLOOR: Final = 30
"""Least number of different common records for a refusal.

A refusal is visible and costs no epsilon: it must not depend on one record, or on a few that an attacker chose. At this
limit one record decides only for an attacker who knows already that 29 others are private records.
"""

SKETCH_FLOOR: Final = 100
"""The same for hashes on the card of a pool, which an attacker can write without the records. It is larger, and small
enough for a sample of 1,024 to detect a dataset with a private share of one seventh."""

# Records of this many numbers are not alike by chance; rows of a small table and short texts often are.
TELLING: Final = 16
_SHARE_OF_ARRAYS: Final = 0.1
_SHARE_OF_OTHERS: Final = 0.5
# A record that occurs more often than this identifies hardly any person, unless all records do.
_FEW: Final = 3
_SHARE_OF_OFTEN: Final = 0.1
_SHARE_OF_ALIKE: Final = 0.9

PUBLISHED: Final = (
    "The guarantee is for what is published, given that it is. privmix release and privmix train compare data that are "
    f"taken as public with the private records, and publish nothing where at least {FLOOR} different ones are the same "
    f"({SKETCH_FLOOR} of those on a pool's card) and these are a large part of either: where just so many are, one "
    "record decides whether there is a publication, and that costs no epsilon."
)
"""The statement in certificates."""

PUBLISHED_OF_PERSONS: Final = (
    "The guarantee is for what is published, given that it is. privmix release and privmix train compare data that are "
    "taken as public with the private records, each person with one record, and publish nothing where those of at "
    f"least {FLOOR} persons are the same ({SKETCH_FLOOR} of those on a pool's card) and these are a large part of "
    "either: where just so many are, one person decides whether there is a publication, and that costs no epsilon."
)
"""The same where persons are the unit."""


def too_many(shared: float, public: int, private: int, *telling: bool) -> bool:
    """Whether two datasets share too many different records for a coincidence."""
    # The limit is a tenth of either for arrays of 16 numbers or more, half for texts, table rows and shorter arrays,
    # which are often equal by chance.
    share = _SHARE_OF_ARRAYS if all(telling) else _SHARE_OF_OTHERS
    return shared >= max(FLOOR, share * min(private, public))


def single(counts: Mapping[bytes, int], telling: bool) -> set[bytes]:
    """Return the records that identify people: those that occur at most three times."""
    # All records of an oversampled dataset count. In one of arrays of 16 numbers or more, a tenth of the different ones
    # occur more than three times. In one of texts or table rows, nine tenths occur equally often.
    most = _FEW
    if telling and sum(count > _FEW for count in counts.values()) >= _SHARE_OF_OFTEN * len(counts):
        return set(counts)
    if counts:
        usual, holders = Counter(counts.values()).most_common(1)[0]
        most *= usual if holders >= _SHARE_OF_ALIKE * len(counts) else 1
    return {digest for digest, count in counts.items() if count <= most}
