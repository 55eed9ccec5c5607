"""The page as a document: whole, escaped, to scale, found by name and reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import jinja2
import pytest

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.policy.reasons import Reason, Tone
from cleaner.present.explanations import line_beside_label
from cleaner.present.html import page
from cleaner.present.html.drawing import MIN_WIDTH, parts_of
from cleaner.present.html.page_logs import PAGE_SIZE, Choice
from cleaner.present.html.page_now import headline
from tests.support.sample_daemons import HOSTILE_WORDS, at_work, hostile, with_many_logs, with_problems
from tests.support.snapshots import LOG_DIR, MB, NOW_MS, log, log_dir, quarantined, sections, snapshot, worker

DAEMONS = [snapshot, at_work, with_problems, hostile, lambda: snapshot(()), lambda: with_many_logs(300)]
UNREADABLE = log("sessions", 0, sections=None, verdict=None, why="cannot be read", error="Permission denied")
_VOID = {"meta", "link", "input"}


class Document(HTMLParser):
    """What a page is made of; fails on an element that is closed twice, never, or in the wrong place."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that ends where it begins."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element, which must be this one."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note what is read, not what is run."""
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


def overview(described: ServiceSnapshot, **query: str) -> Document:
    """Return the page of everything."""
    return Document(page.overview(described, query).body.decode())


@pytest.mark.parametrize("daemon", DAEMONS)
def test_page_of_any_daemon_is_well_formed_and_self_contained(daemon: Callable[[], ServiceSnapshot]) -> None:
    """Elements nest, identifiers are given once, nothing is fetched from anywhere, nothing is styled in place."""
    document = overview(daemon())
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert all(attributes["id"] for _, attributes in document.elements if "data-live" in attributes)
    names = {name for name, _ in document.elements}
    assert names.isdisjoint({"img", "iframe", "object", "embed", "base", "audio", "video", "foreignobject"})
    for name, attributes in document.elements:
        assert not {key for key in attributes if key.startswith("on") or key in ("src", "style", "srcset")}, name
        assert attributes.get("href", "/").startswith(("/", "data:image/svg+xml,")), attributes
    assert (len(document.all("script")), len(document.all("style"))) == (1, 1)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_every_drawing_has_a_description(daemon: Callable[[], ServiceSnapshot]) -> None:
    """Every drawing has its content in words; a table has a caption and column headings."""
    document = overview(daemon())
    for attributes in document.all("svg"):
        is_hidden = attributes.get("aria-hidden") == "true"
        assert is_hidden or (attributes["role"] == "img" and attributes["aria-label"]), attributes
    tables = len(document.all("table"))
    assert len(document.all("caption")) == tables == len(document.all("thead"))
    assert all(attributes.get("scope") in ("row", "col") for attributes in document.all("th"))
    for field in ("input", "select"):
        assert all(attributes.get("aria-label") for attributes in document.all(field))


def test_hostile_words_are_text() -> None:
    """Names and errors with markup, quotes and terminal codes are read as they are, with controls made visible."""
    body = page.overview(hostile(), {"q": HOSTILE_WORDS, "reason": HOSTILE_WORDS, "dir": HOSTILE_WORDS}).body.decode()
    for broken_out in ("<script>alert", "<img", "</svg><img", "onerror=alert(1)>", "\x1b", "\x00", "\r", "\u202e"):
        assert broken_out not in body
    document = overview(hostile())
    assert "</title></svg><img src=x onerror=alert(1)>\\r\\nSet-Cookie: a=b\\x00" in document.text
    assert "<script>alert('x')</script>" in document.text
    assert len(document.all("script")) == 1


def test_policy_of_the_page_names_its_own_style_and_script_only() -> None:
    """Nothing in line but what the hashes name; connections only back to the server."""
    headers = page.overview(at_work(), {}).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy["style-src"])
    assert (policy["connect-src"], policy["form-action"], policy["img-src"]) == ("'self'", "'self'", "data:")


def test_style_and_script_cannot_end_their_element() -> None:
    """They go into the document as they are."""
    assert "</" not in page.STYLE and "</s" not in page.SCRIPT and "<!--" not in page.STYLE + page.SCRIPT


def test_value_in_a_template_is_text_whatever_it_is() -> None:
    """In an element and in an attribute, a name, an object or nothing; a name that is misspelt is an error."""
    template = page.templates().from_string('<a href="{{ link }}">{{ name }}{{ nothing }}{{ number }}</a>')
    made = template.render(link="\"'\n", name=TopicPartition("<b>\x1b", 3), nothing=None, number=3)
    assert made == '<a href="&#34;&#39;\\n">&lt;b&gt;\\x1b-33</a>'
    with pytest.raises(jinja2.UndefinedError, match="nmae"):
        page.templates().from_string("{{ nmae }}").render(name="x")


def test_parts_of_a_log_are_to_scale() -> None:
    """Widths are bytes; every part is visible, and all together fill the line."""
    parts = parts_of(sections(500 * MB, 250 * MB, 150 * MB, 100 * MB))
    assert [(part.kind, round(part.width, 6)) for part in parts] == [
        ("clean", 50.0), ("dirty", 25.0), ("young", 15.0), ("active", 10.0),
    ]  # fmt: skip
    tiny = parts_of(sections(10_000 * MB, 1, 0, 1))
    assert [part.kind for part in tiny] == ["clean", "dirty", "active"]
    assert tiny[1].width > 0.9 * MIN_WIDTH
    assert sum(part.width for part in tiny) == pytest.approx(100)
    assert parts_of(sections(0, 0, 0, 0)) == []


@pytest.mark.parametrize(
    ("phase", "done", "begin", "width"),
    [("map", 0.5, 50.0, 20.0), ("copy", 0.5, 0.0, 45.0), ("copy", 9.0, 0.0, 90.0), ("load", 0.5, None, None)],
)
def test_sweep_is_as_far_as_the_worker(phase: str, done: float, begin: float | None, width: float | None) -> None:
    """The map is built over the dirty section, the copy made of both; never beyond the end."""
    view = log("orders", 0, clean_bytes=500, dirty_bytes=400, active_bytes=100)
    at_it = worker(0, view.partition, phase=phase, done_bytes=int(done * 1000), total_bytes=1000)
    drawn = page.overview(snapshot((view,), workers=(at_it,)), {}).body.decode()
    swept = re.search(r'<rect x="([\d.]+)%" y="0" width="([\d.]+)%" height="100%" class="swept"', drawn)
    assert (swept is None) is (begin is None)
    if swept is not None:
        assert (float(swept[1]), float(swept[2])) == (begin, width)


@pytest.mark.parametrize(
    ("fields", "tone", "words"),
    [
        ({}, Tone.DUE, "1 log due"),
        ({"logs": (log(dirty_bytes=0),)}, Tone.GOOD, "All clean enough"),
        ({"logs": (log(dirty_bytes=0), UNREADABLE)}, Tone.BAD, "1 not well"),
        ({"logs": (log(dirty_bytes=0),), "quarantine": (quarantined(),)}, Tone.BAD, "1 not well"),
        ({"pauses": ("all",), "quarantine": (quarantined(),)}, Tone.BAD, "1 not well, paused"),
        ({"workers": (worker(0, TopicPartition("orders", 0)), worker(1))}, Tone.WORK, "Cleaning 1 log"),
        ({"opens_at_ms": NOW_MS + 3_600_000}, Tone.HELD, "Waiting for its window, in 1 h"),
        ({"pauses": ("all",)}, Tone.HELD, "Paused"),
        ({"is_ready": False, "state": "starting"}, Tone.WORK, "Starting"),
        ({"is_ready": False, "state": "starting", "quarantine": (quarantined(),)}, Tone.WORK, "Starting"),
        ({"is_progressing": False}, Tone.BAD, "Stuck"),
        ({"state": "stopping", "is_progressing": False}, Tone.HELD, "Stopping"),
    ],
)
def test_headline_shows_what_matters_most(fields: dict[str, object], tone: Tone, words: str) -> None:
    """One state in a few words."""
    assert headline(snapshot(**fields)) == (tone, words)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"anonymous_bytes": 72 << 20}, '<div class="tile"><dt>Memory</dt><dd><b>72.0 MiB</b>'),
        ({"anonymous_bytes": 441 << 20}, '<div class="tile bad"><dt>Memory</dt><dd><b>441.0 MiB</b>'),
        ({"anonymous_bytes": None}, '<div class="tile"><dt>Memory</dt><dd><b>?</b>'),
    ],
    ids=["well", "too much", "not known"],
)
def test_tile_shows_how_much_memory_is_used(fields: dict[str, object], shown: str) -> None:
    """Next to the most that is needed; more than that is shown as bad."""
    drawn = page.overview(snapshot(needed_bytes=440 << 20, **fields), {}).body.decode()
    assert f"{shown}<small>440.0 MiB is the most it needs" in drawn


def test_every_reason_has_words_and_a_tone() -> None:
    """A reason that policy gains cannot be forgotten; the style knows every tone."""
    labels = [reason.words.label for reason in Reason]
    assert all(labels)
    assert len(set(labels)) == len(labels)
    for tone in Tone:
        assert f".tone-{tone.value} " in page.STYLE


def test_line_leaves_out_its_label_and_has_times_in_words() -> None:
    """Nobody reads milliseconds."""
    overdue = log("a", 0, reason=Reason.OVERDUE, verdict_fields={"overdue_ms": 7_384_000, "place": 1})
    assert line_beside_label(overdue) == "over max.compaction.lag.ms by 2 h 3 min"
    broken = log("a", 0, verdict=None, sections=None, why="cannot be read", error="Permission denied")
    assert line_beside_label(broken) == "Permission denied"


def logs_shown(document: Document) -> list[str]:
    """Return the logs in the table of logs, as their links have them."""
    links = [attributes["href"] for attributes in document.all("a") if attributes.get("class") == "log-name"]
    return [link.removeprefix("/log/").partition("?")[0] for link in links]


def test_thousands_of_logs_are_shown_a_page_at_a_time() -> None:
    """The dirtiest first; every page but the ends leads on and back; one beyond the last is the last."""
    described = with_many_logs(PAGE_SIZE * 2 + 1)
    pages = [Choice.of({"page": str(number)}) for number in (1, 2, 3)]
    for choice, previous, following in zip(pages, (False, True, True), (True, True, False), strict=True):
        document = overview(described, page=str(choice.page))
        links = {attributes.get("rel") for attributes in document.all("a")}
        assert ("prev" in links, "next" in links) == (previous, following)
    assert "page 3 of 3" in overview(described, page="99").text
    ratios = [view.ratio or 0.0 for view in Choice().matching(described.logs)]
    assert ratios == sorted(ratios, reverse=True)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "ORDERS"}, ["orders-0", "orders-1"]),
        ({"q": "orders-1"}, ["orders-1"]),
        ({"reason": "quarantined"}, ["ledger-2", "payments-7"]),
        ({"reason": "unreadable"}, ["sessions-0"]),
        ({"reason": "not_compacted"}, ["audit-0"]),
        ({"dir": "/mnt/disk2/kafka"}, ["clicks-0"]),
        ({"q": "ledger", "reason": "paused"}, []),
    ],
)
def test_logs_are_found_by_name_reason_and_log_dir(query: dict[str, str], found: list[str]) -> None:
    """Every choice narrows the others."""
    assert sorted(str(view.partition) for view in Choice.of(query).matching(with_problems().logs)) == found


@pytest.mark.parametrize("number", ["0", "-1", "x", "", "1e9", "9" * 40, "\u0663"])
def test_page_number_that_is_none_shows_the_first_page(number: str) -> None:
    """Any text in the address gets an answer."""
    assert "page 1 of" in overview(with_many_logs(60), page=number).text


def test_log_has_a_page_of_its_own() -> None:
    """By name; with two log dirs by `dir` too; what is not there is not found."""
    twins = snapshot(
        (log("a", 0), log("a", 0, log_dir="/other", policy="delete")), log_dirs=(log_dir(), log_dir("/other"))
    )
    assert "compact, from" in Document(page.log(twins, "a-0", {}).body.decode()).text
    assert "delete, from" in Document(page.log(twins, "a-0", {"dir": "/other"}).body.decode()).text
    for missing in (page.log(twins, "b-0", {}), page.log(twins, "a-0", {"dir": "/x"}), page.log(twins, "<b>", {})):
        assert missing.status == 404
        Document(missing.body.decode())
    quarantined = Document(page.log(with_problems(), "ledger-2", {"dir": LOG_DIR}).body.decode()).text
    assert "CRC-32C of the batch" in quarantined and "at byte 81,788,928" in quarantined
