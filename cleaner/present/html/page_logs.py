"""The logs of the page: each to scale, the dirtiest first, found by name, reason or log dir, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from cleaner.base.sizes import human_bytes
from cleaner.daemon.snapshot import LogView, ServiceSnapshot, WorkerView
from cleaner.present.html.drawing import ratio_bar, strip
from cleaner.present.html.markup import Markup, el
from cleaner.present.html.page_now import log_link
from cleaner.present.reasons import said_of, said_of_standing, why
from cleaner.present.text import count, counted, percent

PAGE_SIZE = 25
MOST_SEARCH = 249  # no topic's name is longer

_Key = Callable[[LogView], tuple[Any, ...]]
SORTS: Mapping[str, tuple[str, _Key]] = {
    "ratio": ("dirtiest first", lambda view: (-(view.ratio if view.ratio is not None else -1.0), view.partition)),
    "queue": ("next first", lambda view: (_place(view), -(view.ratio or 0.0), view.partition)),
    "size": ("largest first", lambda view: (-(view.sections.total_bytes if view.sections else 0), view.partition)),
    "name": ("by name", lambda view: (view.partition, view.log_dir)),
}


def _place(view: LogView) -> int:
    return view.verdict.place if view.verdict and view.verdict.place else 1 << 31


@dataclass(frozen=True)
class Choice:
    """
    Which logs are shown; made from a query, where what makes no sense counts as nothing.

    Attributes:
        search: part of a name.
        reason: see `LogView.standing`; empty: any.
        log_dir: empty: any.
        sort: one of `SORTS`.
        page: from 1.
    """

    search: str = ""
    reason: str = ""
    log_dir: str = ""
    sort: str = "ratio"
    page: int = 1

    @staticmethod
    def of(query: Mapping[str, str]) -> Choice:
        """Read a query."""
        number = query.get("page", "1")
        sort = query.get("sort", "ratio")
        return Choice(
            search=query.get("q", "").strip()[:MOST_SEARCH],
            reason=query.get("reason", ""),
            log_dir=query.get("dir", ""),
            sort=sort if sort in SORTS else "ratio",
            page=int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1,
        )

    def link(self, page: int) -> str:
        """Return the address of another page of the same choice."""
        values = {"q": self.search, "reason": self.reason, "dir": self.log_dir, "sort": self.sort, "page": page}
        return f"/?{urlencode({key: value for key, value in values.items() if value})}#logs"

    def matching(self, logs: Sequence[LogView]) -> list[LogView]:
        """Return the logs chosen, in order."""
        wanted = self.search.lower()
        chosen = [
            view
            for view in logs
            if (not wanted or wanted in str(view.partition).lower())
            and (not self.reason or view.standing == self.reason)
            and (not self.log_dir or view.log_dir == self.log_dir)
        ]
        return sorted(chosen, key=SORTS[self.sort][1])


def logs(snapshot: ServiceSnapshot, choice: Choice) -> Markup:
    """Return the section of the logs."""
    chosen = choice.matching(snapshot.logs)
    pages = max(1, -(-len(chosen) // PAGE_SIZE))
    page = min(max(1, choice.page), pages)
    shown = chosen[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    found = (
        counted(len(chosen), "log")
        if len(chosen) == len(snapshot.logs)
        else (f"{count(len(chosen))} of {counted(len(snapshot.logs), 'log')}")
    )
    workers = {(w.partition, w.log_dir): w for w in snapshot.workers if w.partition is not None}
    many_dirs = len(snapshot.log_dirs) > 1
    rows = [_row(view, workers.get((view.partition, view.log_dir)), many_dirs=many_dirs) for view in shown]
    table = el(
        "table",
        el("caption", f"{found}, {SORTS[choice.sort][0]}; each drawn to its own scale, oldest records on the left"),
        el(
            "thead",
            el("tr", [el("th", name, scope="col") for name in ("Log", "Drawn to scale", "Dirty", "Size", "Why")]),
        ),
        el("tbody", rows),
        class_="logs",
    )
    return el(
        "section",
        el("div", el("h2", "Logs"), _form(snapshot, choice), class_="section-head"),
        el("div", table if shown else el("p", "No log is like that.", class_="soft"), _pager(choice, page, pages),
           id="log-table", data_live=True),
        id="logs",
        class_="card",
    )  # fmt: skip


def _row(view: LogView, worker: WorkerView | None, *, many_dirs: bool) -> Markup:
    said = said_of(view)
    verdict = view.verdict
    dirty = el("td", el("span", "-", class_="soft"), class_="dirty-cell")
    if verdict is not None:
        ratio = verdict.cleanable.ratio
        dirty = el(
            "td",
            el("span", percent(ratio), class_="number"),
            ratio_bar(ratio, verdict.min_ratio, verdict.dueness.is_due),
            class_="dirty-cell",
        )
    label = f"next, {said.word}" if verdict and verdict.place == 1 else said.word
    if verdict and verdict.place and verdict.place > 1:
        label = f"{said.word}, number {count(verdict.place)}"
    name = el(
        "th",
        log_link(view.partition, view.log_dir),
        el("small", view.log_dir, class_="soft dir") if many_dirs else None,
        scope="row",
    )
    total = human_bytes(view.sections.total_bytes) if view.sections else "-"
    return el(
        "tr",
        name,
        el("td", strip(view, worker), class_="drawn"),
        dirty,
        el("td", total, class_="number size-cell"),
        el(
            "td",
            el("span", label, class_=f"chip tone-{said.tone.value}"),
            " ",
            el("span", why(view), class_="why soft"),
            el("span", [f"{warning}. " for warning in view.warnings], class_="why warn") if view.warnings else None,
            class_="why-cell",
        ),
    )


def _form(snapshot: ServiceSnapshot, choice: Choice) -> Markup:
    standings = sorted(snapshot.counts.standings)
    reasons = [("", "any reason"), *((standing, said_of_standing(standing).word) for standing in standings)]
    dirs = [("", "any log dir"), *((view.path, view.path) for view in snapshot.log_dirs)]
    sorts = [(key, words) for key, (words, _) in SORTS.items()]
    search = el(
        "input", type="search", name="q", value=choice.search, placeholder="Find a log", aria_label="Part of a name",
        autocomplete="off", spellcheck="false", maxlength=MOST_SEARCH,
    )  # fmt: skip
    return el(
        "form",
        search,
        _select("reason", "Reason", reasons, choice.reason),
        _select("dir", "Log dir", dirs, choice.log_dir) if len(dirs) > 2 else None,
        _select("sort", "Order", sorts, choice.sort),
        el("button", "Show", type="submit"),
        method="get",
        action="/#logs",
        role="search",
        id="find",
    )


def _select(name: str, label: str, options: Sequence[tuple[str, str]], chosen: str) -> Markup:
    return el(
        "select",
        [el("option", words, value=value, selected=value == chosen) for value, words in options],
        name=name,
        aria_label=label,
    )


def _pager(choice: Choice, page: int, pages: int) -> Markup | None:
    if pages == 1:
        return None
    earlier = el("a", "← Previous", href=choice.link(page - 1), rel="prev") if page > 1 else el("span", "← Previous")
    later = el("a", "Next →", href=choice.link(page + 1), rel="next") if page < pages else el("span", "Next →")
    where = el("span", f"page {count(page)} of {count(pages)}", class_="where")
    return el("nav", earlier, where, later, class_="pager", aria_label="Pages of logs")
