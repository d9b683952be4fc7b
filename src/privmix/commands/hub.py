"""Releases and trained models on the Hugging Face hub: pushed once they verify, verified when they are pulled."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, MISSING, asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from privmix.certificate.certificate import CERTIFICATE_FILE, MODEL, RELEASE
from privmix.commands.base import Command, function
from privmix.errors import InvalidInput, MissingExtra, StorageError, check_number
from privmix.fields import Line
from privmix.folders import FolderKind
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.rounding import exact, rounded_up
from privmix.scratch import ScratchFolder
from privmix.shown import Shown
from privmix.training.card import CARD_FILE
from privmix.untrusted import open_plain

if TYPE_CHECKING:
    from privmix.jobs.checking import CheckedFolder
    from privmix.jobs.models import Model

_EXTRA: Final = "hub"
_TYPES: Final[Mapping[str, str]] = {RELEASE: "dataset", MODEL: "model"}
_PLACE: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
# Files of releases and models lie in one folder, or in one folder of it.
_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}(/[A-Za-z0-9][A-Za-z0-9._-]{0,120})?")
_MOST_FILES: Final = 100_000
_ANY: Final = FolderKind("out", "a release or a trained model", frozenset({CERTIFICATE_FILE}))
# The hub makes it.
_OF_THE_HUB: Final = ".gitattributes"
_FOLDER: Final = (
    "the folder of a release or of a trained model. Feature stores, runs, keys and ledgers are private: never push them"
)
_LOG_IN: Final = "log in with `hf auth login`, or set HF_TOKEN to a token with write access"


@dataclass(frozen=True, repr=False)
class Pushed(Shown):
    """Files that were sent to the hub, or would be.

    Attributes:
        to: OWNER/NAME.
        kind: of the repository, ``"dataset"`` or ``"model"``.
        files: names, in order.
        url: of the commit; None where nothing was sent.
        epsilon, delta, relation: what is guaranteed.
    """

    to: str
    kind: str
    files: tuple[str, ...]
    url: str | None
    epsilon: float
    delta: float
    relation: str

    def shown(self) -> tuple[str, Mapping[str, object]]:
        title = f"{'To be pushed' if self.url is None else 'Pushed'}: {self.kind} {self.to}"
        return title, {
            "guarantee": f"epsilon={rounded_up(self.epsilon)}, delta={exact(self.delta)}, {self.relation}",
            "files": len(self.files),
            **({} if self.url is None else {"commit": self.url}),
        }

    @property
    def details(self) -> tuple[str, ...]:
        return self.files

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


@dataclass(frozen=True, eq=False, repr=False)
class Push(Command[Pushed]):
    """Send a release or model to the Hugging Face hub.

    Verifies first, and sends only the files that the certificate lists, with a card for a model. Uses your login
    (hf auth login, or HF_TOKEN); HF_ENDPOINT names another hub. Makes the repository if needed: a dataset for a
    release.

    Formal guarantees:
        * Certified alone: the folder is verified first, which accounts for every byte of every file in it, and nothing
          else is sent but, of a model, a card that follows from its certificate.
        * Nothing private: a folder that is no release or trained model is refused before anything is sent.

    Raises:
        InvalidInput: the folder is none of these or does not verify, or the repository holds other files.
        StorageError: the hub can't be reached, or refuses.
        MissingExtra: huggingface_hub is not installed.
    """

    example = "privmix push REL --to ana/digits --dry-run"

    folder: Model | str | PathLike[str] = option(
        MISSING, "Folder of a release or model.", in_python="Also a release or a model.", argument=True
    )
    to: str = option(MISSING, "Repository on the hub: OWNER/NAME.")
    _: KW_ONLY
    public: bool = option(False, "Make a new repository public. Default: private.")
    licence: str | None = option(None, "Licence of a model, such as apache-2.0.")
    message: str | None = option(None, "Message of the commit.")
    overwrite: bool = option(False, "Delete other files in the repository.")
    dry_run: bool = option(False, "Verify, and list the files without sending them.")

    def run(self, progress: Progress) -> Pushed:
        from privmix.certificate.about import LONGEST
        from privmix.jobs.checking import check_folder
        from privmix.jobs.kinds import kind_of
        from privmix.jobs.models import Model
        from privmix.training.card import model_card
        from privmix.training.certificate import read_certificate

        to = self.to
        if not isinstance(to, str) or not _PLACE.fullmatch(to) or ".." in to or "--" in to:
            raise InvalidInput("to", to, "OWNER/NAME on the hub, of letters, digits, dots, hyphens and underscores")
        if isinstance(self.folder, Model):
            with ScratchFolder() as above:
                return replace(self, folder=self.folder.save(above / "model")).run(progress)
        place = Path(self.folder)
        found = kind_of(place) if place.is_dir() else None
        if found is None or found not in _TYPES:
            raise InvalidInput("folder", str(place), _FOLDER)
        kind = _TYPES[found]
        if self.licence is not None and found == RELEASE:
            raise InvalidInput(
                "licence",
                self.licence,
                "no licence for a release: its certificate states the licence (`licence` of the release)",
            )
        if self.licence is not None:
            Line(LONGEST["licence"]).check("licence", self.licence)
        # Every byte of it follows from the certificate or has its hash, and there is no other file.
        checked = check_folder(place, progress)
        assert checked.held is not None
        files = _files_in(place)
        card = None if found == RELEASE else model_card(read_certificate(place), self.licence).encode()
        names = tuple(sorted({*files, *([] if card is None else [CARD_FILE])}))
        epsilon, delta, relation = float(checked.found["epsilon"]), float(checked.found["delta"]), checked.held.relation
        if self.dry_run:
            return Pushed(to, kind, names, None, epsilon, delta, relation)
        hub = _hub()
        api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        with _told(f"push to {to}"):
            api.create_repo(to, repo_type=kind, private=not self.public, exist_ok=True)
            others = sorted(set(api.list_repo_files(to, repo_type=kind)) - {*names, _OF_THE_HUB})
        if others and not self.overwrite:
            raise InvalidInput(
                "to", to, f"a repository without other files (or `overwrite`); it has {', '.join(others[:5])}"
            )
        with _told(f"push to {to}"):
            added = [hub.CommitOperationAdd(name, str(place / name)) for name in files]
            added += [] if card is None else [hub.CommitOperationAdd(CARD_FILE, card)]
            gone = [hub.CommitOperationDelete(name) for name in others]
            title = self.message or f"{found.capitalize()} {checked.subject.id}"
            done = api.create_commit(to, [*gone, *added], commit_message=title, repo_type=kind)
        return Pushed(to, kind, names, str(done.commit_url), epsilon, delta, relation)


push: Final = function(Push)


@dataclass(frozen=True, eq=False, repr=False)
class Pull(NewFile, Command["CheckedFolder"]):
    """Download a release or model from the Hugging Face hub.

    Keeps the download only if it verifies, and runs none of its files. ``privmix verify`` checks who made
    it, by their key.

    Formal guarantees:
        * Bounded: a repository that states more than ``max_gb`` is refused before a file is taken. The download ends as
          soon as more than that has come, for every stated size.

    Raises:
        InvalidInput: there is none, or it does not verify.
        StorageError: the hub can't be reached.
        MissingExtra: huggingface_hub is not installed.
    """

    example = "privmix pull ana/digits --out REL"

    source: str = option(MISSING, "Repository on the hub: OWNER/NAME.", argument=True)
    out: str | Path = option(MISSING, "Folder to create.")
    _: KW_ONLY
    revision: str | None = option(None, "Commit, branch or tag. Default: the newest.")
    max_gb: float = option(10.0, "Download limit in GB (10^9 bytes).")

    def run(self, progress: Progress) -> CheckedFolder:
        from privmix.jobs.checking import check_folder

        source = self.source
        if not isinstance(source, str) or not _PLACE.fullmatch(source):
            raise InvalidInput("source", source, "OWNER/NAME on the hub")
        most = int(check_number("max_gb", self.max_gb, low=0, low_open=True) * 1e9)
        path = Path(self.out)
        _ANY.check_target(path, overwrite=self.overwrite)
        hub = _hub()
        api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        kind, commit, names, stated = _listed(api, source, self.revision)
        _check_size(stated, most)
        meter = _meter(most)
        with ScratchFolder() as cache, _ANY.new(path, overwrite=self.overwrite) as draft:
            for name in names:
                with _told(f"pull {source}"):
                    got = api.hf_hub_download(
                        source, name, repo_type=kind, revision=commit, cache_dir=str(cache), tqdm_class=meter
                    )
                inner, _, file = name.rpartition("/")
                with open(os.path.realpath(got), "rb") as stream:
                    owner = draft.folder(inner) if inner else draft
                    with owner.new(file, shared=True) as written:
                        shutil.copyfileobj(stream, written)
                    if inner:
                        owner.close()
                Path(os.path.realpath(got)).unlink()
            draft.check_in_place()
            return check_folder(draft.path, progress)


pull: Final = function(Pull)


def _check_size(found: int, most: int) -> None:
    if found > most:
        allowed = f"at most {most / 1e9:g} GB; raise `max_gb` if you expect that size"
        raise InvalidInput("source", f"{found / 1e9:.3g} GB or more", allowed)


def _meter(most: int) -> type[Any]:
    """Return a progress bar for the hub's client: it shows nothing and ends a download beyond ``most`` bytes."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Meter(tqdm):  # type: ignore[misc]
        come: ClassVar[int] = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            Meter.come += int(n or 0)
            _check_size(Meter.come, most)

    return Meter


def _listed(api: Any, source: str, revision: str | None) -> tuple[str, str, list[str], int]:
    """Return type, commit, the files that a release or model may have, and their stated size in bytes."""
    for kind in _TYPES.values():
        try:
            with _told(f"pull {source}"):
                info = api.repo_info(source, repo_type=kind, revision=revision, files_metadata=True)
        except StorageError as error:
            if kind == "dataset" and type(error.__context__).__name__ == "RepositoryNotFoundError":
                continue
            raise
        names = sorted(str(one.rfilename) for one in info.siblings or ())
        # The page that a hub shows of a model is no file of it.
        left_out = {_OF_THE_HUB} if kind == "dataset" else {_OF_THE_HUB, CARD_FILE}
        wanted = [name for name in names if name not in left_out]
        odd = [name for name in wanted if not _FILE.fullmatch(name)]
        if CERTIFICATE_FILE not in wanted or odd or len(wanted) > _MOST_FILES:
            raise InvalidInput("source", source, "a repository with a certificate.json, as privmix push writes it")
        sizes = {str(one.rfilename): getattr(one, "size", None) or 0 for one in info.siblings}
        return kind, str(info.sha), wanted, sum(sizes[name] for name in wanted)
    raise InvalidInput("source", source, "an existing repository that you may read")


def _files_in(folder: Path) -> list[str]:
    """Names of the files of a folder that was verified."""
    found = []
    for above, _, files in os.walk(folder):
        for file in files:
            name = Path(above, file).relative_to(folder).as_posix()
            if not _FILE.fullmatch(name):
                raise InvalidInput("folder", name, _FOLDER)
            with open_plain(folder / name, name):
                found.append(name)
    return sorted(found)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raise errors of the hub's client in one line, without its request, which has the user's token."""
    try:
        yield
    except (InvalidInput, StorageError):
        raise
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError":
            raise StorageError(f"hub: cannot {what}: access denied ({status or 'no token'}). Fix: {_LOG_IN}") from None
        why = type(error).__name__ if status is None else f"{type(error).__name__}, status {status}"
        raise StorageError(f"hub: cannot {what}: {why}") from None


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra("huggingface_hub", _EXTRA) from None
    return huggingface_hub
