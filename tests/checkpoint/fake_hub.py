"""A tiny Hugging Face Hub on this machine: what huggingface_hub asks for, and what can go wrong."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

Files = dict[str, bytes]


def files_of(directory: Path) -> Files:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def commit_of(files: Files) -> str:
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


@dataclass
class FakeHub:
    """Repositories by name and revision; `asked` lists the requests, (method, path)."""

    repositories: dict[str, dict[str, Files]] = field(default_factory=dict)
    refused: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """Repository -> status and X-Error-Code of every answer."""
    gated: set[str] = field(default_factory=set)
    """Repositories whose files, but not their names, are refused."""
    cut: dict[str, int] = field(default_factory=dict)
    """File -> how many answers still end in the middle of it."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""

    def downloads(self) -> list[str]:
        """Return the names of the files that were asked for."""
        return [
            path.split("/")[-1]
            for kind, path in self.asked
            if kind == "GET" and "/resolve/" in path
        ]

    @contextmanager
    def running(self) -> Iterator["FakeHub"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def point_to(address: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub, which read its environment when it was imported, use this Hub."""
    constants = pytest.importorskip("huggingface_hub.constants")
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None: ...

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append((self.command, path))
            parts = path.strip("/").split("/")
            api = parts[:2] == ["api", "models"]
            parts = parts[2:] if api else parts
            repo, rest = "/".join(parts[:2]), parts[2:]
            if repo in hub.refused:
                return self._refuse(*hub.refused[repo])
            if repo not in hub.repositories:
                return self._refuse(401 if api else 404, "RepoNotFound")
            revisions = hub.repositories[repo]
            by_commit = {commit_of(files): files for files in revisions.values()}
            wanted = (
                "/".join(rest[1:2]) if not api or rest[:1] != ["revision"] else "/".join(rest[1:])
            )
            files = {**revisions, **by_commit}.get(wanted or "main")
            if files is None:
                return self._refuse(404, "RevisionNotFound")
            commit = commit_of(files)
            if api and rest[:1] == ["tree"]:
                entries = [
                    {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                    for n, c in files.items()
                ]
                return self._json(entries)
            if api:
                siblings = [{"rfilename": name} for name in files]
                return self._json({"id": repo, "sha": commit, "siblings": siblings})
            if repo in hub.gated:
                return self._refuse(403, "GatedRepo")
            name = "/".join(rest[2:])
            if name not in files:
                return self._refuse(404, "EntryNotFound")
            return self._file(name, files[name], commit, body=body)

        def _file(self, name: str, content: bytes, commit: str, *, body: bool) -> None:
            start = int(self.headers.get("Range", "bytes=0-")[6:].rstrip("-"))
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            self.end_headers()
            if not body:
                return
            if hub.cut.get(name, 0) > 0:
                hub.cut[name] -= 1
                self.wfile.write(content[start : start + (len(content) - start) // 2])
                self.close_connection = True
                return
            self.wfile.write(content[start:])

        def _json(self, value: object) -> None:
            content = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _refuse(self, status: int, code: str | None) -> None:
            self.send_response(status)
            if code is not None:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler
