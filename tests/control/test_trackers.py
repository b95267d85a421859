"""What is said of trackers before they have anything to write."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sweep.control.check.trackers import is_online, look
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
    assert look(study, tmp_path, {**none, "WANDB_API_KEY": "k"}) == []
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
