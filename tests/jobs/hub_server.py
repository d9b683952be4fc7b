"""A stand-in for the Hugging Face hub on this machine: the few requests that its client makes to push and to pull."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

import yaml


class Hub:
    """What it holds.

    Attributes:
        repos: (type, OWNER/NAME) -> file -> bytes.
        private: repositories that were made private.
        tokens: what came in headers.
        cards: front matter of the cards that came, read as YAML.
        large: sizes from which files go by LFS.
        stated: what the list of files says of sizes, where that is not true.
    """

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], dict[str, bytes]] = {}
        self.private: dict[tuple[str, str], bool] = {}
        self.tokens: set[str | None] = set()
        self.objects: dict[str, bytes] = {}
        self.cards: list[dict[str, Any]] = []
        self.large = 5_000
        self.stated: dict[str, int] = {}
        self.token = "hf_stand_in"
        self.address = ""

    def sha(self, key: tuple[str, str]) -> str:
        files = self.repos[key]
        return hashlib.sha1(
            repr(sorted((n, hashlib.sha1(c).hexdigest()) for n, c in files.items())).encode()
        ).hexdigest()


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A hub that answers on loopback while the block runs."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, said: Any, status: int = 200) -> None:
        self._answer(status, json.dumps(said).encode(), Content_Type="application/json")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization")
        self.state.tokens.add(given)
        return given == f"Bearer {self.state.token}"

    def do_POST(self) -> None:
        """Make a repository, say how files come, take a commit."""
        body, path, hub = self._body(), urlparse(self.path).path, self.state
        if not self._allowed():
            self._json({"error": "Invalid credentials"}, 401)
            return
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            key = (asked.get("type", "model"), name)
            if key in hub.repos:
                self._json({"error": "there already", "url": f"{hub.address}/{name}"}, 409)
                return
            hub.repos[key] = {".gitattributes": b"*.parquet filter=lfs\n"}
            hub.private[key] = bool(asked.get("private")) or asked.get("visibility") == "private"
            place = f"datasets/{name}" if key[0] == "dataset" else name
            self._json({"url": f"{hub.address}/{place}", "id": name})
        elif path == "/api/validate-yaml":
            # As the hub does: what it can't read it refuses.
            hub.cards.append(yaml.safe_load(json.loads(body)["content"].split("---\n")[1]))
            self._json({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/(dataset|model)s/([^/]+/[^/]+)/preupload/main", path):
            files = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["size"] >= hub.large else "regular",
                    "shouldIgnore": False,
                }
                for one in json.loads(body)["files"]
            ]
            self._json({"files": files})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{hub.address}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(r"/api/(dataset|model)s/([^/]+/[^/]+)/commit/main", path):
            self._commit((found[1], found[2]), body)
        else:
            self._json({"error": f"no {path}"}, 404)

    def _commit(self, key: tuple[str, str], body: bytes) -> None:
        files = self.state.repos[key]
        for line in body.splitlines():
            step = json.loads(line)
            value = step["value"]
            match step["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.state.objects[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        url = f"{self.state.address}/{key[1]}/commit/{self.state.sha(key)}"
        self._json({"commitUrl": url, "commitOid": self.state.sha(key)})

    def do_PUT(self) -> None:
        """Take a large file."""
        oid, content = self.path.rpartition("/")[2], self._body()
        assert hashlib.sha256(content).hexdigest() == oid
        self.state.objects[oid] = content
        self._answer(200)

    def do_HEAD(self) -> None:
        """What a file is."""
        self.do_GET()

    def do_GET(self) -> None:
        """Lists and files."""
        path, hub = unquote(urlparse(self.path).path), self.state
        self._allowed()
        if found := re.fullmatch(r"/api/(dataset|model)s/([^/]+/[^/]+)(/revision/[^/]+|/tree/[^/]+)?", path):
            key = (found[1], found[2])
            if key not in hub.repos:
                self._answer(404, b"{}", X_Error_Code="RepoNotFound")
            elif (found[3] or "").startswith("/tree"):
                self._json(
                    [{"type": "file", "path": n, "size": len(c), "oid": "0" * 40} for n, c in hub.repos[key].items()]
                )
            else:
                said = {"id": found[2], "sha": hub.sha(key), "private": hub.private[key], "tags": [], "downloads": 0}
                files = [{"rfilename": n, "size": hub.stated.get(n, len(c))} for n, c in hub.repos[key].items()]
                self._json({**said, "siblings": files})
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            key = ("dataset" if found[1] else "model", found[2])
            content = hub.repos.get(key, {}).get(found[4])
            if content is None:
                self._answer(404, X_Error_Code="EntryNotFound")
                return
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            self._answer(200, content, ETag=etag, X_Repo_Commit=hub.sha(key), Content_Length=str(len(content)))
        else:
            self._answer(404)
