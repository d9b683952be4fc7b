"""A real PostgreSQL server on loopback, where this machine has one."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Start a server of our own; yields a function from a database's name to its new URL."""
    initdb, control, prefix = _program("initdb"), _program("pg_ctl"), _as_server()
    if initdb is None or control is None or prefix is None:
        pytest.skip("needs PostgreSQL's initdb and pg_ctl, and a user other than root to run them")
    psycopg = pytest.importorskip("psycopg")
    # Not below pytest's own folder: only its owner may enter that.
    folder = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    if prefix:
        shutil.chown(folder, prefix[2])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, user = folder / "data", "privmix" if prefix else getpass.getuser()
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c max_connections=120"
    run = {"check": True, "capture_output": True, "text": True, "cwd": folder}
    try:
        subprocess.run([*prefix, initdb, "-D", str(data), "-U", user, "--auth=trust", "-E", "UTF8"], **run)
        # Not captured: the server would keep the pipe open.
        command = [*prefix, control, "-D", str(data), "-w", "-l", str(folder / "log"), "-o", settings, "start"]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def database(name: str) -> str:
            with psycopg.connect(host="127.0.0.1", port=port, user=user, dbname="postgres", autocommit=True) as link:
                link.execute(f'CREATE DATABASE "{name}"')
            return f"postgresql://{user}@127.0.0.1:{port}/{name}"

        yield database
    finally:
        subprocess.run([*prefix, control, "-D", str(data), "-m", "immediate", "stop"], check=False, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a new ledger, on both databases in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    database: Callable[[str], str] = request.getfixturevalue("postgresql_server")
    return database(f"d{abs(hash(request.node.nodeid)):x}")
