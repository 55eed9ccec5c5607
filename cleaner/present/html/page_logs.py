"""The logs of the page: each to scale, the dirtiest first, found by name, reason or log dir, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import LogView, ServiceSnapshot
from cleaner.policy.reasons import Reason
from cleaner.present.text import count, counted, printable

LOG_PATH = "/log/"
PAGE_SIZE = 25
MAX_SEARCH = 249  # no topic's name is longer


def _dirtiness(view: LogView) -> tuple[Any, ...]:
    ratio = view.ratio
    return 1.0 if ratio is None else -ratio, view.partition


def _place(view: LogView) -> int:
    return view.verdict.place if view.verdict and view.verdict.place else 1 << 31


_Key = Callable[[LogView], tuple[Any, ...]]
SORTS: Mapping[str, tuple[str, _Key]] = {
    "ratio": ("dirtiest first", _dirtiness),
    "queue": ("next first", lambda view: (_place(view), -(view.ratio or 0.0), view.partition)),
    "size": ("largest first", lambda view: (-(view.sections.total_bytes if view.sections else 0), view.partition)),
    "name": ("by name", lambda view: (view.partition, view.log_dir)),
}


@dataclass(frozen=True)
class Choice:
    """
    Which logs are shown; made from a query, whose invalid values are ignored.

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
            search=query.get("q", "").strip()[:MAX_SEARCH],
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
        """Return the chosen logs, in order."""
        wanted = self.search.lower()
        chosen = [
            view
            for view in logs
            if (not wanted or wanted in str(view.partition).lower())
            and (not self.reason or view.standing == self.reason)
            and (not self.log_dir or view.log_dir == self.log_dir)
        ]
        return sorted(chosen, key=SORTS[self.sort][1])


@dataclass(frozen=True)
class Listed:
    """A page of the chosen logs: these logs, their number in words, the page's number and the number of pages."""

    shown: Sequence[LogView]
    found: str
    page: int
    pages: int


def listed(snapshot: ServiceSnapshot, choice: Choice) -> Listed:
    """Return the logs to show."""
    chosen, total = choice.matching(snapshot.logs), counted(len(snapshot.logs), "log")
    found = total if len(chosen) == len(snapshot.logs) else f"{count(len(chosen))} of {total}"
    pages = max(1, -(-len(chosen) // PAGE_SIZE))
    page = min(max(1, choice.page), pages)
    shown = chosen[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    return Listed(shown, f"{found}, {SORTS[choice.sort][0]}", page, pages)


def selects(snapshot: ServiceSnapshot, choice: Choice) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Return the select fields: name, label, current choice, and the options with their words."""
    standings = sorted(snapshot.counts.standings)
    reasons = [("", "any reason"), *((standing, Reason(standing).words.label) for standing in standings)]
    dirs = [("", "any log dir"), *((view.path, view.path) for view in snapshot.log_dirs)]
    sorts = [(key, words) for key, (words, _) in SORTS.items()]
    made = [("reason", "Reason", choice.reason, reasons), ("sort", "Order", choice.sort, sorts)]
    if len(snapshot.log_dirs) > 1:
        made.insert(1, ("dir", "Log dir", choice.log_dir, dirs))
    return made


def place_words(view: LogView) -> str:
    """Say why a log waits, and its place in the queue."""
    word, place = view.reason.words.label, view.verdict.place if view.verdict else None
    if not place:
        return word
    return f"next, {word}" if place == 1 else f"{word}, number {count(place)}"


def log_path(partition: TopicPartition, log_dir: str | None = None) -> str:
    """Return the path of a log's page."""
    where = f"?{urlencode({'dir': printable(log_dir)})}" if log_dir else ""
    return f"{LOG_PATH}{quote(printable(str(partition)), safe='')}{where}"
