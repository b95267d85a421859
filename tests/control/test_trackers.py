"""What is said of trackers before they have anything to write."""

from __future__ import annotations

import base64
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from sweep.control.check.trackers import ask_wandb, is_online, look
from tests.study_rows import make_study


def test_wandb_without_a_key_is_said(tmp_path: Path) -> None:
    """With the command that sends it later; with a key or a login nothing is said."""
    study = make_study(track=("wandb", "tensorboard"))
    none = {"NETRC": str(tmp_path / "none")}
    [line] = look(study, Path("/r/digits"), none)
    assert "no WANDB_API_KEY is set" in line.text
    assert line.advice == "Send them later: wandb sync /r/digits/wandb/offline-run-*"
    [line] = look(study, tmp_path, {**none, "WANDB_API_KEY": "k", "WANDB_MODE": "offline"})
    assert "WANDB_MODE=offline" in line.text
    keyed = {**none, "WANDB_API_KEY": "k"}
    assert look(study, tmp_path, keyed, lambda _: "") == []
    [line] = look(study, Path("/r/digits"), keyed, lambda _: "the server refuses the key")
    assert line.text == "the server refuses the key"
    assert "wandb sync /r/digits/wandb/offline-run-*" in line.advice
    assert look(make_study(), tmp_path, none) == []


def test_a_login_counts_for_its_host(tmp_path: Path) -> None:
    login = tmp_path / "netrc"
    login.write_text("machine api.wandb.ai login user password k\n")
    login.chmod(0o600)
    environ = {"NETRC": str(login)}
    assert is_online(environ)
    assert not is_online({**environ, "WANDB_BASE_URL": "https://wandb.example.org"})
    assert not is_online({**environ, "WANDB_MODE": "disabled"})


class Refusing(BaseHTTPRequestHandler):
    """Is there, and wants a password."""

    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, *_: object) -> None:
        pass


def test_an_mlflow_server_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its address without the password; one that only refuses is there."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    study = make_study(track=("mlflow",))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]  # it does not listen, and nobody else can
        uri = {"MLFLOW_TRACKING_URI": f"http://someone:hidden@127.0.0.1:{port}"}
        [line] = look(study, tmp_path, uri)
    assert "does not answer here" in line.text
    assert "hidden" not in line.text
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        uri = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{server.server_port}/"}
        assert look(study, tmp_path, uri) == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert look(study, tmp_path, {}) == []


ODD = {"list": b"[1]", "odd": b'{"data": [1]}', "deep": b"[" * 100_000, "bytes": b"\xff\x00"}


class Wandb(BaseHTTPRequestHandler):
    """Answers as W&B's server does: by the key, and with a way to elsewhere."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        _, _, given = self.headers["Authorization"].partition(" ")
        key = base64.b64decode(given).decode().partition(":")[2]
        viewer = {"id": "1"} if key == "known" else None
        data = [viewer] if key == "odd" else {"viewer": viewer}
        body = json.dumps({"data": data}).encode()
        body = ODD.get(key, body)
        self.send_response({"wrong": 401, "broken": 502, "moved": 302}.get(key, 200))
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


def test_why_wandbs_server_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that it refuses or does not know, a server that is broken or not there; the key goes
    to no other address."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = HTTPServer(("127.0.0.1", 0), Wandb)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        said = {
            key: ask_wandb({"WANDB_BASE_URL": url, "WANDB_API_KEY": key})
            for key in ("known", "wrong", "unknown", "odd", "broken", "moved", *ODD)
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert said["known"] == said["moved"] == ""
    assert said["wrong"] == f"W&B's server, {url}, refuses the key (HTTP 401)"
    assert said["unknown"].endswith("does not know the key") and said["odd"] == said["unknown"]
    assert all("does not" in said[key] for key in ODD)
    assert "does not answer here: HTTP Error 502" in said["broken"]
    assert set(Wandb.asked) == {"/graphql"}
    gone = ask_wandb({"WANDB_BASE_URL": url, "WANDB_API_KEY": "known"})
    assert "does not answer here" in gone
