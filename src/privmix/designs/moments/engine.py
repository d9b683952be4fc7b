"""Run a plan of second moments: exact integer sums of products of clipped records, one draw of noise, done."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dsyrk

from privmix.designs.moments.plan import MomentsPlan
from privmix.engine.passes import ClippedSum, Pass, Room, SumEngine
from privmix.engine.records import RecordSource, mapping
from privmix.engine.tiles import TileReader, lattice_steps
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.persons import RecordWeights
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import ClassSecondMoments, SecondMoments, sample_rows

# Physical sizes: they set speed and memory and change no bit of the result. Wide records go fewer at a time, so that
# they stay in a core's cache from clipping to products.
_RECORDS_AT_ONCE = 4096
_FEWEST_AT_ONCE, _NUMBERS_AT_ONCE = 512, 2**19
# Numbers on the lattice that wait for their products, on all cores together.
_NUMBERS_READY = 2**22
# Logical size: noise streams are keyed by groups of this many matrix rows.
NOISE_ROWS: Final = 128
# Blocks of records on the lattice, and of noise, in addition to the sums.
_SPARE = 2**28


class MomentsEngine(SumEngine[SecondMoments]):
    """Carries out a plan of second moments on private records, read once for the mean and once for each panel of X'X.

    Formal guarantees:
        * every record is clipped, centred with the released mean and clipped again before its products are summed,
          and rounding to the lattice never makes it longer;
        * sums are exact integers: blocks, panels, threads and order change no bit of the output;
        * noise is drawn once for each released number, after the sums, from secret streams: running again under the
          same key re-creates the same release;
        * X'X gets one draw of noise for each pair of features, used for both of its entries;
        * nothing but the noisy mean and the noisy moments leaves; rows are samples made from those alone;
        * an engine runs once, and streams serve one engine.
    """

    # memory_bytes: for exact sums and the released X'X; None is half of the machine's. If X'X does not fit, it is
    # summed in panels of rows, each from a pass over the records: sums never lie on a disk. At the least 128 rows are
    # summed at once. The eigenvectors of X'X afterwards take 16 bytes an entry.

    _plan: MomentsPlan

    def __init__(self, plan: MomentsPlan, records: RecordSource, streams: SecretStreams, **machine: Any) -> None:
        super().__init__(plan, records, streams, **machine)
        self._panels = row_panels(plan.dim, self._memory)

    def _release(self, tell: Progress) -> SecondMoments:
        plan = self._plan
        self._transform = RecordTransform(plan.clip_norm, plan.norm, self._mean(tell), plan.residual_clip_norm)
        return self._released_moments(tell)

    def _sampled(self, tell: Progress) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return sample_rows(self.beside, self._plan.label_offset, self._plan.rows, self._sampling())

    def _mean(self, tell: Progress) -> NDArray[np.float32] | None:
        clipped_sum = ClippedSum(self._plan.dim)
        return self._centre(self._plan, lambda: self._passes.over(clipped_sum, tell).total, self._streams)

    def _sampling(self) -> np.random.Generator:
        return self._streams.generator("sampled rows")

    def _released_moments(self, tell: Progress) -> SecondMoments:
        released = np.empty((self._plan.dim, self._plan.dim), np.float32)
        # No name here holds the sums of a panel while those of the next are made.
        for number in range(len(self._panels) - 1):
            self._summed(number, tell).release_rows(self._streams, released)
        sums = self._summed(len(self._panels) - 1, tell)
        sums.release_rows(self._streams, released)
        return sums.released(self._streams, mirrored(released))

    @property
    def _sums(self) -> "type[MomentSums]":
        return MomentSums

    def _summed(self, number: int, tell: Progress) -> "MomentSums":
        """Exact sums over all records, X'X in panel ``number``."""
        panels = len(self._panels)

        def told(stage: str, done: int, total: int) -> None:
            tell(stage, number * total + done, panels * total)

        return self._passes.over(MomentPass(self._plan, self.transform, self._panels[number], self._sums), told)


@dataclass(frozen=True, eq=False)
class MomentPass(Pass["MomentSums"]):
    """Products of records, X'X in one panel."""

    plan: MomentsPlan
    transform: RecordTransform
    panel: range
    sums: "type[MomentSums]"
    stage: ClassVar[str] = "moments"

    def empty(self) -> "MomentSums":
        return self.sums(self.plan, self.panel)

    def add(self, reader: TileReader, index: int, sums: "MomentSums", done: Callable[[int], None]) -> None:
        passed = 0
        with mapping(reader.workers) as each:
            for features, labels, weights in reader.blocks(index, _RECORDS_AT_ONCE):
                sums.add(self.transform, features, labels, weights, each)
                passed += len(labels)
                done(passed)


def row_panels(dim: int, memory: int) -> list[range]:
    """Return the rows of X'X to sum at once: up to the diagonal they fit into ``memory`` next to the released X'X."""
    room = (memory - 4 * dim**2 - _SPARE) // 8
    if dim**2 <= room:
        return [range(dim)]
    found, start = [], 0
    while start < dim:
        stop = start + NOISE_ROWS
        while stop < dim and (stop + NOISE_ROWS - start) * (stop + NOISE_ROWS) <= room:
            stop += NOISE_ROWS
        found.append(range(start, min(stop, dim)))
        start = stop
    return found


class MomentSums:
    """Exact sums of products of records on the lattice. Secret.

    Formal guarantees:
        * One person adds to each sum what a record may at most: see :mod:`privmix.mechanisms.persons`.
        * Exact: every sum is an integer below 2^53 in float64 or int64, so block sizes, threads, panels and the order
          of records change no bit of it; more records than that allows raise.
    """

    released_as: ClassVar[type[SecondMoments]] = SecondMoments

    def __init__(self, plan: MomentsPlan, panel: range | None = None) -> None:
        self._plan, self._lattice, self._room = plan, plan.lattice, Room(4**plan.lattice_bits)
        self._panel = range(plan.dim) if panel is None else panel
        # Fortran order is BLAS's own and spares copies of a large matrix.
        self._second = np.zeros((len(self._panel), self._panel.stop), np.float64, order="F")
        self._class_sums = np.zeros((plan.num_classes, plan.dim), np.int64)
        self._counts = np.zeros(plan.num_classes, np.int64)
        self._label_steps = np.zeros(plan.num_classes, np.int64)

    def __repr__(self) -> str:
        return "<MomentSums>"

    def add(
        self,
        transform: RecordTransform,
        features: NDArray[Any],
        labels: NDArray[np.int64],
        weights: RecordWeights | None = None,
        each: Callable[..., Iterator[Any]] = map,
    ) -> None:
        """Add (b, d) features and (b,) labels in 0..K-1; for whole persons with the weights of their records."""
        # `each` applies what clips and rounds records to parts of them, as `map` does, on threads if it likes.
        if weights is not None:
            self._add_persons(transform.shares(np.asarray(features)), weights)
            return
        at_once = max(_FEWEST_AT_ONCE, min(_RECORDS_AT_ONCE, _NUMBERS_AT_ONCE // self._plan.dim))
        ready = at_once * max(1, _NUMBERS_READY // (at_once * self._plan.dim))

        def on_lattice(part: slice) -> NDArray[np.float64]:
            return lattice_steps(self._lattice, transform, np.asarray(features[part]))

        for first in range(0, len(labels), ready):
            end = min(first + ready, len(labels))
            parts = [slice(start, min(start + at_once, end)) for start in range(first, end, at_once)]
            for part, steps in zip(parts, each(on_lattice, parts), strict=True):
                self._room.take(len(labels[part]))
                self._add_products(steps, labels[part])
                self._add_by_class(steps, labels[part])
                self._counts += np.bincount(labels[part], minlength=self._plan.num_classes)

    def _add_persons(self, records: NDArray[np.float64], weights: RecordWeights) -> None:
        """Add (b, d) transformed records of whole persons, as shares of the clipping bound."""
        self._room.take(weights.persons)
        self._add_products(self._lattice.quantise(records * weights.roots), weights.labels)
        if self._plan.num_classes == 1:
            return
        self._add_by_class(self._lattice.quantise(weights.class_means(records)), weights.groups.labels)
        one, offset = round(1 / self._lattice.step), round(self._plan.label_offset / self._lattice.step)
        self._label_steps += weights.label_steps(self._plan.num_classes, one, offset)

    def merge(self, other: "MomentSums") -> None:
        self._room.take(other._room.taken)
        self._second += other._second
        self._class_sums += other._class_sums
        self._counts += other._counts
        self._label_steps += other._label_steps

    def _add_products(self, steps: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        """Add what (b, d) records on the lattice, of (b,) classes, add to the panel of X'X."""
        # Products and partial sums are integers below 2^53: exact in any order in which BLAS adds them.
        if self._panel.start == 0:
            square = steps[:, : self._panel.stop]
            self._second = dsyrk(1.0, square.T, beta=1.0, c=self._second, lower=1, overwrite_c=1)
        else:
            own, up_to = steps[:, self._panel.start : self._panel.stop], steps[:, : self._panel.stop]
            self._second = dgemm(1.0, own.T, up_to.T, trans_b=1, beta=1.0, c=self._second, overwrite_c=1)

    def _add_by_class(self, steps: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        for label in np.unique(labels):
            self._class_sums[label] += steps[labels == label].sum(axis=0).astype(np.int64)

    def release_rows(self, streams: SecretStreams, released: NDArray[np.float32]) -> None:
        """Add the noise to the panel's rows of X'X, once, and write them to ``released``: a way out of these sums."""
        std = self._plan.second_noise_multiplier / self._lattice.step**2
        unit = self._plan.part("second").unit
        noisy_rows(self._second, self._panel, std, unit, streams, "second moment noise", released)

    def released(self, streams: SecretStreams, second: NDArray[np.float32] | None = None) -> SecondMoments:
        """Add the noise, once, and scale; ``second`` is the released X'X where it was made in panels."""
        plan, step = self._plan, self._lattice.step
        arrays = {plan.part("second").name: self._noisy_second(streams) if second is None else second}
        if plan.num_classes == 1:
            return self.released_as.of(plan, arrays)
        cross, counts = self._linear()
        with streams.lent("cross moment noise") as generator:
            std = plan.label_norm * plan.cross_noise_multiplier / step**2
            cross_noise = gaussian_on_lattice(generator, cross.shape, std)
        with streams.lent("label sum noise") as generator:
            count_noise = gaussian_on_lattice(generator, counts.shape, plan.noise_std["counts"] / step)
        arrays |= {
            "cross": ((cross + cross_noise) * plan.part("cross").unit).astype(np.float32),
            "label_sums": ((counts + count_noise) * plan.part("counts").unit).astype(np.float32),
        }
        return self.released_as.of(plan, arrays)

    def _linear(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Exact X'Y in steps of step^2, as those of X'X are, and label sums in steps of step."""
        step = self._lattice.step
        offset = round(self._plan.label_offset / step)
        one = round(1 / step)
        cross = self._class_sums.T * one - offset * self._class_sums.sum(axis=0)[:, None]
        return cross, self._counts * one - offset * self._counts.sum() + self._label_steps

    def _noisy_second(self, streams: SecretStreams) -> NDArray[np.float32]:
        released = np.empty((self._plan.dim, self._plan.dim), np.float32)
        self.release_rows(streams, released)
        return mirrored(released)


def noisy_symmetric(
    sums: NDArray[np.float64], std: float, unit: float, streams: SecretStreams, purpose: str, *number: int
) -> NDArray[np.float32]:
    """Return (d, d) integers plus noise, ``std`` on the diagonal, std / sqrt(2) off it, times ``unit``; symmetric."""
    released = np.empty(sums.shape, np.float32)
    noisy_rows(sums, range(len(sums)), std, unit, streams, purpose, released, *number)
    return mirrored(released)


def noisy_rows(
    sums: NDArray[np.float64],
    rows: range,
    std: float,
    unit: float,
    streams: SecretStreams,
    purpose: str,
    released: NDArray[np.float32],
    *number: int,
) -> None:
    """Write rows of a symmetric matrix with noise, up to the diagonal, to ``released`` (d, d); see :func:`mirrored`."""
    # Rows run from a multiple of 128 to one, or to d: noise has one stream for 128 rows, in any split into panels.
    off_diagonal = std / math.sqrt(2)
    for start in range(rows.start, rows.stop, NOISE_ROWS):
        stop = min(start + NOISE_ROWS, rows.stop)
        group = start // NOISE_ROWS
        with streams.lent(purpose, *number, group) as generator:
            noise = gaussian_on_lattice(generator, (stop - start, stop), off_diagonal)
        with streams.lent(f"{purpose}: diagonal", *number, group) as generator:
            diagonal = gaussian_on_lattice(generator, stop - start, off_diagonal * math.sqrt(2))
        noise[np.arange(stop - start), np.arange(start, stop)] = diagonal
        # Entries above the diagonal hold no sums; the mirror replaces them.
        own = slice(start - rows.start, stop - rows.start)
        released[start:stop, :stop] = (sums[own, :stop] + noise) * unit


def mirrored(released: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the matrix with what is below its diagonal above it, too; in place."""
    dim = len(released)
    for start in range(0, dim, NOISE_ROWS):
        stop = min(start + NOISE_ROWS, dim)
        square = np.tril(released[start:stop, start:stop])
        released[start:stop, start:stop] = square + np.tril(square, -1).T
        released[:start, start:stop] = released[start:stop, :start].T
    return released


class ClassMomentsEngine(MomentsEngine):
    """Carries out a plan of second moments of each class; its guarantees are those of :class:`MomentsEngine`."""

    def _released_moments(self, tell: Progress) -> SecondMoments:
        # The plan limits the matrices to what fits: there are no panels.
        whole = MomentPass(self._plan, self.transform, range(self._plan.dim), ClassMomentSums)
        return self._passes.over(whole, tell).released(self._streams)


class ClassMomentSums(MomentSums):
    """Exact sums of products of the records of each class on the lattice. Secret."""

    released_as: ClassVar[type[SecondMoments]] = ClassSecondMoments

    def __init__(self, plan: MomentsPlan, panel: range | None = None) -> None:
        super().__init__(plan, panel)
        # Each class's matrix is in Fortran order, BLAS's own.
        self._second: NDArray[Any] = np.zeros((plan.dim, plan.dim, plan.num_classes), np.float64, order="F")

    def _add_products(self, steps: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        for label in np.unique(labels):
            own = steps[labels == label]
            self._second[..., label] = dsyrk(1.0, own.T, beta=1.0, c=self._second[..., label], lower=1, overwrite_c=1)

    def _noisy_second(self, streams: SecretStreams) -> NDArray[np.float32]:
        std, unit = self._plan.second_noise_multiplier / self._lattice.step**2, self._plan.part("second").unit
        purpose, labels = "class second moment noise", range(self._plan.num_classes)
        return np.stack([noisy_symmetric(self._second[..., at], std, unit, streams, purpose, at) for at in labels])
