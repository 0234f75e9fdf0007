"""Downloads against a server on this machine: checked, whole or not at all, and once."""

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mlxgpt.data import named, open_corpus
from mlxgpt.data.download import Download
from mlxgpt.errors import DataError

CONTENT = b"To be, or not to be.\n" * 10_000


class Server(HTTPServer):
    """Serves `content` at any path and counts the requests."""

    content = CONTENT
    announced: int | None = None
    requests = 0

    @property
    def download(self) -> Download:
        return Download(
            f"http://127.0.0.1:{self.server_port}/play.txt",
            hashlib.sha256(CONTENT).hexdigest(),
            len(CONTENT),
        )


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.server.content == b"":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.announced or len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_file_is_downloaded_once_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = tmp_path / "deep" / "play.txt"
    server.download.fetch(path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    server.download.fetch(path)
    assert server.requests == 1
    path.write_bytes(CONTENT[:-1] + b"!")  # damaged on the disk: made whole again
    server.download.fetch(path)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "announced", "reason"),
    [
        (CONTENT[:-1] + b"?", None, "sha256"),
        (CONTENT + b"more", None, "more than"),
        (CONTENT[:-5], None, "bytes instead of"),
        (CONTENT[:-5], len(CONTENT), "bytes instead of|IncompleteRead"),
        (b"", None, "404"),
    ],
)
def test_anything_but_the_pinned_content_is_refused_and_not_kept(
    server: Server, tmp_path: Path, content: bytes, announced: int | None, reason: str
) -> None:
    server.content, server.announced = content, announced
    with pytest.raises(DataError, match=reason) as caught:
        server.download.fetch(tmp_path / "play.txt")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_leaves_nothing(server: Server, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        server.download.fetch(tmp_path / "play.txt", interrupt)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path))
    # Nobody listens at port 9 ("discard").
    offline = dataclasses.replace(named.SHAKESPEARE, url="http://127.0.0.1:9/input.txt")
    monkeypatch.setattr(named, "SHAKESPEARE", offline)
    with pytest.raises(DataError) as caught:
        open_corpus("shakespeare")
    message = str(caught.value)
    assert "\n" not in message
    assert "cannot download" in message
    assert str(tmp_path / "corpora" / "tinyshakespeare.txt") in message
    assert "a text file of your own" in message


def test_a_named_corpus_comes_from_the_network_into_the_users_cache(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path))
    monkeypatch.setattr(named, "SHAKESPEARE", server.download)
    [document] = open_corpus("shakespeare").documents()
    assert document.text.encode() == CONTENT
    assert open_corpus("shakespeare").size_bytes == len(CONTENT)
    assert server.requests == 1


def test_the_pinned_shakespeare_is_the_well_known_file(shared_data: Path) -> None:
    raw = (shared_data / "text" / "tinyshakespeare.txt").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == named.SHAKESPEARE.sha256
    assert len(raw) == named.SHAKESPEARE.size
