"""A release, or all releases of a series together, as a folder or as an object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from privmix.designs.series.released import together
from privmix.errors import StorageError
from privmix.publication.dataset import HasDataset, ReleasedDataset
from privmix.publication.second_moments import SecondMoments
from privmix.releases.folder import load_release, read_beside
from privmix.releases.series import FIELD, is_series
from privmix.releases.series_chain import linked


def dataset_of(release: ReleasedDataset | HasDataset | str | Path) -> ReleasedDataset:
    """Return the dataset of a release, or of all releases of a series together; errors as :func:`load_release`."""
    if isinstance(release, ReleasedDataset):
        return release
    if isinstance(release, HasDataset):
        return release.dataset
    return load_series(release) if is_series(Path(release)) else load_release(release)


def load_series(folder: str | Path) -> ReleasedDataset:
    """Read the newest release of a series in ``folder``, with moments of less noise from the earlier ones.

    Its rows are those sampled of the newest alone; see :func:`privmix.designs.series.released.together`.

    Formal guarantees:
        * nothing but released numbers is read, and those are what the certificates list;
        * releases that are not the steps of one series, one after another from the first on, are refused.
    """
    chain = linked(Path(folder))
    last, newest = chain[-1], load_release(chain[-1].place)
    if newest.certificate is None or newest.certificate.id != last.certificate.id:
        raise StorageError(f"{FIELD}: {last.place} was replaced by another release meanwhile; put the first one back")

    def steps() -> Iterator[SecondMoments]:
        for one in chain:
            yield read_beside(one.place, one.plan, one.certificate)

    return replace(newest, beside=together(last.plan, steps).moments)
