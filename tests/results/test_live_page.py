"""The page that is served: who is let in, what is answered, what never is; without a database."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from sweep.core import masking
from sweep.core.errors import InputError
from sweep.core.paths import Runs, StudyFolder
from sweep.results.live_page import feeds, trial_log
from sweep.results.live_page.feeds import ListFeed, PageReader
from sweep.results.live_page.gate import Gate
from sweep.results.live_page.news import News
from sweep.results.live_page.web_server import MOST_AT_ONCE, Pages, WebServer
from tests.waiting import wait_for

SECRET = "hunter2-of-the-database"


class Answer:
    """What came back: status, headers, text."""

    def __init__(self, got: http.client.HTTPResponse) -> None:
        self.status = got.status
        self.headers = {name.lower(): value for name, value in got.getheaders()}
        self.text = got.read().decode()


class Visitor:
    """Sends requests as a browser would, or as none would."""

    def __init__(self, server: WebServer) -> None:
        self.server = server
        self.port = server.gate.port
        self.cookie = {"Cookie": f"{server.gate.cookie}={server.gate.session}"}

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            return Answer(connection.getresponse())

    def see(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Ask as one who was let in."""
        return self.ask(path, method, **self.cookie, **headers)


def fill(folder: Path) -> Runs:
    """Return a runs folder with two studies whose files are damaged, and a log of one trial."""
    found = Runs(folder / "runs")
    for name in ("digits", "other"):
        root = found.study(name)
        root.root.mkdir(parents=True)
        root.study.write_text("no JSON")
    log = found.study("digits").attempt(7, 1).log
    log.parent.mkdir(parents=True)
    log.write_text(f"first\npassword={SECRET}\n\x1b[31mred\x1b[0m <b>\nhalf")
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return fill(tmp_path)


@contextlib.contextmanager
def serving(runs: Runs, study: str | None = "digits", **options: Any) -> Iterator[Visitor]:
    pages = Pages(runs, study, lambda _: {"tasks": None}, "/* vega */")
    server = WebServer(pages, **options)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield Visitor(server)
    finally:
        server.idle_s = -1.0
        thread.join()


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """One server for all tests that only ask."""
    with serving(fill(tmp_path_factory.mktemp("served"))) as found:
        yield found


def test_a_token_becomes_a_cookie(visitor: Visitor) -> None:
    """The address leads to one without the token, and the cookie that it gives opens the page."""
    address = visitor.server.gate.address
    assert address.startswith(f"http://127.0.0.1:{visitor.port}/?token=")
    first = visitor.ask(address.partition(str(visitor.port))[2])
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert visitor.server.gate.token not in cookie
    page = visitor.ask("/", Cookie=cookie.partition(";")[0])
    assert page.status == 200 and "digits" in page.text
    assert visitor.server.gate.token not in page.text


@pytest.mark.parametrize("path", ["/", "/api/news?have=0", "/assets/page.css", "/api/log", "/x"])
def test_nobody_else_is_let_in(visitor: Visitor, path: str) -> None:
    """Without the cookie, with another one, or with a wrong token nothing is answered."""
    join = "&" if "?" in path else "?"
    name = visitor.server.gate.cookie
    for asked, headers in (
        (path, {}),
        (path, {"Cookie": f"{name}=wrong"}),
        (path, {"Cookie": f"{name}={visitor.server.gate.token}"}),
        (path, {"Cookie": f"sweep-1={visitor.server.gate.session}"}),
        (path, {"Cookie": 'a="; \x7f=,;;'}),
        (f"{path}{join}token=wrong", {}),
        (f"{path}{join}token=wrong", visitor.cookie),
        (f"{path}{join}token=%F6", {}),
    ):
        answer = visitor.ask(asked, **headers)
        assert answer.status == 401, asked
        assert "digits" not in answer.text and "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}", "", "[::1]:{port}"],
)
def test_another_host_is_not_us(visitor: Visitor, host: str) -> None:
    """A name that was made to lead here names itself, also with a valid cookie."""
    answer = visitor.see("/", Host=host.format(port=visitor.port))
    assert answer.status == 421
    assert visitor.see("/", Host=f"localhost:{visitor.port}").status == 200


def test_requests_of_other_sites_are_refused(visitor: Visitor) -> None:
    """Another port of this machine is the same site to a cookie: the browser says more."""
    for site in ("same-site", "cross-site"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert visitor.see("/api/news?have=0", **headers).status == 403
    headers = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert visitor.see("/api/news?have=0", **headers).status in (200, 204)
    # The address itself may stand on another page, a chat say.
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert visitor.ask(f"/?token={visitor.server.gate.token}", **link).status == 303


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "ODD"])
def test_it_can_only_be_read(visitor: Visitor, method: str) -> None:
    answer = visitor.see("/", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_has_no_body(visitor: Visitor) -> None:
    head, get = visitor.see("/assets/page.css", "HEAD"), visitor.see("/assets/page.css")
    assert head.text == "" and get.text
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize("path", ["/", "/x", "/api/news?have=0", "/assets/charts.js", "/?token=x"])
def test_headers_of_every_answer(visitor: Visitor, path: str) -> None:
    """Also of refusals: no script of others, no referrer, no guess of types, nothing kept."""
    for answer in (visitor.see(path), visitor.ask(path), visitor.see(path, "POST")):
        text = answer.headers["content-security-policy"]
        policy = dict(part.split(" ", 1) for part in text.split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert "unsafe" not in text
        assert policy["frame-ancestors"] == "'none'"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/../runs/digits/study.json",
        "/assets/../web_server.py",
        "/assets/..%2f..%2fhtml.py",
        "/assets/",
        "//etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/?study=../digits",
        "/?study=",
        "/?study=other",
        "/api/news?study=..&have=0",
        "/api/log?study=../../etc&trial=7&attempt=1&offset=0",
    ],
)
def test_no_path_comes_from_a_request(visitor: Visitor, path: str) -> None:
    """Of one study that is served only that one is known; of files only the page's own."""
    answer = visitor.see(path)
    assert answer.status == 404
    assert "root:" not in answer.text and "import" not in answer.text


@pytest.mark.parametrize(
    "trial", ["..", "7/../8", "٧", "7.0", " 7", "+7", "-7", "1_0", "9" * 40, ""]
)
def test_a_trial_is_a_number(visitor: Visitor, trial: str) -> None:
    assert visitor.see(f"/api/log?attempt=0&offset=0&trial={quote_plus(trial)}").status == 400


def test_a_log_in_parts(visitor: Visitor) -> None:
    """Whole lines as a terminal shows them, secrets masked; the half line until it is whole."""
    path = "/api/log?trial=7&attempt={}&offset={}"
    first = json.loads(visitor.see(path.format(0, -1)).text)
    assert first["attempts"] == [1] and first["attempt"] == 1
    assert first["text"] == "first\npassword=***\nred <b>\n"
    assert first["rest"] == "half" and not first["more"]
    runs = visitor.server.pages.runs
    with runs.study("digits").attempt(7, 1).log.open("a") as stream:
        stream.write(" a line\nnext\n")
    then = json.loads(visitor.see(path.format(1, first["offset"])).text)
    assert (then["text"], then["rest"]) == ("half a line\nnext\n", "")
    none = json.loads(visitor.see("/api/log?trial=8&attempt=0&offset=-1").text)
    assert none["attempt"] == 0 and "not started" in none["note"]


def test_a_long_log_begins_near_its_end(tmp_path: Path) -> None:
    """Read on from there to its end, nothing is lost and nothing comes twice."""
    folder = StudyFolder(tmp_path / "toy")
    log = folder.attempt(0, 2).log
    log.parent.mkdir(parents=True)
    lines = [f"line {number} é\n" for number in range(40_000)]
    log.write_text("".join(lines))
    part = trial_log.read_part(folder, 0, 2, trial_log.FROM_END)
    assert lines[-1] in part.text and "sweep logs toy 0" in part.note
    text, offset = "", 0
    while True:
        part = trial_log.read_part(folder, 0, 0, offset)
        text, offset = text + part.text, part.offset
        if not part.more:
            break
    assert text == "".join(lines)
    log.write_bytes(b"x" * (2 * trial_log.PART))
    part = trial_log.read_part(folder, 0, 2, 0)
    assert len(part.text) == trial_log.PART and part.more
    log.unlink()
    log.mkdir()
    assert "cannot be read" in trial_log.read_part(folder, 0, 2, 0).note


def test_what_is_wrong_stands_in_the_page(visitor: Visitor) -> None:
    """A damaged study is no dead page: it says so, and is tried again."""
    page = visitor.see("/")
    assert page.status == 200
    assert "study.json" in page.text and 'http-equiv="refresh"' in page.text


def test_a_fault_is_told_and_the_page_stays(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[BaseException] = []
    with serving(runs, fault=faults.append) as visitor:
        broken = ValueError(f"password={SECRET}")
        monkeypatch.setattr(
            visitor.server.pages, "answer", lambda *_: (_ for _ in ()).throw(broken)
        )
        answer = visitor.see("/")
        assert answer.status == 500 and SECRET not in answer.text
        monkeypatch.undo()
        assert visitor.see("/").status == 200
    assert faults == [broken]


def test_the_list_names_what_is_there(runs: Runs) -> None:
    """With --all every study of the runs folder has a page, and no other name has."""
    with serving(runs, None) as visitor:
        page = visitor.see("/")
        assert page.status == 200 and "Studies" in page.text
        assert "study.json" in visitor.see("/?study=other").text
        assert visitor.see("/?study=another").status == 404


def test_nothing_is_said_of_requests(visitor: Visitor, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither the token nor the cookie reaches a log; where one would, it is masked."""
    gate = visitor.server.gate
    for path in (f"/?token={gate.token}", "/", f"/nothing?token={gate.token}", "/x"):
        visitor.see(path)
    assert capfd.readouterr() == ("", "")
    gate = Gate(1)
    assert gate.token not in repr(gate) and gate.session not in repr(gate)
    assert masking.mask(f"GET /?token={gate.token} {gate.session} {gate.token}") == (
        "GET /?token=*** *** ***"
    )


def test_it_ends_when_nobody_looks(runs: Runs) -> None:
    """Only who is let in keeps it alive."""
    clock = [0.0]
    pages = Pages(runs, "digits", lambda _: {"tasks": None}, "")
    server = WebServer(pages, idle_s=100.0, now_s=lambda: clock[0])
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(server.serve()))
    thread.start()
    visitor = Visitor(server)
    clock[0] = 99.0
    assert visitor.see("/assets/page.css").status == 200
    clock[0] = 198.0
    assert visitor.ask("/assets/page.css").status == 401
    assert thread.is_alive()
    clock[0] = 199.0
    thread.join()
    assert ended == [True]
    assert not pages.reader.is_alive()
    with pytest.raises(OSError):
        visitor.see("/")


def test_a_port_that_is_taken(visitor: Visitor, runs: Runs) -> None:
    with pytest.raises(InputError, match=f"Port {visitor.port}"):
        WebServer(Pages(runs, None, lambda _: {}, ""), visitor.port)


def test_others_cannot_use_it_up(runs: Runs) -> None:
    """Who opens connections and says nothing is turned away at some number; the page stays."""
    with serving(runs) as visitor:
        silent = [
            socket.create_connection(("127.0.0.1", visitor.port)) for _ in range(MOST_AT_ONCE + 5)
        ]
        # Those that are turned away are closed at once.
        wait_for(lambda: sum(map(is_closed, silent)) >= 5, "five to be turned away")
        for one in silent:
            one.close()
        wait_for(lambda: answers(visitor), "the page to answer again")


def is_closed(one: Any) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def answers(visitor: Visitor) -> bool:
    try:
        return visitor.see("/assets/page.css").status == 200
    except OSError:
        return False


def test_only_what_is_new_is_told() -> None:
    """A browser gets what has changed since it asked last; one from an earlier server, all."""
    news = News()
    assert news.since(0) is None
    news.put("parts", {"now": "a", "rest": "b"})
    news.put("specs", {"curves": {"x": 1}}, whole=True)
    first = news.since(0)
    assert first == {
        "version": 2,
        "parts": {"now": "a", "rest": "b"},
        "specs": {"curves": {"x": 1}},
    }
    assert news.since(2) is None
    news.put("parts", {"now": "a"})
    assert news.since(2) is None  # the same as before
    news.put("parts", {"now": "c"})
    assert news.since(2) == {"version": 3, "parts": {"now": "c"}}
    news.put("specs", {"front": {}}, whole=True)
    assert news.since(3) == {"version": 4, "specs": {"front": {}, "curves": None}}
    assert news.since(99) == {
        "version": 4,
        "parts": {"now": "c", "rest": "b"},
        "specs": {"front": {}, "curves": None},
    }


def test_the_reader_rests_while_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks while somebody asks, closes what is open when all have left, and ends at once."""
    monkeypatch.setattr(feeds, "ASKED_S", 0.3)
    looked, closed = threading.Event(), threading.Event()

    class Watched(ListFeed):
        def look(self, now: float) -> None:
            looked.set()
            self.is_open = True
            self.due = now + 0.05

        def close(self) -> None:
            self.is_open = False
            closed.set()

    feed, reader = Watched(Runs(tmp_path)), PageReader()
    reader.start()
    for _ in range(2):
        looked.clear()
        closed.clear()
        # Again and again: a busy machine may come to the first one after it has lapsed.
        wait_for(lambda: reader.ask(feed) or looked.is_set(), "a look")
        wait_for(closed.is_set, "the reader to close what it has opened")
    reader.end()
    assert not reader.is_alive()


def test_the_gate_knows_its_cookie_among_others() -> None:
    gate = Gate(8080)
    assert gate.knows(f"a=b; sweep-8080={gate.session}; c=d")
    assert not gate.knows(f"sweep-8081={gate.session}")
    assert not gate.knows(None)
    assert not gate.takes("ä") and gate.takes(gate.token)
