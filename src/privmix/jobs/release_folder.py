"""A release in one's hands: its rows, its certificate, its folder, and new records in the space of its rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.bars import Asked, callback, shows_bars
from privmix.certificate.about import about_of
from privmix.certificate.certificate import MODEL
from privmix.errors import InvalidInput, check_choice
from privmix.features.spec import feature_names, from_spec, title_of
from privmix.jobs.columns import Columns
from privmix.jobs.kinds import FITTED, kind_of
from privmix.jobs.models import Model, model_in
from privmix.packages import torch_as_extra
from privmix.planning.choice import check_choice_record, forecast_of
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by, plan_from_dict
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import DATA_FOLDER, RELEASE_FOLDER, check_files, load_release, members
from privmix.releases.verify import verify_release
from privmix.scratch import ScratchFolder
from privmix.shown import Bars, Shown
from privmix.untrusted import open_plain

if TYPE_CHECKING:
    from privmix.jobs.sampling import SampledTable
    from privmix.publication.dataset import HasDataset


@dataclass(frozen=True, eq=False, repr=False)
class Transformed(Shown):
    """Records in the form of a release's rows, (n, d) float32. As private as the records."""

    features: NDArray[np.float32]
    feature_names: tuple[str, ...]
    names: tuple[str, ...] | None = None
    out: Path | None = None

    def __len__(self) -> int:
        return len(self.features)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        facts = {"features": f"{len(self.feature_names):,}"}
        return f"Transformed: {len(self):,} records", facts if self.out is None else {**facts, "file": self.out}

    def to_dict(self) -> dict[str, Any]:
        out = None if self.out is None else str(self.out)
        return {"records": len(self), "features": len(self.feature_names), "out": out}

    def table(self, start: int = 0, stop: int | None = None) -> Any:
        """Return records `start` to before `stop` as an Arrow table: file names (`record`), if any, then features."""
        from privmix.jobs.private_tables import column

        part = slice(start, stop)
        arrays, names = [column(one) for one in self.features[part].T], list(self.feature_names)
        if self.names is not None:
            arrays, names = [column(self.names[part]), *arrays], ["record", *names]
        return pa.Table.from_arrays(arrays, names)


def transformed(
    release: HasDataset | ReleasedDataset | str | Path,
    data: Any,
    columns: Columns,
    split: str | None,
    features_model: str | Path | None,
    progress: Progress,
) -> Transformed:
    """Return records through a release's extractor, clipped, centred by the released mean and clipped again."""
    # Imported here: help takes none of it.
    from privmix.jobs.dataset import open_unlabelled
    from privmix.learning.base import ReleaseFacts
    from privmix.releases.series_chain import dataset_of

    facts = ReleaseFacts.of(dataset_of(release))
    extractor = from_spec(facts.extractor, features_model)
    opened = open_unlabelled(data, extractor, facts.input_shape, facts.classes, split=split, columns=columns)
    total = opened.schema.records
    found, done = np.empty((total, facts.dim), np.float32), 0
    for raw in opened.source.inputs(extractor.step):
        found[done : done + len(raw)] = facts.transform.rows(extractor.transform(raw))
        done += len(raw)
        progress("features", done, total)
    return Transformed(found, feature_names(facts.extractor, facts.dim), opened.source.names)


SAMPLED: Final = 10_000
"""Default number of sampled records."""


class Release(Shown):
    """A release: noisy rows and their certificate. Everything here is public.

    Its files are in a folder: the user's, or a temporary one that is gone when this object is. The rows are read from
    there when they are first asked for.

    Attributes:
        certificate: what it guarantees.
        label: name of the labels' column; known where the release was just made, else "label"; None without one.

    Raises:
        InvalidInput: the folder is no release as it was certified.
        StorageError: a file is missing or can't be read.
    """

    def __init__(
        self,
        folder: str | Path,
        scratch: ScratchFolder | None = None,
        details: Sequence[str] = (),
        label: str | None = "label",
    ) -> None:
        self._folder, self._scratch, self._details = Path(folder), scratch, tuple(details)
        self.label = label
        self.certificate: Final = read_certificate(self._folder)

    @property
    def details(self) -> tuple[str, ...]:
        return self._details

    def to_dict(self) -> dict[str, Any]:
        return dict(self.certificate.to_dict())

    @property
    def folder(self) -> Path | None:
        """Folder of the release; None before it has one, see :meth:`save`."""
        return None if self._scratch is not None else self._folder

    @cached_property
    def dataset(self) -> ReleasedDataset:
        """All that learners ask for; reading it checks the files against the certificate."""
        return load_release(self._folder)

    @cached_property
    def plan(self) -> Plan:
        """The public constants from which both the sampler and the price follow."""
        return plan_from_dict(self.certificate["plan"])

    @property
    def x(self) -> NDArray[np.float32]:
        """(T, d) noisy rows."""
        return self.dataset.x

    @property
    def y(self) -> NDArray[np.float32]:
        """(T, K) their noisy labels."""
        return self.dataset.y

    @property
    def classes(self) -> tuple[str, ...]:
        """K class names."""
        return self.plan.classes

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the d features: from the extractor's settings, else "feature 0", "feature 1", and so on."""
        return feature_names(self.certificate["extractor"], self.plan.dim)

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the rows as a table: a column a feature, by its name, and a column "y: NAME" a class.

        Values are those of the rows: noisy sums of clipped records or samples, and soft labels; no record.

        Args:
            library: ``"pandas"``, or ``"pyarrow"``.

        Raises:
            InvalidInput: another library.
        """
        check_choice("library", library, ["pandas", "pyarrow"])
        names = [*self.feature_names, *(f"y: {name}" for name in self.classes if len(self.classes) > 1)]
        columns = np.concatenate([self.x, self.y], axis=1)[:, : len(names)]
        if library == "pandas":
            import pandas

            return pandas.DataFrame(columns, columns=names)
        return pa.Table.from_arrays([pa.array(column) for column in columns.T], names)

    @shows_bars
    def transform(
        self,
        data: Any,
        *,
        split: str | None = None,
        columns: Columns | str | Sequence[str] | None = None,
        label: str | None = None,
        features_model: str | Path | None = None,
        progress: Asked = None,
    ) -> NDArray[np.float32]:
        """Return new records in the space of the rows: extracted, clipped, centred, and clipped again.

        Learners of the rows need records to classify in this form; ``privmix transform`` does the same. The result is
        as private as the records.

        Args:
            data: as :func:`privmix.release` takes them: arrays, frames, folders, images. Labels may be missing, and
                are not read.
            split: which part; None: ``test`` where there is one, else all that names no part.
            columns: names of the columns of numbers, or :class:`privmix.Columns`.
            label: a column that is no input.
            features_model: for an extractor whose model no package brings.
            progress: called with (stage, done, total); True: bars; None: bars in a terminal or notebook.

        Returns:
            (n, d) float32.

        Raises:
            InvalidInput: the data have other inputs than the release.
            StorageError: a file cannot be read.
        """
        asked = Columns(columns=columns, label="label" if label is None else label).as_columns()
        return transformed(self, data, asked, split, features_model, callback(progress)).features

    def sample(self, records: int = SAMPLED, *, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Labelled records that fit the release, for learners that cannot correct for noise.

        Features are drawn from the denoised statistics of the classes, labels are those of :func:`privmix.fit`; see
        :func:`privmix.learning.records.sample_records`. They cost no privacy, and none is a person's record.

        Args:
            records: number of records; more bring a learner nearer to the accuracy of ``fit``.
            seed: of the draw.

        Returns:
            (n, d) float32 in the space of :meth:`transform`, and (n,) classes, as :meth:`Model.predict` names them.
        """
        # A user who only makes a release needs no learner.
        from privmix.jobs.fitting import fitted
        from privmix.learning.base import ReleaseLearner
        from privmix.learning.records import sample_records

        model = fitted(self)
        assert isinstance(model.classifier, ReleaseLearner)
        x, places = sample_records(self.dataset, model.classifier, records, seed)
        return x, model.named(places)

    @shows_bars
    def sample_table(
        self, records: int | None = None, *, label: str | None = None, seed: int = 0, progress: Asked = None
    ) -> SampledTable:
        """Rows in the declared columns of a table, if this release is of one; see :func:`privmix.sample`."""
        from privmix.jobs.sampling import sampled

        found = sampled(self, records, label, seed, progress=callback(progress))
        for text in found.cautions:
            warnings.warn(text, stacklevel=3)
        return found

    def __fspath__(self) -> str:
        """Path of the release's folder: functions that take the folder take the release."""
        return str(self._folder)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the release to a new folder, whole and verified, or not at all.

        Args:
            folder: to make; hand it to anyone.
            overwrite: replace a release that is there.

        Raises:
            InvalidInput: the folder exists, or the release's files are not as certified.
            StorageError: reading or writing failed; nothing is left behind.
        """
        path = Path(folder)
        with replace(RELEASE_FOLDER, field="folder").new(path, overwrite=overwrite) as draft:
            check_files(self._folder, self.certificate, self.plan)
            # Which files there are was checked.
            listed = [str(item["file"]) for item in self.certificate["files"]]
            others = [member.name for member in members(self.plan) if member.rows is None]
            with draft.folder(DATA_FOLDER) as data:
                for name in listed + [name for name in others if (self._folder / name).exists()]:
                    inner, _, file = name.rpartition("/")
                    with open_plain(self._folder / name, name) as stream:
                        (data if inner else draft).write(file, stream.read(), shared=True)
            draft.check_in_place()
            # The copy itself is verified: a recipient gets these bytes.
            verify_release(draft.path)
        return path

    def __deepcopy__(self, memo: Any) -> Self:
        # A release does not change, and a copy of arrays and folders is what scikit-learn's `clone` would make.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process reads the folder, and leaves it where it is.
        return type(self), (self._folder, None, (), self.label)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        plan, promise, where = self.plan, self.certificate, self.folder
        sums = f"{made_by(plan).released} and " if made_by(plan).released else ""
        choice = promise["choice"]
        try:
            check_choice_record(choice or {})
            forecast = {"forecast, not checked": forecast_of(choice, choice["chosen"])}
        except InvalidInput:
            # There is none, or no planner of ours wrote it.
            forecast = {}
        return about_of(promise).get("title", f"Release of design {plan.design}"), {
            **promise.lead(),
            **forecast,
            **({"warnings": "; ".join(promise.warnings)} if promise.warnings else {}),
            "released": f"{sums}{plan.rows:,} rows of {plan.dim:,} features"
            + (f", {plan.num_classes:,} classes" if plan.num_classes > 1 else ""),
            "extractor": title_of(promise["extractor"]),
            "folder": "not saved yet: call save(FOLDER)" if where is None else where,
            "next": "model = pm.fit(release)" if plan.num_classes > 1 else "rows = pm.sample(release)",
            "id": promise.id,
        }

    def picture(self) -> Bars | None:
        return self.certificate.picture()


@torch_as_extra()
def load(folder: str | Path, *, features_model: str | Path | None = None, module: Any = None) -> Release | Model:
    """Read a release, a model fitted on one, or a trained model, by what the folder is.

    The folder is data: nothing of it is run, and no path or address that it names is opened.

    Args:
        folder: what ``privmix release``, ``privmix fit`` or ``privmix train`` wrote.
        features_model: for models; see :class:`Model`.
        module: of a model that is a network of your own: the ``torch.nn.Module`` that was trained, or
            ``torch:FILE.py:NAME``. Its folder has weights alone: without the module the model predicts nothing.

    Raises:
        InvalidInput: a file is damaged, edited or not one that belongs there.
        StorageError: a file is missing or can't be read.

    Example:
        >>> load("no-such-folder")
        Traceback (most recent call last):
        ...
        privmix.errors.StorageError: certificate: cannot read no-such-folder/certificate.json: No such file or directory
    """
    if kind_of(Path(folder)) in (MODEL, FITTED):
        return model_in(folder, features_model, module)
    found = Release(folder)
    # Damaged files raise now, and not when they are used.
    _ = found.dataset
    return found
