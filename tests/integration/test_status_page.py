"""The page in a real browser, on wide screens and phones, light and dark, with and without JavaScript."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.listening import Address
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.present.http.routes import Routes
from cleaner.present.http.server import HttpServer
from tests.browser import CHROMIUM, Browser
from tests.support.sample_daemons import at_work, hostile, with_many_logs, with_problems
from tests.support.snapshots import snapshot

DESKTOP, PHONE = 1280, 390

# Returns every text whose colour is too close to what is behind it (WCAG 2.2, 1.4.3: 4.5 to 1, 3 to 1 when large).
TOO_PALE = """
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const curve = (c) => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * curve(r) + 0.7152 * curve(g) + 0.0722 * curve(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const pale = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
    if (!text || element.closest("script, title, option") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), drawing = element.closest("svg");
    const one = light(parse(drawing ? style.fill : style.color));
    const other = light(behind(drawing ? drawing.parentElement : element));
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if (contrast < least) pale.push(text.slice(0, 40) + " " + contrast.toFixed(2));
  }
  return pale;
})()
"""

# Things that reach beyond the screen, and words that are cut.
TOO_WIDE = """
[...document.querySelectorAll("body *")]
  .filter((e) => !e.closest("svg, thead") && e.getClientRects().length && (
    e.getBoundingClientRect().right > WIDTH + 1 ||
    e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden"))
  .map((e) => e.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests here."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@contextlib.contextmanager
def served(take: Callable[[], ServiceSnapshot]) -> Iterator[str]:
    """Serve a daemon; gives its address."""
    failures: list[Exception] = []
    clock = SystemClock()
    server = HttpServer(
        Address("127.0.0.1", 0), Routes(take, clock=clock), warn=print, failed=failures.append, clock=clock
    )
    with server:
        yield f"http://127.0.0.1:{server.address.port}"
    assert failures == []


def keep_picture(browser: Browser, path: Path) -> None:
    """Take a picture; pytest keeps those of tests that fail."""
    path.write_bytes(browser.picture())


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("daemon", [at_work, with_problems, with_many_logs, hostile, lambda: snapshot(())])
def test_page_fits_is_legible_and_asks_for_nothing_else(
    browser: Browser, tmp_path: Path, daemon: Callable[[], ServiceSnapshot], width: int, is_dark: bool
) -> None:
    """Nothing is cut or reaches over the edge, all text stands out, the browser complains of nothing."""
    described = daemon()
    with served(lambda: described) as address:
        browser.open(f"{address}/", width, is_dark=is_dark)
        keep_picture(browser, tmp_path / "page.png")
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask(TOO_WIDE.replace("WIDTH", str(width))) == []
        assert browser.ask(TOO_PALE) == []
        assert browser.complaints() == []
        assert [url for url in browser.requested() if not url.startswith("data:")] == [f"{address}/"]
        background = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert (int(re.findall(r"\d+", background)[0]) < 128) is is_dark


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_page_of_one_log_fits_and_is_legible(browser: Browser, tmp_path: Path, width: int) -> None:
    """It is reached by its name on the first page."""
    with served(with_problems) as address:
        browser.open(f"{address}/", width)
        link = browser.ask(
            "[...document.querySelectorAll('a.log-name')].find((a) => a.textContent === 'ledger-2').href"
        )
        browser.open(link, width)
        keep_picture(browser, tmp_path / "log.png")
        assert browser.ask("document.querySelector('h2').textContent") == "ledger-2"
        assert browser.ask(TOO_WIDE.replace("WIDTH", str(width))) == []
        assert (browser.ask(TOO_PALE), browser.complaints()) == ([], [])


def test_page_without_javascript_shows_all_and_finds_logs(browser: Browser) -> None:
    """The same sections, and the form works."""
    described = with_many_logs(200)
    with served(lambda: described) as address:
        browser.send("Emulation.setScriptExecutionDisabled", value=True)
        try:
            browser.open(f"{address}/?q=topic-0007&sort=name", DESKTOP)
            names = browser.ask("[...document.querySelectorAll('#logs .log-name')].map((a) => a.textContent)")
            live = browser.ask("document.getElementById('live').textContent")
        finally:
            browser.send("Emulation.setScriptExecutionDisabled", value=False)
    assert names == [f"topic-0007-{number}" for number in range(10)]
    assert live.startswith("as of ")


def test_page_follows_the_daemon(browser: Browser) -> None:
    """Changes are put in, an open fold and a half-filled field stay; a server that is gone is reported."""
    shown = [at_work()]
    look = "document.dispatchEvent(new Event('visibilitychange'))"
    until = "new Promise((done) => {{ const see = () => ({}) ? done(true) : requestAnimationFrame(see); see(); }})"
    with served(lambda: shown[0]) as address:
        browser.open(f"{address}/", DESKTOP)
        browser.ask("document.querySelector('details').open = true")
        browser.ask("document.querySelector('input[name=q]').focus()")
        browser.ask("document.querySelector('input[name=q]').value = 'half a na'")
        shown[0] = replace(shown[0], workers=(), pauses=("all",))
        browser.ask(look)
        assert browser.ask(until.format("document.querySelector('h1').textContent === 'Paused'"))
        assert browser.ask("document.title") == "Paused - cleaner"
        assert browser.ask("document.querySelector('details').open")
        assert browser.ask("document.querySelector('input[name=q]').value") == "half a na"
        assert browser.ask("document.activeElement.name") == "q"
        assert browser.complaints() == []
    browser.ask(look)
    assert browser.ask(until.format("document.getElementById('live').textContent.startsWith('no answer')"))


def test_hidden_page_asks_for_nothing(browser: Browser) -> None:
    """A hidden tab costs nothing."""
    with served(at_work) as address:
        browser.open(f"{address}/", DESKTOP)
        browser.ask("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        browser.ask("document.dispatchEvent(new Event('visibilitychange'))")
        assert browser.ask("document.getElementById('live').textContent") == "paused"
        assert browser.requested() == [f"{address}/"]
