"""Answers browsers: pages, what is new on them, logs. Read-only, on this machine alone."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote_plus, urlsplit

from sweep.core.errors import InputError
from sweep.core.json_text import finite
from sweep.core.masking import mask
from sweep.core.paths import Runs
from sweep.results.live_page import trial_log
from sweep.results.live_page.feeds import AskScheduler, Feed, ListFeed, PageReader, StudyFeed
from sweep.results.live_page.gate import OWN_SITES, Gate
from sweep.results.page import html, views
from sweep.results.page.html import Served

ADDRESS = "127.0.0.1"
IDLE_S = 3600.0
TURN_S = 0.5  # between two looks at the time
FIRST_WAIT_S = 10.0  # for a study's first reading, before a page says that it is being read
REQUEST_S = 30.0  # within which a browser has to have said what it wants
MOST_AT_ONCE = 64  # connections; another user of this machine may open some, too
COMPRESSED_FROM = 2000  # bytes: what is longer may come through a thin line
LARGEST_NUMBER = 10**9
MOST_COMPARED = 12

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"


class NotAnswered(Exception):
    """A request that is not answered; its status and a sentence."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Pages:
    """What can be asked for: the pages of the known studies, and what belongs to them.

    Args:
        study: The one whose page is shown; None: a list of all.
        vega: The script that draws charts.
    """

    def __init__(
        self, runs: Runs, study: str | None, ask_scheduler: AskScheduler, vega: str
    ) -> None:
        self.runs = runs
        self.study = study
        self.ask_scheduler = ask_scheduler
        self.reader = PageReader()
        self.assets = {name: html.asset(name).encode() for name in ("page.css", *html.SCRIPTS)}
        self.assets["vega.js"] = vega.encode()
        self._feeds: dict[str, StudyFeed] = {}
        self._list = ListFeed(runs)
        self._lock = threading.Lock()
        self._answers: Mapping[str, Callable[[Mapping[str, str]], tuple[str, bytes] | None]] = {
            "/": self._page,
            "/api/news": self._news,
            "/api/log": self._log,
            "/api/curves": self._curves,
        }

    def answer(self, path: str, query: Mapping[str, str]) -> tuple[str, bytes] | None:
        """Return the type and the content of what a path names; None where nothing is new.

        Raises:
            NotAnswered: There is no such thing.
        """
        if path in self._answers:
            return self._answers[path](query)
        name = path.removeprefix("/assets/")
        if path.startswith("/assets/") and name in self.assets:
            kind = "text/css" if name.endswith(".css") else "text/javascript"
            return f"{kind}; charset=utf-8", self.assets[name]
        raise NotAnswered(HTTPStatus.NOT_FOUND, "There is nothing here.")

    def _feed(self, query: Mapping[str, str]) -> Feed:
        """Return what is read of the study that is asked for, or of all."""
        name = query.get("study", self.study)
        if name is None:
            self.reader.ask(self._list)
            return self._list
        feed = self._study(name)
        self.reader.ask(feed)
        return feed

    def _study(self, name: str) -> StudyFeed:
        # Nothing of a request becomes part of a path: it names one of the studies that are there.
        known = self.runs.studies() if self.study is None else [self.study]
        if name not in known:
            raise NotAnswered(HTTPStatus.NOT_FOUND, "There is no such study here.")
        with self._lock:
            if name not in self._feeds:
                self._feeds[name] = StudyFeed(self.runs, name, self.ask_scheduler)
            return self._feeds[name]

    def _page(self, query: Mapping[str, str]) -> tuple[str, bytes]:
        feed = self._feed(query)
        feed.ready.wait(FIRST_WAIT_S)
        version = feed.news.version
        if isinstance(feed, ListFeed):
            setup = {"news": "/api/news?", "version": version, "problem": feed.problem}
            served = Served(html.as_script(setup), feed.problem)
            text = html.render_list(feed.studies, set(self.runs.studies()), served)
            return HTML, text.encode()
        named = f"study={quote_plus(feed.name)}"
        setup = {
            "news": f"/api/news?{named}",
            "log": f"/api/log?{named}",
            "curves": f"/api/curves?{named}",
            "version": version,
            "problem": feed.problem,
        }
        served = Served(html.as_script(setup), feed.problem, list=self.study is None)
        contents = feed.contents
        if contents is None:
            return HTML, html.render_wait(feed.name, served).encode()
        return HTML, html.render(contents, "", served).encode()

    def _news(self, query: Mapping[str, str]) -> tuple[str, bytes] | None:
        found = self._feed(query).news.since(_number(query, "have"))
        return None if found is None else _as_json(found)

    def _log(self, query: Mapping[str, str]) -> tuple[str, bytes]:
        feed = self._feed(query)
        if isinstance(feed, ListFeed):
            raise NotAnswered(HTTPStatus.BAD_REQUEST, "Which study?")
        part = trial_log.read_part(
            self.runs.study(feed.name),
            _number(query, "trial"),
            _number(query, "attempt"),
            _number(query, "offset", least=trial_log.FROM_END),
        )
        return _as_json(part.to_dict())

    def _curves(self, query: Mapping[str, str]) -> tuple[str, bytes]:
        """Answer with the curves of some trials, as they were read last."""
        feed = self._feed(query)
        given = query.get("trials", "").split(",")[:MOST_COMPARED]
        numbers = [_whole(text) for text in given]
        read = feed.read if isinstance(feed, StudyFeed) else None
        cells = [
            {"trial": number, "step": step, "value": views.short(value)}
            for number in numbers
            if read is not None and number in read.series
            for step, value in views.evenly_with_last(
                views.finite_points(read.series[number]), views.MOST_STEPS
            )
        ]
        return _as_json({"cells": cells})


def _as_json(data: Any) -> tuple[str, bytes]:
    return JSON, json.dumps(finite(data), ensure_ascii=False, allow_nan=False).encode()


def _number(query: Mapping[str, str], name: str, least: int = 0) -> int:
    return _whole(query.get(name, ""), least)


def _whole(text: str, least: int = 0) -> int:
    """Return a whole number of a request; nothing else that Python takes for one.

    Raises:
        NotAnswered: It is none.
    """
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(LARGEST_NUMBER)):
        number = int(text)
        if least <= number <= LARGEST_NUMBER:
            return number
    raise NotAnswered(HTTPStatus.BAD_REQUEST, "That is no number.")


class Handler(BaseHTTPRequestHandler):
    """One request: who sends it, and what it asks for."""

    server: WebServer
    timeout = REQUEST_S
    server_version, sys_version = "sweep", ""

    def do_GET(self) -> None:
        self._handle(with_body=True)

    def do_HEAD(self) -> None:
        self._handle(with_body=False)

    def __getattr__(self, name: str) -> Any:
        # Any other method, also one that nobody has heard of, is refused here and not by the base
        # class, whose own pages know nothing of our headers.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests: their addresses hold a token, and they come each second."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP; called by the base class."""
        self._send(HTTPStatus(code), TEXT, (message or "It is not understood.").encode())

    def _refuse_method(self) -> None:
        self._send(
            HTTPStatus.METHOD_NOT_ALLOWED,
            TEXT,
            b"This page can only be read.",
            more={"Allow": "GET, HEAD"},
        )

    def _handle(self, *, with_body: bool) -> None:
        try:
            self._answer(with_body)
        except NotAnswered as refused:
            self._send(refused.status, TEXT, str(refused).encode(), with_body=with_body)
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # who asked has left
        except Exception as error:  # one answer fails, the page stays
            self.server.fault(error)
            text = mask(f"A fault of sweep's own ({type(error).__name__}).")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, text.encode(), with_body=with_body)

    def _answer(self, with_body: bool) -> None:
        gate = self.server.gate
        if not gate.is_for_us(self.headers.get("Host")):
            ours = f"127.0.0.1:{gate.port}"
            raise NotAnswered(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"This is {ours}; forward the same port: ssh -L {gate.port}:{ours} …",
            )
        if self.headers.get("Sec-Fetch-Site") not in OWN_SITES and self.headers.get(
            "Sec-Fetch-Mode"
        ) not in ("navigate", None):
            raise NotAnswered(HTTPStatus.FORBIDDEN, "This is asked for by another site.")
        address = urlsplit(self.path)
        query = {name: found[-1] for name, found in parse_qs(address.query, True).items()}
        if "token" in query:
            if address.path != "/" or not gate.takes(query["token"]):
                raise NotAnswered(HTTPStatus.UNAUTHORIZED, WHO_ARE_YOU)
            self.server.seen()
            more = {"Location": "/", "Set-Cookie": gate.set_cookie()}
            self._send(HTTPStatus.SEE_OTHER, TEXT, b"", with_body=with_body, more=more)
            return
        if not gate.knows(self.headers.get("Cookie")):
            raise NotAnswered(HTTPStatus.UNAUTHORIZED, WHO_ARE_YOU)
        self.server.seen()
        found = self.server.pages.answer(address.path, query)
        if found is None:
            self._send(HTTPStatus.NO_CONTENT, TEXT, b"", with_body=with_body)
            return
        self._send(HTTPStatus.OK, *found, with_body=with_body)

    def _send(
        self,
        status: HTTPStatus,
        kind: str,
        body: bytes,
        *,
        with_body: bool = True,
        more: Mapping[str, str] | None = None,
    ) -> None:
        headers = {**HEADERS, "Content-Type": kind, "Vary": "Accept-Encoding", **(more or {})}
        accepted = getattr(self, "headers", None)
        takes_gzip = accepted is not None and "gzip" in accepted.get("Accept-Encoding", "")
        if takes_gzip and len(body) >= COMPRESSED_FROM:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


WHO_ARE_YOU = (
    "Open the address that `sweep serve` has printed, with its token. If you have just done that "
    "from another page, load this one again."
)


class WebServer(ThreadingHTTPServer):
    """Listens on this machine alone, and ends when nobody has asked for long.

    Args:
        port: 0: any free one.
        idle_s: So long.
        now_s: The clock, in seconds.

    Raises:
        InputError: The port is taken, or may not be used.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(
        self,
        pages: Pages,
        port: int = 0,
        idle_s: float = IDLE_S,
        now_s: Callable[[], float] = time.monotonic,
        fault: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise InputError(
                f"Port {port} cannot be listened at: {error.strerror}.",
                "Give another: --port N; without it a free one is taken.",
            ) from error
        self.pages = pages
        self.gate = Gate(self.server_address[1])
        self.idle_s = idle_s
        self.now_s = now_s
        self.fault = fault
        self.timeout = TURN_S
        self._asked = now_s()
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)

    def seen(self) -> None:
        """Note that somebody who was let in has asked."""
        self._asked = self.now_s()

    @property
    def is_idle(self) -> bool:
        return self.now_s() - self._asked >= self.idle_s

    def serve(self) -> bool:
        """Answer until nobody has asked for long (True) or Ctrl-C was pressed (False)."""
        self.pages.reader.start()
        try:
            while not self.is_idle:
                self.handle_request()
            return True
        except KeyboardInterrupt:
            return False
        finally:
            self.server_close()
            self.pages.reader.end()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; more than so many at once are turned away."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has left; the handler tells of faults itself."""

    def server_bind(self) -> None:
        # Without asking what this machine is called: that may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = ADDRESS, self.server_address[1]
