"""Connections: SQLite or PostgreSQL through SQLAlchemy, made durable, with migrations."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Column, Connection, Engine, Float, ForeignKey, Integer, MetaData, String, Table, Text, event

from privmix.errors import WITHHELD, InvalidInput, MissingExtra, StorageError

metadata: Final = MetaData()

datasets: Final = Table(
    "datasets",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("epsilon", Float(53), nullable=False),
    Column("delta", Float(53), nullable=False),
    Column("adjacency", String(20), nullable=False),
    # The difference between neighbours: one record, or one person with all of their records.
    Column("unit", String(20), nullable=False, server_default="record"),
    # A privacy filter as JSON; nothing where plans are fixed in advance and priced together.
    Column("filter", Text, nullable=True),
    # The end of the history; a reservation locks this row, so entries of a dataset are written one at a time.
    Column("entries", Integer, nullable=False),
    Column("head", String(64), nullable=False),
)

entries: Final = Table(
    "entries",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)

fingerprints: Final = Table(
    "fingerprints",
    metadata,
    # One budget for one content: the key refuses a second name for it.
    Column("fingerprint", String(64), primary_key=True),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    # "file": hash of one file's bytes; "listing": of the hashes of all files of a place, as the first version kept it.
    Column("kind", String(20), nullable=False, server_default="listing"),
)

FIRST_HASH: Final = "0" * 64


def canonical(content: Mapping[str, Any]) -> str:
    """Return the one JSON text of an entry, which is stored and hashed."""
    # Equal content gives equal text, by which `reserve` compares terms. NaN is not JSON and could not be read back.
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def chained(previous: str, text: str) -> str:
    """Hash of an entry: of the entry before it and its own text."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


_ALLOWED = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def open_engine(url: str, *, create: bool, patience: float, upgrade: bool = False) -> Engine:
    """Connect to the ledger at ``url``; wait up to ``patience`` seconds for others that hold it."""
    # `create` makes one where there is none; that, or `upgrade`, brings one of an earlier version to this one.
    try:
        parsed = sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        # It may hold a password, in a place where nothing can hide it.
        raise InvalidInput("ledger", WITHHELD, _ALLOWED) from None
    shown = shown_url(parsed)
    match parsed.drivername:
        # Options of a URI, such as nolock or mode=memory, would undo the locks or the durability; so would `:memory:`.
        case "sqlite" if parsed.database and parsed.database != ":memory:" and not parsed.query:
            engine = _sqlite(parsed, Path(parsed.database), create, patience)
        case "postgresql" | "postgresql+psycopg":
            engine = _postgresql(parsed, patience)
        case _:
            raise InvalidInput("ledger", shown, _ALLOWED)
    with storage_errors(shown):
        _migrate(engine, shown, create, upgrade)
    return engine


def shown_url(url: sqlalchemy.URL) -> str:
    """Return the URL without password and options, for messages."""
    return url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def storage_errors(shown: str) -> Iterator[None]:
    """Turn the database's errors into one line that shows neither password nor content."""
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        # PostgreSQL adds the statement and the values of keys on further lines: only the first line is shown.
        reason = (str(error.orig).splitlines() or [type(error).__name__])[0]
        raise StorageError(f"ledger {shown}: {reason}") from None


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Yield a transaction that may write and, once it is over without an error, is on disk."""
    with engine.connect().execution_options(privmix_writes=True) as connection, connection.begin():
        # A server may be set to answer before its disk has the commit: a crash would then lose a charge.
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
        yield connection


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Yield a read-only transaction that sees one moment while others write."""
    # SQLite's transactions are like that anyway.
    level = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        yield connection


def _sqlite(url: sqlalchemy.URL, path: Path, create: bool, patience: float) -> Engine:
    if not os.path.exists(path):
        if not create:
            raise InvalidInput("ledger", str(path), "an existing ledger (create one with privmix ledger init)")
        try:
            # The history shows every use of private data: it is the owner's only.
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise StorageError(f"ledger {path}: {error.strerror}") from None
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": patience}, poolclass=sqlalchemy.NullPool)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, record: Any) -> None:
        # SQLAlchemy begins transactions itself, below: the driver's own guess would begin them too late.
        connection.isolation_level = None
        # WAL: others read during a write. FULL: a commit is on disk when it returns, which NORMAL does not promise
        # under WAL. SQLite enforces foreign keys only on request.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the lock before it reads: what it decides on can't change under it.
        writes = connection.get_execution_options().get("privmix_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: sqlalchemy.URL, patience: float) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("psycopg", "postgres") from None
    url = url.set(drivername="postgresql+psycopg")
    # A process that hangs with the lock must not block every other one for ever.
    options = f"-c lock_timeout={int(patience * 1000)}"
    return sqlalchemy.create_engine(
        url, connect_args={"options": options, "connect_timeout": 10}, poolclass=sqlalchemy.NullPool
    )


def _migrate(engine: Engine, shown: str, create: bool, upgrade: bool) -> None:
    # Half a second to import, which a release without a ledger does not need.
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "privmix.ledger:migrations")
    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    if found == newest:
        return
    known = [script.revision for script in scripts.walk_revisions()]
    if (not create and not (upgrade and found in known)) or found not in (None, *known):
        held = "no ledger" if found is None else f"a ledger of version {found}"
        advice = "privmix ledger upgrade" if found in known else "privmix ledger init"
        if found not in (None, *known):
            advice = "written by another version of privmix"
        raise InvalidInput("ledger", shown, f"a ledger of version {newest}, not {held} ({advice})")
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            # Two that create at once would both find nothing.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7061646765)")
        # The second to get the lock finds the newest revision, and Alembic has no step left to do.
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
