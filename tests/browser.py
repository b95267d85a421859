"""A real browser that tests drive: headless Chromium by its own driver, over HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S, text_of, wait_for


class Browser:
    """One window. What a script of the page returns comes back as plain data."""

    def __init__(self, driver: str, folder: Path, width: int, height: int, dark: bool) -> None:
        self._driver = driver
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},{height}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        ]
        options = {"binary": shutil.which("chromium"), "args": arguments}
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        always["timeouts"] = {"script": PATIENCE_S * 1000, "pageLoad": PATIENCE_S * 1000}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": always}})
        self._session = f"/session/{answer['sessionId']}"

    def _call(self, method: str, path: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        asked = urllib.request.Request(self._driver + path, body, method=method)
        asked.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()[:2000]) from None

    def open(self, address: str) -> None:
        self._call("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page, and return what it returns."""
        data = {"script": script, "args": list(arguments)}
        return self._call("POST", f"{self._session}/execute/sync", data)

    def text(self, selector: str) -> str:
        """Return an element's text; "" where there is none."""
        script = "const e = document.querySelector(arguments[0]); return e ? e.textContent : ''"
        return str(self.run(script, selector))

    def click(self, selector: str) -> None:
        """Click an element, which a page that renews itself may replace at any time."""
        self.run(
            "const found = document.querySelector(arguments[0]);"
            "found.scrollIntoView({block: 'center'}); found.click();",
            selector,
        )

    def drag(self, points: Sequence[tuple[float, float]]) -> None:
        """Press at the first point of the window, move over the others, and let go."""
        (x, y), *others = [(round(x), round(y)) for x, y in points]
        actions: list[dict[str, Any]] = [
            {"type": "pointerMove", "duration": 0, "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            *({"type": "pointerMove", "duration": 20, "x": x, "y": y} for x, y in others),
            {"type": "pointerUp", "button": 0},
        ]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        data = {"actions": [{**mouse, "actions": actions}]}
        self._call("POST", f"{self._session}/actions", data)

    def resize(self, width: int, height: int) -> None:
        self._call(
            "POST", f"{self._session}/window/rect", {"width": width, "height": height, "x": 0}
        )

    def console(self) -> list[str]:
        """Return what was said on the console since the last call."""
        found = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/screenshot")))

    def close(self) -> None:
        self._call("DELETE", self._session)


@contextmanager
def browser(
    folder: Path, width: int = 1400, height: int = 1000, dark: bool = False
) -> Iterator[Browser]:
    """Start a browser whose files lie in a folder, and end it."""
    log = folder / "chromedriver.log"
    with log.open("w") as out:
        driver = subprocess.Popen(
            [shutil.which("chromedriver") or "chromedriver", "--port=0"], stdout=out, stderr=out
        )
    try:
        port = wait_for(lambda: _port(text_of(log)), "the browser's driver to listen")
        found = Browser(f"http://127.0.0.1:{port}", folder, width, height, dark)
        try:
            yield found
        finally:
            found.close()
    finally:
        driver.terminate()
        driver.wait()


def _port(said: str) -> str:
    behind = said.partition("started successfully on port ")[2]
    return behind.partition(".")[0] if "." in behind else ""
