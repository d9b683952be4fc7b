"""A real PostgreSQL server on loopback, where this machine has one."""

import getpass
import os
import pwd
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest


def _program(name: str) -> str | None:
    places = [*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True), *os.get_exec_path()]
    return shutil.which(name, path=os.pathsep.join(places))


def _as_server() -> list[str] | None:
    """Command prefix that runs the server, which refuses to run as root; None where there is nobody to run it."""
    if os.geteuid() != 0:
        return []
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = next((name for name in ("postgres", "nobody") if name in names), None)
    return None if user is None or shutil.which("runuser") is None else ["runuser", "-u", user, "--"]


def _own_port() -> int:
    """A free port below those that the system gives to connections: none can take it before the server starts again."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A server of our own: called with a database's name, it makes that and gives its URL."""

    def __init__(self, folder: Path, port: int, user: str, command: list[str], settings: str) -> None:
        self._folder, self._port, self._user, self._command, self._settings = folder, port, user, command, settings

    def __call__(self, name: str) -> str:
        with self.link() as link:
            link.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql://{self._user}@127.0.0.1:{self._port}/{name}"

    def link(self, name: str = "postgres") -> Any:
        """A connection beside all others."""
        import psycopg

        return psycopg.connect(host="127.0.0.1", port=self._port, user=self._user, dbname=name, autocommit=True)

    def start(self) -> None:
        """Start it, after a crash with what its log holds."""
        # Not captured: the server would keep the pipe open.
        told = ["-w", "-l", str(self._folder / "log"), "-o", self._settings, "start"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*self._command, *told], check=True, cwd=self._folder, **quiet)  # type: ignore[call-overload]

    def crash(self) -> None:
        """End it at once: nothing is finished, nothing written down."""
        subprocess.run([*self._command, "-m", "immediate", "stop"], check=False, cwd="/", capture_output=True)


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server of our own."""
    initdb, control, prefix = _program("initdb"), _program("pg_ctl"), _as_server()
    if initdb is None or control is None or prefix is None:
        pytest.skip("needs PostgreSQL's initdb and pg_ctl, and a user other than root to run them")
    pytest.importorskip("psycopg")
    # Not below pytest's own folder: only its owner may enter that.
    folder = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    if prefix:
        shutil.chown(folder, prefix[2])
    port = _own_port()
    data, user = folder / "data", "privmix" if prefix else getpass.getuser()
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c max_connections=120"
    server = Server(folder, port, user, [*prefix, control, "-D", str(data)], settings)
    try:
        made = [*prefix, initdb, "-D", str(data), "-U", user, "--auth=trust", "-E", "UTF8"]
        subprocess.run(made, check=True, capture_output=True, text=True, cwd=folder)
        server.start()
        yield server
    finally:
        server.crash()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lite(tmp_path: Path) -> str:
    """A place for a new ledger, in a file."""
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, lite: str) -> str:
    """A place for a new ledger, on both databases in turn."""
    if request.param == "sqlite":
        return lite
    server: Server = request.getfixturevalue("postgresql_server")
    return server(f"d{abs(hash(request.node.nodeid)):x}")
