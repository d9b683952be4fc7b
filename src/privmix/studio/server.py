"""The studio on this machine: a socket on the loopback address, and the address that lets one browser in."""

import contextlib
import html
import os
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn

from privmix.errors import InvalidInput, StorageError
from privmix.scratch import ScratchFolder
from privmix.studio.app import Studio
from privmix.studio.security import AccessGuard

LOOPBACK: Final = "127.0.0.1"


class StudioServer:
    """A listening studio; :meth:`serve` answers until it is stopped. Port 0: any free one."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        if not folder.is_dir():
            raise InvalidInput("folder", str(folder), "an existing folder")
        # Bound first: at port 0 the system chooses the port, which the address names.
        self._socket = _listening(port)
        self.door: Final = AccessGuard(self._socket.getsockname()[1])
        self.studio: Final = Studio(folder.resolve(), self.door)
        config = uvicorn.Config(
            self.studio.app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            # Addresses hold the token.
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)

    def serve(self) -> None:
        """Answer until :meth:`stop` or ctrl-C; then the release that is being made is stopped, too, and kept."""
        try:
            with contextlib.suppress(KeyboardInterrupt):
                self._server.run(sockets=[self._socket])
        finally:
            self.studio.close()
            self._socket.close()

    def stop(self) -> None:
        """End :meth:`serve`, from another thread."""
        self._server.should_exit = True


def run(folder: Path, port: int, *, browser: bool, say: Callable[[str], None]) -> None:
    """Start a studio, print its address, and answer until ctrl-C."""
    server = StudioServer(folder, port)
    say(server.door.address)
    with ScratchFolder() as path:
        if browser:
            _open(server.door.address, path)
        server.serve()


def _open(address: str, folder: Path) -> None:
    """Open a browser by a file that its user alone can read."""
    # With the address as an argument, the list of processes would show the token to all users.
    file = folder / "studio.html"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">')
    webbrowser.open(file.as_uri())


def _listening(port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        raise InvalidInput("port", port, "a port from 0 (any) to 65535")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A restart at the same port need not wait for old connections to expire.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise StorageError(f"port: cannot listen at {LOOPBACK}:{port}: {error.strerror}") from None
    return listening
