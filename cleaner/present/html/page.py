"""
The page: one document, no parts from elsewhere, whole without JavaScript.

Its style and its script are in `page.css` and `page.js`, written into the document and named in its security policy by
their hashes, so that nothing else can run or load there, whatever a topic is called.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from importlib import resources

from cleaner.base.sizes import human_bytes
from cleaner.daemon.snapshot import LogView, ServiceSnapshot
from cleaner.present.html import page_logs, page_now, page_tables
from cleaner.present.html.drawing import anatomy, patterns
from cleaner.present.html.markup import Markup, el
from cleaner.present.http.message import Response
from cleaner.present.reasons import said_of, why
from cleaner.present.text import ago, count, counted, percent, plain

_FILES = resources.files("cleaner.present")
STYLE = Markup(_FILES.joinpath("page.css").read_text("utf-8"))
SCRIPT = Markup(_FILES.joinpath("page.js").read_text("utf-8"))

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E"
    "%3Crect x='1' y='8' width='14' height='16' rx='2' fill='%231f9e89'/%3E"
    "%3Crect x='17' y='8' width='14' height='16' rx='2' fill='%23f2872f'/%3E%3C/svg%3E"
)


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_hash(STYLE)}",
        f"script-src {_hash(SCRIPT)}",
        "connect-src 'self'",
        "img-src data:",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


def overview(snapshot: ServiceSnapshot, query: Mapping[str, str]) -> Response:
    """Return the page of everything; `query` chooses which logs are listed."""
    body = (
        page_now.alerts(snapshot),
        page_now.tiles(snapshot),
        el("div", page_now.now(snapshot), page_now.waiting(snapshot), class_="columns"),
        page_tables.quarantine(snapshot),
        page_tables.retries(snapshot),
        page_tables.jobs(snapshot),
        page_tables.log_dirs(snapshot),
        page_logs.logs(snapshot, page_logs.Choice.of(query)),
        page_tables.rounds(snapshot),
        page_tables.settings(snapshot),
    )
    return _document(snapshot, page_now.headline(snapshot)[1], body)


def log(snapshot: ServiceSnapshot, name: str, query: Mapping[str, str]) -> Response:
    """Return the page of one log; of several with one name the one in `dir`, or the first."""
    log_dir = query.get("dir")
    views = [view for view in snapshot.logs if plain(str(view.partition)) == name]
    in_dir = [view for view in views if log_dir is None or plain(view.log_dir) == log_dir]
    if not in_dir:
        missing = el("section", el("h2", "No such log"), el("p", el("a", "All logs", href="/")), class_="card")
        return _document(snapshot, "No such log", (missing,), HTTPStatus.NOT_FOUND)
    view = in_dir[0]
    rounds = [r for r in snapshot.rounds if r.partition == view.partition and r.log_dir == view.log_dir]
    return _document(snapshot, str(view.partition), (_log(snapshot, view), page_tables.rounds(snapshot, rounds)))


def _log(snapshot: ServiceSnapshot, view: LogView) -> Markup:
    said = said_of(view)
    worker = next((w for w in snapshot.workers if (w.partition, w.log_dir) == (view.partition, view.log_dir)), None)
    return el(
        "section",
        el("p", el("a", "← All logs", href="/")),
        el("h2", str(view.partition), class_="log-title"),
        el("p", el("span", said.word, class_=f"chip tone-{said.tone.value}"), " ", why(view), class_="why-line"),
        anatomy(view, worker),
        page_now.legend(view),
        el(
            "dl", [el("div", el("dt", key), el("dd", value)) for key, value in _facts(snapshot, view)], class_="details"
        ),
        id="log",
        data_live=True,
        class_="card",
    )


def _facts(snapshot: ServiceSnapshot, view: LogView) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("Log dir", el("span", view.log_dir, class_="path")),
        ("cleanup.policy", f"{view.policy}, from {view.policy_origin}"),
        ("Segments", count(view.segments)),
        (
            "Last round",
            "none since the start" if view.last_round_ms is None else ago(view.last_round_ms, snapshot.now_ms),
        ),
    ]
    verdict, sections = view.verdict, view.sections
    if verdict is not None:
        facts.append(("Dirty ratio", f"{percent(verdict.cleanable.ratio)}, due over {percent(verdict.min_ratio)}"))
    if sections is not None:
        facts += [
            ("Size", human_bytes(sections.total_bytes)),
            ("Log start offset", count(sections.log_start_offset)),
            ("Cleaner point", count(sections.first_dirty_offset)),
            ("First uncleanable offset", count(sections.first_uncleanable_offset)),
            ("Active segment from", count(sections.active_base_offset)),
            ("Log end offset", count(sections.log_end_offset)),
        ]
        if sections.delete_retention_offset is not None:
            facts.append(("Delete retention point", count(sections.delete_retention_offset)))
    facts += [("Warning", warning) for warning in view.warnings]
    for entry in snapshot.quarantine:
        if (entry.topic_partition, entry.log_dir) == (view.partition, view.log_dir):
            facts.append(("In quarantine", f"{ago(entry.since_ms, snapshot.now_ms)}: {entry.reason}"))
            if entry.file:
                where = entry.file if entry.position is None else f"{entry.file} at byte {count(entry.position)}"
                facts.append(("Damaged file", el("span", where, class_="path")))
    retry = snapshot.retries.get(view.partition)
    if retry is not None:
        facts.append((counted(retry.failures, "failure"), retry.cause))
    return facts


def _document(
    snapshot: ServiceSnapshot, title: str, body: tuple[object, ...], status: HTTPStatus = HTTPStatus.OK
) -> Response:
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} - cleaner"),
        el("link", rel="icon", href=Markup(_ICON)),
        el("style", STYLE),
    )
    links = [
        el("a", words, href=href)
        for words, href in (("metrics", "/metrics"), ("health", "/healthz"), ("JSON", "/api/v1/snapshot"))
    ]
    footer = el(
        "footer",
        el(
            "p",
            "cleaner ",
            snapshot.version,
            ". This page only shows; ",
            el("code", "cleaner now|pause|resume|release"),
            " steer.",
        ),
        el("nav", links, aria_label="For programs"),
    )
    main = el("main", patterns(), body)
    document = el("html", head, el("body", page_now.header(snapshot), main, footer, el("script", SCRIPT)), lang="en")
    return Response(
        f"<!DOCTYPE html>\n{document}".encode(),
        "text/html; charset=utf-8",
        status,
        {"Content-Security-Policy": CONTENT_SECURITY_POLICY},
    )
