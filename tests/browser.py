"""
Headless Chromium, driven over its debugging pipe: pages opened at any width, light or dark, asked and pictured.

Commands are JSON ended by NUL on descriptor 3, answers come the same way on descriptor 4; nothing listens on a port.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PATIENCE_SECONDS = 60.0
_PIPE = (3, 4)


class BrowserError(Exception):
    """The browser refused a command, or said nothing for too long."""


class Browser:
    """
    One browser with one page.

    Args:
        profile: an empty directory of its own.
    """

    def __init__(self, profile: Path) -> None:
        if CHROMIUM is None:
            raise BrowserError("no Chromium on the PATH")
        to_read, self._commands = os.pipe()
        self._answers, to_write = os.pipe()
        words = [
            *(CHROMIUM, "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
            *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "about:blank"),
        ]

        def place_pipe() -> None:
            """Put the pipe's ends where the browser looks for them, by way of numbers that neither has."""
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (to_read, to_write)]
            for end, number in zip(ends, _PIPE, strict=True):
                os.dup2(end, number)

        silent = subprocess.DEVNULL
        self._process = subprocess.Popen(
            words, pass_fds=_PIPE, preexec_fn=place_pipe, stdin=silent, stdout=silent, stderr=silent
        )
        os.close(to_read)
        os.close(to_write)
        self._numbers = itertools.count(1)
        self._received = b""
        self.events: list[dict[str, Any]] = []
        self._session = ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session = ""
        try:
            self.send("Browser.close")
            self._process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command; what happens in between goes to `events`."""
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                return dict(message["result"])
            self.events.append(message)

    def open(self, url: str, width: int, *, is_dark: bool = False) -> None:
        """Open a page and wait until it is loaded."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        refused = self.send("Page.navigate", url=url).get("errorText")
        if refused:
            raise BrowserError(f"{url}: {refused}")
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def picture(self, is_whole: bool = True) -> bytes:
        """Return the page as PNG, all of its length or only what the window shows."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=is_whole)["data"])

    def complaints(self) -> list[str]:
        """Return what the browser wrote to its console since the page was opened: errors, refusals of its policy."""
        found = []
        for event in self.events:
            if event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"]))
        return found

    def requested(self) -> list[str]:
        """Return every address the page asked for since it was opened."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b"\0" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise BrowserError("the browser says nothing")
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise BrowserError("the browser is gone")
            self._received += data
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))
