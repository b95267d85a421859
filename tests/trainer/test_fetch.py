"""Fetching a data set from a real HTTP server: whole and checked, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer import fetch

pytestmark = pytest.mark.real

FILES = {file: gzip.compress(file.encode() * 5000, mtime=0) for file in fetch.DIGESTS["mnist"][1]}


class Server(http.server.ThreadingHTTPServer):
    """Serves FILES under /good/, and damaged in one way each under other folders."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []

    def url(self, folder: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{folder}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        _, folder, file = self.path.split("/")
        content = FILES[file]
        if folder == "missing":
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if folder == "cut":
            content = content[: len(content) // 2]
        elif folder == "corrupt":
            content = content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]
        elif folder == "foreign":
            content = gzip.compress(b"other", mtime=0).ljust(len(content), b"\0")
        self.wfile.write(content)
        return None

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    digests = {
        file: hashlib.sha256(gzip.decompress(packed)).hexdigest() for file, packed in FILES.items()
    }
    monkeypatch.setitem(fetch.DIGESTS, "mnist", (fetch._CONTENT, digests))
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_four_files_arrive_and_are_not_fetched_twice(server: Server, tmp_path: Path) -> None:
    """A second call finds them there and right."""
    argv = ["fetch", "mnist", "--to", str(tmp_path / "new"), "--from", server.url("good")]
    assert fetch.main(argv) == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "new").iterdir()} == FILES
    assert fetch.main(argv) == 0
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("corrupt", "cannot be unpacked"),
        ("foreign", "wrong checksum (sha256 of the content: d9298a10d1b0…, expected "),
        ("cut", "of {size} bytes"),
        ("missing", "the server answered 404 Not Found"),
    ],
)
def test_a_damaged_source_leaves_nothing_behind(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, expected: str
) -> None:
    """The message says what the source did, and what to do offline."""
    assert fetch.main(["fetch", "mnist", "--to", str(tmp_path), "--from", server.url(folder)]) == 1
    said = capsys.readouterr().err
    assert expected.format(size=len(FILES["train-images-idx3-ubyte.gz"])) in said
    assert "Without network: on a machine that has it, download train-images" in said
    assert list(tmp_path.iterdir()) == []


def test_the_next_mirror_is_asked_where_the_first_fails(server: Server, tmp_path: Path) -> None:
    """One bad mirror does not matter."""
    sources = (server.url("cut"), server.url("missing"), server.url("good"))
    fetch.fetch("mnist", tmp_path, sources, lambda line: None)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == FILES


def test_a_damaged_file_is_replaced_and_left_parts_are_removed(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fetching again repairs a folder."""
    file = "train-labels-idx1-ubyte.gz"
    (tmp_path / file).write_bytes(b"half")
    (tmp_path / f".{file}.99.part").write_bytes(b"half")
    argv = ["fetch", "mnist", "--to", str(tmp_path), "--from", server.url("good")]
    assert fetch.main(argv) == 0
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == FILES
    assert f"{tmp_path / file}: cannot be unpacked" in capsys.readouterr().out


def test_a_folder_serves_as_a_source(server: Server, tmp_path: Path) -> None:
    """A stick carried to a machine without network."""
    (tmp_path / "stick").mkdir()
    for file, packed in FILES.items():
        (tmp_path / "stick" / file).write_bytes(packed)
    argv = ["fetch", "mnist", "--to", str(tmp_path / "to"), "--from", str(tmp_path / "stick")]
    assert fetch.main(argv) == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "to").iterdir()} == FILES


def test_without_network_it_says_what_to_copy_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refused connection, as on a closed port: exit 1, no traceback, an empty folder."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen, and nobody else can
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert fetch.main(["fetch", "mnist", "--to", str(tmp_path), "--from", address]) == 1
    said = capsys.readouterr().err
    assert "no connection (Connection refused)" in said
    assert f"copy the four files into {tmp_path}." in said
    assert list(tmp_path.iterdir()) == []
