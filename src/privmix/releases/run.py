"""A release, in memory or in progress: a run (:mod:`privmix.mechanisms.run`) that keeps its finished shards."""
# Its folder also holds ``run.shards``: finished shards and hashes, each line sealed by the key. It holds ``features/``
# while needed, and once all rows are there ``sealed-key.json``, the key sealed to an auditor.

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from privmix.certificate.about import LICENCE_FILE, About, has_licence_file
from privmix.certificate.certificate import CERTIFICATE_FILE, Certificate
from privmix.certificate.croissant import CROISSANT_FILE, croissant
from privmix.certificate.notes import ReservationNote, mode_of
from privmix.certificate.sealed_key import SEALED_FILE, Auditor, Commitment, Terms, bound_to, commitment_of
from privmix.engine.engines import make_engine
from privmix.engine.grouping import by_person
from privmix.engine.record_tree import commitment_key, records_root
from privmix.engine.records import RecordSource, RecordTiles, content_fingerprint, cores, tiles_of
from privmix.engine.rows import Engine
from privmix.errors import InvalidInput
from privmix.features.spec import stated_names
from privmix.fields import stored
from privmix.folders import FolderKind
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import CertifiedContents, beside
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.plans.registry import check_plan
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.publication.second_moments import from_arrays, to_arrays
from privmix.releases import folder as release_folder
from privmix.releases.card import arrays, data_card, mixes, released_shares
from privmix.releases.certificate import PICTURE_FILE, make_certificate, names_in_schema, read_certificate
from privmix.releases.folder import assemble
from privmix.releases.series import SeriesStep

_SHARDS, _FEATURES = "run.shards", "features"
# A certificate cannot list its own hash, and card and metadata are made from it.
_UNLISTED: Final = (CERTIFICATE_FILE, release_folder.CARD_FILE, CROISSANT_FILE)


class ReleaseRun(Run):
    """The run that makes a release; see :class:`Run` for further guarantees, errors and arguments.

    No record is read before :meth:`release`. Features extracted before may stay in ``features_folder`` until the end.

    Formal guarantees, where an auditor may replay it:
        * Sealed, then ended: the key is sealed to them once all rows are there, and is destroyed as always once that
          copy is in its place. The sealed copy is the owner's, next to the release and no part of it.
        * Never replaced: a sealed key that lies there ends the run before it begins.
    """

    # choice: the planner's `Choice.to_dict`; exactly with `picture`, an SVG of its predictions. auditor: recipient of
    # the sealed key. series: step of a series, whose key then makes the noise. table_rows: makes rows of a table (CSV)
    # of the released arrays and mean. in_ledger: mode of the budget that is charged later; None: as `reservation` has.

    kind: ClassVar[FolderKind] = release_folder.RELEASE_FOLDER
    _members: frozenset[str] = frozenset()
    _series: SeriesStep | None = None

    def __init__(
        self,
        out: str | Path,
        plan: Plan,
        *,
        extractor: Mapping[str, Any],
        input_shape: Sequence[int],
        reservation: ReservationNote | None = None,
        choice: Mapping[str, Any] | None = None,
        picture: bytes | None = None,
        about: About | None = None,
        auditor: Auditor | None = None,
        series: SeriesStep | None = None,
        table_rows: Callable[[Any, Any], bytes] | None = None,
        in_ledger: str | None = None,
        streams: SecretStreams | None = None,
        extra: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        check_plan(plan)
        _check_shape(input_shape)
        if (choice is None) != (picture is None):
            raise ValueError("a choice and its picture come together")
        # Checked before anything is charged: at the end, the budget would be spent for no release.
        if auditor is not None and not resume:
            check_no_sealed_key(Path(out))
        self._plan, self._reservation, self._auditor, self._root = plan, reservation, auditor, ""
        self._table_rows = table_rows
        self._series, self._members = series, frozenset(member.name for member in release_folder.members(plan))
        settings = {
            "plan": plan.to_dict(),
            "extractor": dict(extractor),
            "input_shape": [int(size) for size in input_shape],
            # If a run resumes, naming another plan is the better error; its certificate asks again.
            "in_ledger": in_ledger
            or mode_of(reservation, None if resume else plan, name=None if series is None else series.link.id),
            "choice": None if choice is None else dict(choice),
        }
        files = {} if picture is None else {PICTURE_FILE: picture}
        if about is not None and about.given:
            settings["about"] = about.dated().to_dict()
            if (licence := about.licence_text()) is not None:
                files[LICENCE_FILE] = licence
        if series is not None:
            settings["series"] = stored(series.link)
        if auditor is not None:
            settings["replay"] = stored(auditor.terms)
        super().__init__(out, settings, streams=streams, extra=extra, files=files, overwrite=overwrite, resume=resume)

    @property
    def leaves(self) -> frozenset[str]:
        own = {_SHARDS, release_folder.DATA_FOLDER, SEALED_FILE, PICTURE_FILE, LICENCE_FILE}
        for name in (_FEATURES, by_person(Path(_FEATURES)).name):
            own |= {name, f".{name}.partial", f".{name}.lock", f".{name}.parts", f".{name}.tiles", f".{name}.hashes"}
        return frozenset(own | self._members)

    @classmethod
    def stated(cls, folder: Path) -> CertifiedContents:
        found = read_certificate(folder)
        settings = {name: found[name] for name in ("plan", "extractor", "input_shape", "about") if name in found}
        listed = {item["file"]: item["sha256"] for item in found["files"]}
        files = {**dict.fromkeys(_UNLISTED), **listed}
        if (sealed := commitment_of(found)) is None:
            return CertifiedContents(found.id, settings, files)
        settings["replay"] = stored(Terms(sealed.auditors, sealed.together, sealed.until))
        return CertifiedContents(found.id, settings, files, {SEALED_FILE: sealed.sealed_sha256})

    @property
    def features_folder(self) -> Path:
        """Folder where a feature store may be while the run needs it; removed before the release appears."""
        return self.held.path / _FEATURES

    def release(
        self,
        records: RecordSource | None = None,
        *,
        engine: str = "local",
        memory_gb: float | None = None,
        workers: int | None = None,
        address: str | None = None,
        progress: Progress | None = None,
        reservation: ReservationNote | None = None,
    ) -> Certificate:
        """Compute missing rows, write the rest, destroy the key, put the release in place; return its certificate."""
        # ``records`` may be missing when ``complete``. ``reservation``: of the ledger charged since the run began.
        self._reservation = reservation or self._reservation
        if not self.complete:
            if records is None:
                raise InvalidInput("records", None, "the private records: the run is not complete")
            with self.writing():
                # Before any noise is drawn: one key must never serve two sets of records.
                self.bind(self._fingerprint(tiles_of(records)))
                with self._noise_of(tiles_of(records)) as streams:
                    try:
                        maker: Any = make_engine(
                            self._plan, records, streams, engine, memory_gb=memory_gb, workers=workers, address=address
                        )
                    except InvalidInput as error:
                        # The next attempt may be given another engine, or more memory.
                        error.resumable = True
                        raise
                    if self._series is not None and (before := self._series.series.before(self._series.step)):
                        # A later step continues what the step before released.
                        maker.goes_on(before)
                    self._write(maker, progress)
        self.publish()
        # Read back: a run that was complete when it resumed has no certificate in memory.
        return read_certificate(self.out)

    @contextmanager
    def _noise_of(self, records: RecordTiles) -> Iterator[SecretStreams]:
        """Yield the streams that noise comes from: the run's own, or the series', once that knows the records."""
        if (made := self._series) is None:
            yield self.streams
            return
        series = made.series
        # Under the key of the series: a second run of a step has its own key, and must recognise the records.
        fingerprint = content_fingerprint(records, series.key_for("fingerprint"), cores())
        series.bind(made.step, made.plan.counts[-1], fingerprint, self.id, self.bind_steps)
        streams = series.streams()
        try:
            yield streams
        finally:
            streams.destroy()

    def bind_charge(self, fingerprint: str) -> None:
        """See :meth:`Run.bind_charge`; steps of a series share one charge, and :meth:`Series.bind` reports each."""
        if self._series is None:
            super().bind_charge(fingerprint)

    def _fingerprint(self, records: RecordTiles) -> str:
        """Return what binds the run to its records, which the certificate commits to if an auditor may replay it."""
        workers = cores()
        if self._auditor is None:
            return content_fingerprint(records, self.fingerprint_key, workers)
        self._root = records_root(records, commitment_key(self.streams), workers)
        return self._root

    def _sealed(self) -> Commitment | None:
        """Seal the key to its auditor, if there is one; what the certificate states of it."""
        if (auditor := self._auditor) is None:
            return None
        terms = auditor.terms
        bound = bound_to(terms, self.id, self.settings["plan"], self._root)
        sealed = self.streams.entrust(lambda key: auditor.seal(key, bound))
        self.held.write(SEALED_FILE, sealed)
        digest = hashlib.sha256(sealed).hexdigest()
        return Commitment(**vars(terms), records_root=self._root, sealed_sha256=digest)

    def _write(self, engine: Engine, progress: Progress | None) -> None:
        held = self.held
        journal = release_folder.Journal(held, _SHARDS, partial(self.streams.seal, _SHARDS))
        kept = journal.kept()
        # Drops a line cut short by a kill: a note appended to it could not be read.
        journal.rewrite(kept)
        settings = self.settings
        told = names_in_schema(stated_names(settings["extractor"], self._plan.dim), self._plan.classes)
        writer = release_folder.ShardWriter(held, self._plan.rows, journal, kept, told)
        for block in engine.rows(progress, first=writer.first):
            writer.write(block)

        def entry(name: str) -> dict[str, Any]:
            return {"file": name, "rows": 0, "sha256": release_folder.file_hash(self.folder / name)}

        files = list(writer.files)
        files += release_folder.write_beside(held, self._plan, engine.beside)
        if (self.folder / PICTURE_FILE).is_file():
            files.append(entry(PICTURE_FILE))
        if engine.transform.centre is not None:
            centre = release_folder.centre_bytes(engine.transform.centre)
            files.append(release_folder.write_file(held, release_folder.CENTRE_FILE, centre, 1))
        about = settings.get("about")
        if has_licence_file({"about": about or {}}):
            files.append(entry(LICENCE_FILE))
        if self._table_rows is not None:
            # Through the stored form: a recipient samples from these float32 numbers, too.
            released = from_arrays(self._plan, to_arrays(self._plan, engine.beside))
            rows = self._table_rows(released, engine.transform.centre)
            held.write(release_folder.ROWS_FILE, rows, shared=True)
            files.append(entry(release_folder.ROWS_FILE))
        certificate = make_certificate(
            self._plan,
            extractor=settings["extractor"],
            input_shape=settings["input_shape"],
            insecure_seed=self.streams.insecure_seed,
            files=files,
            reservation=self._reservation,
            choice=settings["choice"],
            release_id=self.id,
            about=about,
            # Sealed once all rows are on disk: an earlier copy of the key would outlive a failed run.
            replay=self._sealed(),
            series=None if self._series is None else self._series.link,
        )
        card = data_card(self._plan, certificate, shares=released_shares(self._plan, engine.beside))
        held.write(release_folder.CARD_FILE, card.encode(), shared=True)
        digest = hashlib.sha256(certificate.to_bytes()).hexdigest()
        metadata = croissant(certificate, digest, mixes=mixes(self._plan), arrays=arrays(self._plan))
        held.write(CROISSANT_FILE, metadata, shared=True)
        # Last: a folder with a certificate is a whole release.
        held.write(CERTIFICATE_FILE, certificate.to_bytes(), shared=True)


def check_no_sealed_key(out: Path) -> None:
    """Raise :class:`InvalidInput` where a sealed key lies next to the place of a release: it is never replaced."""
    place = beside(out, SEALED_FILE)
    if os.path.lexists(place):
        allowed = "no sealed key of an earlier release there: end it (`replay` with `destroy`), or move it away"
        raise InvalidInput("out", str(place), allowed)


def _check_shape(input_shape: Sequence[int]) -> None:
    if not input_shape or any(int(size) < 1 for size in input_shape):
        raise InvalidInput("input_shape", tuple(input_shape), "positive sizes")


def release_to_memory(
    plan: Plan,
    records: RecordSource,
    streams: SecretStreams,
    *,
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    reservation: ReservationNote | None = None,
    progress: Progress | None = None,
) -> ReleasedDataset:
    """Run ``plan``, from :meth:`ReleaseConfig.calibrate`, on extracted records; the streams' key is destroyed.

    A plan that costs more than its target raises :class:`InvalidInput` before a record is read.
    """
    try:
        # Before a record is read: a later refusal would be an answer about the records.
        check_plan(plan)
        mode_of(reservation, plan)
        _check_shape(input_shape)
        engine = make_engine(plan, records, streams)
        blocks = list(engine.rows(progress))
    # Also after an error: the key in memory could remove the noise.
    finally:
        insecure = streams.insecure_seed
        streams.destroy()
    certificate = make_certificate(
        plan, extractor=extractor, input_shape=input_shape, insecure_seed=insecure, files=[], reservation=reservation
    )
    # A single block is taken as it is: a copy would double the memory.
    x = np.concatenate([block.x for block in blocks]) if len(blocks) > 1 else blocks[0].x
    y = np.concatenate([block.y for block in blocks])
    return assemble(plan, x, y, engine.transform.centre, certificate, engine.beside)


def release_to_folder(
    plan: Plan,
    records: RecordSource,
    streams: SecretStreams | None,
    out: str | Path,
    *,
    engine: str = "local",
    memory_gb: float | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
    **given: Any,
) -> Certificate:
    """Run ``plan`` and write Parquet shards, the released mean, certificate and data card to ``out``.

    ``out`` appears once complete; memory does not grow with the rows. ``resume`` finishes a killed or stopped run.
    Other arguments are those of :class:`ReleaseRun`; ``streams`` None: fresh key.
    """
    try:
        with ReleaseRun(out, plan, streams=streams, **given) as run:
            return run.release(
                records, engine=engine, memory_gb=memory_gb, workers=workers, address=address, progress=progress
            )
    finally:
        if streams is not None:
            streams.destroy()
