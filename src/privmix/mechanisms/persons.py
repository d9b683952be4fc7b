"""Persons with many records: one contribution each.

Neighbours differ by one person with all records, so a person's part in a sum is bounded for all possible records:

* To sums of products (X'X, scatters) each record is added times the root of its weight. The weight is min(1, K / k) / K
  for a person with k records; the weights of a person sum to 1 at most.
* To linear sums (X'Y, label sums, means) a person adds the mean of their records of each class times
  the weight of these records.
* To mixed rows a person gives one of their records, drawn afresh for each row.
* Records of :data:`NO_ONE` are added to nothing.

So one person moves a sum by no more than one record does where records are the unit, and prices stay.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix

from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.membership import ROW_TILE, Membership, Secret, offsets_of, tile_length
from privmix.mechanisms.plan import MOST_OF_ONE
from privmix.mechanisms.streams import SecretStreams

NO_ONE: Final = -1
"""The number that stands for no person."""
_ULP: Final = float(np.finfo(np.float64).eps)
_AT_ONCE: Final = 2**16


@dataclass(frozen=True, eq=False)
class RecordWeights:
    """Weights of the records of some whole persons. Secret.

    Formal guarantees:
        * One: the results of :meth:`means` and ``roots`` for a person depend on that person's records alone, to the
          last bit. So does the person's weight.
        * Bounded: the weights of a person sum to at most 1.
    """

    # starts: (persons + 1,) where each person's records begin, sorted by class. most: K, records of a person that weigh
    # as much as a record of a person with few.

    starts: NDArray[np.int64]
    labels: NDArray[np.int64]
    most: int = 1

    def __repr__(self) -> str:
        return "<Weights>"

    @property
    def persons(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """(persons,) what each person weighs: 1, or less of a person with fewer than ``most`` records."""
        return np.asarray(np.minimum(1.0, self._counts / self.most))

    @cached_property
    def records(self) -> NDArray[np.float64]:
        return np.repeat(1.0 / np.maximum(self._counts, self.most), self._counts)

    @cached_property
    def roots(self) -> NDArray[np.float64]:
        """(records, 1) square roots of the same, for sums of products."""
        return np.sqrt(self.records)[:, None]

    @cached_property
    def groups(self) -> "PersonGroups":
        person = np.repeat(np.arange(self.persons), self._counts)
        new = np.ones(len(self.labels), bool)
        new[1:] = (person[1:] != person[:-1]) | (self.labels[1:] != self.labels[:-1])
        starts = np.flatnonzero(new)
        sizes = np.diff(np.append(starts, len(self.labels)))
        return PersonGroups(starts, self.labels[starts], sizes * self.records[starts], person[starts])

    def means(self, x: NDArray[np.float64], starts: NDArray[np.int64], shares: NDArray[np.float64]) -> Any:
        """Return (groups, d): the mean of each group's rows of ``x``, of norm at most 1, times its share."""
        # Rounding could make the mean of k rows longer than any of them, by k + 2 half-ulps of 1 at most. They stem
        # from k - 1 additions, each off by half an ulp of a sum of norms, a division and a product. It is subtracted.
        ends = np.append(starts, len(x))
        sizes = np.diff(ends)
        # A product with ones adds the rows of a group one after the other, faster than reduceat where groups are small.
        ones = csr_matrix((np.ones(len(x)), np.arange(len(x)), ends), shape=(len(starts), len(x)))
        sums = ones @ x
        sums *= (shares / sizes * (1 - (sizes + 4) * _ULP))[:, None]
        return sums

    def class_means(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (groups, d): of each person's records of each class, as :attr:`groups` lists them."""
        found: NDArray[np.float64] = self.means(x, self.groups.starts, self.groups.shares)
        return found

    def person_means(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.means(x, self.starts[:-1], self.shares)
        return found

    def label_steps(self, classes: int, one: int, offset: int) -> NDArray[np.int64]:
        """(classes,) sum of :meth:`label_vectors`: what persons add to the label sums."""
        return np.asarray(self.label_vectors(classes, one, offset).sum(axis=0))

    def label_vectors(self, classes: int, one: int, offset: int) -> NDArray[np.int64]:
        """(persons, classes) label of each person, in steps; a whole record's has ``one``."""
        # Labels weigh what the person's records do. The offset is subtracted in that proportion, and wholly where the
        # weight is 1. A label vector between those of single records is then no longer than the longest of them.
        found = np.zeros((self.persons, classes), np.int64)
        groups = self.groups
        found[groups.persons, groups.labels] = np.floor(groups.shares * one).astype(np.int64)
        if self.most == 1:
            return found - offset
        if offset:
            vectors = found - offset * self.shares[:, None]
            bound = float(np.hypot(one - offset, offset * np.sqrt(classes - 1)))
            found = np.trunc(clip_l2(vectors, bound)).astype(np.int64)
        return found


@dataclass(frozen=True, eq=False)
class PersonGroups:
    """Records of one person and one class, as groups: begin, class number, weight together, person. Secret."""

    starts: NDArray[np.int64]
    labels: NDArray[np.int64]
    shares: NDArray[np.float64]
    persons: NDArray[np.int64]

    def __repr__(self) -> str:
        return "<Groups>"


def numbers_of(persons: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers from 0 in the order in which persons appear, by name; records of :data:`NO_ONE` keep that number."""
    if persons.dtype.kind in "iu":
        if _are_numbers(persons):
            return persons
        import pyarrow as pa

        # Entries of a dictionary are numbered as they are met.
        known = pa.array(persons, mask=persons == NO_ONE).dictionary_encode().indices
        return np.asarray(known.fill_null(NO_ONE), np.int64)
    _, first, number = np.unique(persons, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[number])


def _are_numbers(persons: NDArray[Any]) -> bool:
    """Whether they are such numbers already; looked at some at a time, since they may lie on a disk."""
    if persons.dtype != np.int64:
        return False
    most = -1
    for start in range(0, len(persons), _AT_ONCE):
        some = persons[start : start + _AT_ONCE]
        before = np.maximum.accumulate(np.append(most, some))
        if some.min() < NO_ONE or (some > before[:-1] + 1).any():
            return False
        most = before[-1]
    return True


def _by_person_and_class(number: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order by number and, of each, by class; equal ones stay as they were."""
    small = labels.astype(np.int16) if labels.max(initial=0) < 2**15 else labels
    by_class = np.argsort(small, kind="stable")
    # Rows of a sparse matrix keep the order in which their entries come, and making them takes no comparisons.
    entries = coo_matrix((np.ones(len(number), np.int8), (number[by_class], np.arange(len(number)))))
    entries.has_canonical_format = True
    return np.asarray(by_class[entries.tocsr().indices])


def grouped(
    persons: NDArray[np.int64], labels: NDArray[np.int64], most: int = MOST_OF_ONE
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order that puts records of one person side by side, by class, and where each person begins."""
    # If a person has more than `most` records, that many count, at equal distances in the data.
    number = numbers_of(persons)
    known = np.flatnonzero(number != NO_ONE)
    if not len(known):
        return known, offsets_of(known)
    if len(known) < len(number):
        order, starts = grouped(number[known], labels[known], most)
        return known[order], starts
    counts = np.bincount(number)
    if counts.max() > most:
        order = np.flatnonzero(of_many(number, counts, np.zeros_like(counts), most))
        return order[_by_person_and_class(number[order], labels[order])], offsets_of(np.minimum(counts, most))
    return _by_person_and_class(number, labels), offsets_of(counts)


def of_many(
    number: NDArray[np.int64], counts: NDArray[np.int64], seen: NDArray[np.int64], most: int
) -> NDArray[np.bool_]:
    """(n,) which of some more records count, where a person has more than ``most``: those at equal distances."""
    # number: (n,) whose each record is. counts: (persons,) records of each. seen (updated): how many came before.
    order = np.argsort(number, kind="stable")
    own, first, size = np.unique(number[order], return_index=True, return_counts=True)
    places = np.empty(len(number), np.int64)
    places[order] = np.arange(len(number)) - np.repeat(first, size)
    places += seen[number]
    seen[own] += size
    many = counts[number]
    # The ones of k records at which places * most / k passes an integer: most of them.
    return np.asarray((many <= most) | ((places + 1) * most // many > places * most // many))


@dataclass(frozen=True, eq=False)
class Givers(Secret):
    """The persons of a tile as mixed rows use them: each gives a row one record, drawn afresh. Secret.

    Formal guarantees:
        * One: a row gets at most one record of a person, for all possible other members. It is drawn uniformly from
          theirs, or from those of the class that the person is in where rows are drawn by class;
        * a person is in one class, drawn once in proportion to their records, from a stream of its own;
        * what is drawn depends on the key, the tiles and the persons' records alone.
    """

    starts: NDArray[np.int64]
    labels: NDArray[np.int64]
    streams: SecretStreams
    index: int
    by_class: bool

    @cached_property
    def _runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first of the records that each person may give, and their number."""
        first, counts = self.starts[:-1], np.diff(self.starts)
        if not self.by_class:
            return first, counts
        with self.streams.lent("class of a person", self.index) as generator:
            drawn = first + _places(generator.random(len(first)), counts)
        groups = RecordWeights(self.starts, self.labels).groups
        group = np.searchsorted(groups.starts, drawn, side="right") - 1
        ends = np.append(groups.starts[1:], len(self.labels))
        return groups.starts[group], ends[group] - groups.starts[group]

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """(persons,) the class that each person is in, where rows are drawn by class."""
        return np.asarray(self.labels[self._runs[0]])

    def given(self, members: Membership, row_tile: int) -> Membership:
        first, counts = self._runs
        with self.streams.lent("record of a person", row_tile, self.index) as generator:
            places = _places(generator.random(len(members.indices)), counts[members.indices])
        return Membership(members.offsets, first[members.indices] + places, members.weights)


def _places(uniform: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places from 0 to below ``counts``; the largest number below 1 times a count may round to it."""
    return np.minimum(np.floor(uniform * counts).astype(np.int64), counts - 1)


def every_of_class(rows: int, row_tile: int, labels: NDArray[np.int64], classes: int) -> Membership:
    """Row t holds everyone of class t mod ``classes``."""
    numbers = (row_tile * ROW_TILE + np.arange(tile_length(rows, row_tile, ROW_TILE))) % classes
    of_class = [np.flatnonzero(labels == number) for number in range(classes)]
    members = [of_class[number] for number in numbers]
    counts = np.array([len(one) for one in members], np.int64)
    return Membership(offsets_of(counts), np.concatenate(members).astype(np.int64))
