"""Run one step of a series of second moments: exact sums of its records, added to what the step before released."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.designs.moments.engine import NOISE_ROWS, MomentsEngine, MomentSums, mirrored
from privmix.designs.series.plan import SeriesPlan
from privmix.engine.rows import RowBlock
from privmix.errors import InvalidInput
from privmix.mechanisms.noise import correlated_noise
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.publication.second_moments import SecondMoments


@dataclass(frozen=True, eq=False)
class Before:
    """Public result of the step before: moments of all records so far, and the (d,) mean of the first step or None."""

    moments: SecondMoments
    centre: NDArray[np.float32] | None


class SeriesEngine(MomentsEngine):
    """Carries out one step of a series on the records that are new in it.

    Formal guarantees (in addition to those of :class:`MomentsEngine`):
        * the term added to the numbers of the step before is x + round(B z)_t - round(B z)_(t-1), a whole number that
          is exact before any addition. For any stated release of the step before, the output is a function of that
          release and of y_t - y_(t-1);
        * noise is a function of the key of the series and of the step: every engine of a series has streams under the
          same key, and for each step one set of records alone;
        * the mean is released in the first step alone, from its records.
    """

    _plan: SeriesPlan
    _before: Before | None = None

    def goes_on(self, before: Before) -> None:
        """Set what the step before released; call it before :meth:`rows`, for every step but the first."""
        plan = self._plan
        sizes = before.moments.second.shape, before.moments.cross.shape, before.centre is not None
        if plan.step == 1 or sizes != ((plan.dim, plan.dim), (plan.dim, plan.num_classes), plan.centred):
            raise InvalidInput("step before", sizes, "what the step before released, for a step that has one")
        self._before = before

    def rows(self, progress: Progress | None = None, *, first: int = 0) -> Iterator[RowBlock]:
        # The noise of a later step completes that of the release before: alone it is not the noise of the plan.
        if self._plan.step > 1 and self._before is None:
            raise RuntimeError("a later step goes on from the one before")
        return super().rows(progress, first=first)

    def _mean(self, tell: Progress) -> NDArray[np.float32] | None:
        # All steps subtract the mean of the first step, whose query ran once and is priced once.
        return super()._mean(tell) if self._before is None else self._before.centre

    def _sampling(self) -> np.random.Generator:
        # No secret, but a stream of its own all the same.
        return self._streams.generator("sampled rows", self._plan.step)

    @property
    def _sums(self) -> type[MomentSums]:
        return SeriesSums

    def _summed(self, number: int, tell: Progress) -> MomentSums:
        sums = super()._summed(number, tell)
        assert isinstance(sums, SeriesSums)
        sums.before = None if self._before is None else self._before.moments
        return sums


class SeriesSums(MomentSums):
    """Exact sums of products of the records of one step. Secret."""

    _plan: SeriesPlan
    before: SecondMoments | None = None

    def release_rows(self, streams: SecretStreams, released: NDArray[np.float32]) -> None:
        """Go on from the step before in the panel's rows of X'X, and write them: a way out of these sums."""
        unit = self._plan.part("second").unit
        for start in range(self._panel.start, self._panel.stop, NOISE_ROWS):
            stop = min(start + NOISE_ROWS, self._panel.stop)
            noise = self._noise_of_rows(streams, start, stop)
            # Entries above the diagonal hold no sums; the mirror replaces them.
            own = self._second[start - self._panel.start : stop - self._panel.start, :stop]
            before = None if self.before is None else self.before.second[start:stop, :stop]
            released[start:stop, :stop] = _gone_on(own + noise, before, unit)

    def _noise_of_rows(self, streams: SecretStreams, start: int, stop: int) -> NDArray[np.float64]:
        """(stop - start, stop) what is added to some rows of X'X: 1/sqrt(2) off the diagonal."""
        std = self._plan.independent_std["second"] / math.sqrt(2)
        group, shape = start // NOISE_ROWS, (stop - start, stop)
        noise = self._added(streams, "series second moment noise", (group,), shape, std)
        diagonal = self._added(
            streams, "series second moment noise: diagonal", (group,), (stop - start,), std * math.sqrt(2)
        )
        noise[np.arange(stop - start), np.arange(start, stop)] = diagonal
        return noise

    def _added(
        self, streams: SecretStreams, purpose: str, number: tuple[int, ...], shape: tuple[int, ...], std: float
    ) -> NDArray[np.float64]:
        """Noise of this step minus that of the step before: whole numbers."""
        plan = self._plan
        now, before = correlated_noise(streams, purpose, number, shape, std, plan.factor, plan.step)
        return now - before

    def released(self, streams: SecretStreams, second: NDArray[np.float32] | None = None) -> SecondMoments:
        plan, std, before = self._plan, self._plan.independent_std, self.before
        cross, counts = self._linear()
        cross = cross + self._added(streams, "series cross moment noise", (), cross.shape, std["cross"])
        counts = counts + self._added(streams, "series label sum noise", (), counts.shape, std["counts"])
        if second is None:
            second = np.empty((plan.dim, plan.dim), np.float32)
            self.release_rows(streams, second)
            second = mirrored(second)
        arrays = {
            "second": second,
            "cross": _gone_on(cross, None if before is None else before.cross, plan.part("cross").unit),
            "label_sums": _gone_on(counts, None if before is None else before.label_sums, plan.part("counts").unit),
        }
        return SecondMoments.of(plan, arrays)


def _gone_on(added: NDArray[np.float64], before: NDArray[np.float32] | None, unit: float) -> NDArray[np.float32]:
    """Add this step's whole numbers of grid steps to what the step before released, in units, in float32."""
    # `added` is exact by now: what is done here with it and with released numbers is post-processing.
    if before is None:
        return np.asarray(added * unit, np.float32)
    # The release before is in float32: rounding makes whole grid steps of it again.
    return np.asarray((np.rint(before.astype(np.float64) / unit) + added) * unit, np.float32)
