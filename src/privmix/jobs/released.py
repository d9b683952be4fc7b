"""A release in one's hands: its rows, its certificate, and a folder to hand on."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privmix.designs import Plan, plan_from_dict
from privmix.releases import ReleasedDataset, load_release, verify_release
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import DATA_FOLDER, RELEASE_FOLDER, check_files, members
from privmix.scratch import ScratchFolder
from privmix.untrusted import open_plain


class Release:
    """A release: noisy rows and their certificate. Everything here is public.

    Its files are in a folder: the user's, or a temporary one that is gone when this object is. The rows are read from
    there when they are first asked for.

    Attributes:
        certificate: what it guarantees.

    Raises:
        InvalidInput: the folder is no release as it was certified.
        StorageError: a file is missing or can't be read.
    """

    def __init__(self, folder: str | Path, scratch: ScratchFolder | None = None) -> None:
        self._folder, self._scratch = Path(folder), scratch
        self.certificate = read_certificate(self._folder)

    @property
    def folder(self) -> Path | None:
        """Where it is; None where it is nowhere yet, see :meth:`save`."""
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

    def __fspath__(self) -> str:
        """Where its files are: whatever takes the folder of a release takes the release."""
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
            with draft.folder(DATA_FOLDER) as data:
                for name in self._files():
                    inner, _, file = name.rpartition("/")
                    with open_plain(self._folder / name, name) as stream:
                        (data if inner else draft).write(file, stream.read(), shared=True)
            draft.check_in_place()
            verify_release(draft.path)
        return path

    def _files(self) -> list[str]:
        """Names of all files; which there are was checked."""
        listed = [str(item["file"]) for item in self.certificate["files"]]
        others = [member.name for member in members(self.plan) if member.rows is None]
        return listed + [name for name in others if (self._folder / name).exists()]

    def __repr__(self) -> str:
        plan = self.plan
        shape = f"design={plan.design!r}, rows={plan.rows}, dim={plan.dim}, classes={plan.num_classes}"
        return f"{type(self).__name__}({shape}, {self.certificate!r})"
