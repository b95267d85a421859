"""A stand-in for W&B's server, which is closed: what the real client asks of it, and no more.

It answers the questions that wandb 0.31 asks of a run (seen by writing down what it sends): GraphQL
by name, the stream of a run's rows, and uploads of files. What it is not asked here it does not
know. That W&B's own server takes the same is not shown by it.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.ports import quiet_port

KEY = "a1" * 20  # W&B's keys have 40 characters
NOBODY = "b2" * 20  # a key that it does not know
WHO = "someone"


@dataclass
class Sent:
    """A run, as it was sent."""

    name: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)  # by their place in the stream
    files: dict[str, bytes] = field(default_factory=dict)
    is_over: bool = False


class Standin:
    """The server; it may go away and come back under the same address."""

    def __init__(self) -> None:
        self.runs: dict[str, Sent] = {}
        self.asked: list[str] = []
        self._server: ThreadingHTTPServer | None = None
        self._port = quiet_port()
        self.come()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def come(self) -> None:
        handler = type("Handler", (_Handler,), {"standin": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def go(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return GraphQL's data."""
        if "upsertBucket" in query:
            return {"upsertBucket": {"bucket": self._upsert(given), "inserted": True}}
        if "createRunFiles" in query:
            files = [
                {"name": name, "uploadUrl": f"{self.url}/up/{given['run']}/{name}"}
                for name in given["files"]
            ]
            made = {"runID": given["run"], "uploadHeaders": [], "files": files}
            return {"createRunFiles": made}
        if "bucket(name" in query:  # may the run go on?
            return {"model": None}
        if "run(name" in query:
            return {"project": {"projectId": "1", "run": self._described(given["name"])}}
        return {"viewer": {"id": "1", "entity": WHO, "username": WHO, "flags": "{}"}}

    def _upsert(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("name") or given["id"]
        run = self.runs.setdefault(name, Sent())
        run.name = given.get("displayName") or run.name
        run.group = given.get("groupName") or run.group
        if given.get("tags") is not None:
            run.tags = list(given["tags"])
        for key, item in json.loads(given.get("config") or "{}").items():
            if key != "_wandb":
                run.config[key] = item["value"] if isinstance(item, dict) else item
        project = {"id": "1", "name": "sweep", "entity": {"id": "1", "name": WHO}}
        return {"id": name, "name": name, "displayName": run.name, "project": project} | {
            "description": None,
            "config": None,
            "sweepName": None,
            "historyLineCount": 0,
        }

    def _described(self, name: str) -> dict[str, Any] | None:
        run = self.runs.get(name)
        if run is None:
            return None
        return {"id": name, "name": name, "displayName": run.name, "tags": run.tags} | {
            "projectId": "1",
            "config": json.dumps({key: {"value": value} for key, value in run.config.items()}),
            "summaryMetrics": json.dumps(run.summary),
            "systemMetrics": "{}",
            "user": {"name": WHO, "username": WHO},
            "group": run.group,
            "state": "finished" if run.is_over else "running",
            "historyKeys": {},
            **dict.fromkeys(("description", "notes", "jobType", "commit", "sweepName")),
            "readOnly": False,
            "createdAt": "2026-01-01T00:00:00",
            "heartbeatAt": "2026-01-01T00:00:00",
            "historyLineCount": len(run.rows),
        }

    def stream(self, name: str, sent: dict[str, Any]) -> None:
        """Take a part of a run's rows and its summary."""
        run = self.runs[name]
        files = sent.get("files", {})
        for file, part in files.items():
            lines = [json.loads(line) for line in part["content"]]
            if file == "wandb-history.jsonl":
                run.rows |= dict(enumerate(lines, part["offset"]))
            elif file == "wandb-summary.json":
                run.summary |= lines[-1]
        run.is_over = run.is_over or bool(sent.get("complete"))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that has gone
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    standin: Standin

    def do_POST(self) -> None:
        body = self._body()
        known = base64.b64encode(f"api:{KEY}".encode()).decode()
        if self.path.startswith("/sdk/"):  # how fast its client is
            self._say({})
        elif self.headers.get("Authorization", "").partition(" ")[2] != known:
            self._say({"errors": [{"message": "user is not logged in"}]}, 401)
        elif self.path == "/graphql":
            asked = json.loads(body)
            self.standin.asked.append(asked["query"])
            data = self.standin.answer(asked["query"], asked.get("variables") or {})
            self._say({"data": data})
        elif self.path.endswith("/file_stream"):
            self.standin.stream(self.path.split("/")[4], json.loads(body))
            self._say({"exitcode": None, "limits": {}})
        else:
            self._say({}, 404)

    def do_PUT(self) -> None:
        _, _, run, name = self.path.split("/", 3)
        self.standin.runs[run].files[name] = self._body()
        self._say({})

    def do_GET(self) -> None:
        self._say({})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b"".join(self._chunks())
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _say(self, data: Any, code: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def standing_in() -> Iterator[Standin]:
    """Give a server, and end it."""
    server = Standin()
    try:
        yield server
    finally:
        server.go()
