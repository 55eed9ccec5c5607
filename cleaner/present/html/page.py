"""
The page: one document that loads nothing else and is complete without JavaScript.

The templates next to this file define its look. Every value they show is escaped as text; only the page's own style and
script are inserted unescaped. The security policy allows these two (`page.css` and `page.js`) by their hashes, so that
nothing else can run or load there, whatever a topic is called.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING

from cleaner.base.sizes import duration, human_bytes, human_rate
from cleaner.daemon.snapshot import RoundView, ServiceSnapshot
from cleaner.policy.reasons import Tone
from cleaner.policy.selection_context import DirCondition
from cleaner.present.explanations import line_beside_label
from cleaner.present.html import page_logs, page_now
from cleaner.present.html.drawing import MIN_WIDTH_OF_NAME, drawing_of, pct
from cleaner.present.http.health import warnings
from cleaner.present.http.message import Response
from cleaner.present.text import ago, count, counted, percent, printable, until, utc_moment

if TYPE_CHECKING:
    import jinja2

MAX_ROUNDS = 12
MAX_ROWS = 100
# From this part on a disk is drawn as nearly full: cleaning itself needs room.
NEARLY_FULL = 0.9

_FILES = resources.files("cleaner.present.html")
STYLE = _FILES.joinpath("page.css").read_text("utf-8")
SCRIPT = _FILES.joinpath("page.js").read_text("utf-8")

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E"
    "%3Crect x='1' y='8' width='14' height='16' rx='2' fill='%231f9e89'/%3E"
    "%3Crect x='17' y='8' width='14' height='16' rx='2' fill='%23f2872f'/%3E%3C/svg%3E"
)
_DIR_TONES = {
    DirCondition.ONLINE: Tone.GOOD,
    DirCondition.UNREAD: Tone.BAD,
    DirCondition.LOCKED: Tone.HELD,
    DirCondition.NEEDS_RECOVERY: Tone.BAD,
    DirCondition.OFFLINE: Tone.BAD,
}
_RESULT_TONES = {
    "done": Tone.GOOD,
    "retry": Tone.HELD,
    "locked": Tone.HELD,
    "aborted": Tone.HELD,
    "quarantined": Tone.BAD,
    "offline": Tone.BAD,
}
_JOB_TONES = {"queued": Tone.DUE, "running": Tone.WORK, "done": Tone.GOOD, "failed": Tone.BAD}


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
    """Return the overview page; `query` chooses which logs are listed."""
    stuck = [] if snapshot.is_progressing else [*snapshot.stuck] or ["nothing moves"]
    choice = page_logs.Choice.of(query)
    busy = [worker for worker in snapshot.workers if worker.partition is not None]
    workers = {(worker.partition, worker.log_dir): worker for worker in busy}
    values = {
        "stuck": stuck,
        "warnings": warnings(snapshot),
        "tiles": page_now.tiles(snapshot),
        "busy": busy,
        "workers": workers,
        "views": {place: view for view in snapshot.logs if (place := (view.partition, view.log_dir)) in workers},
        "next": page_now.next_log(snapshot),
        "waiting": page_now.waiting(snapshot),
        "choice": choice,
        "selects": page_logs.selects(snapshot, choice),
        "listed": page_logs.listed(snapshot, choice),
        "rounds": snapshot.rounds[:MAX_ROUNDS],
    }
    return _document("overview.html", snapshot, values)


def log(snapshot: ServiceSnapshot, name: str, query: Mapping[str, str]) -> Response:
    """Return the page of one log; of several with one name the one in `dir`, or the first."""
    log_dir = query.get("dir")
    views = [view for view in snapshot.logs if printable(str(view.partition)) == name]
    view = next((view for view in views if log_dir is None or printable(view.log_dir) == log_dir), None)
    if view is None:
        return _document("log.html", snapshot, {"view": None}, "No such log", HTTPStatus.NOT_FOUND)
    place = view.partition, view.log_dir
    rounds = [ended for ended in snapshot.rounds if (ended.partition, ended.log_dir) == place]
    values = {
        "view": view,
        "worker": next((worker for worker in snapshot.workers if (worker.partition, worker.log_dir) == place), None),
        "rounds": rounds[:MAX_ROUNDS],
    }
    return _document("log.html", snapshot, values, str(view.partition))


def _document(
    template: str,
    snapshot: ServiceSnapshot,
    values: Mapping[str, object],
    title: str = "",
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    headline = page_now.headline(snapshot)
    body = (
        templates()
        .get_template(template)
        .render(values, snapshot=snapshot, headline=headline, title=title or headline[1])
    )
    policy = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return Response(body.encode(), "text/html; charset=utf-8", status, policy)


@functools.cache
def templates() -> jinja2.Environment:
    """Return the templates with their globals; made when the page is first requested."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source), autoescape=True, undefined=jinja2.StrictUndefined, finalize=_shown
    )
    environment.filters |= {
        "ago": ago,
        "bytes": human_bytes,
        "count": count,
        "counted": counted,
        "duration": duration,
        "moment": utc_moment,
        "pct": pct,
        "percent": percent,
        "rate": human_rate,
        "until": until,
    }
    environment.globals |= {
        "style": Markup(STYLE),  # noqa: S704 - the page's own
        "script": Markup(SCRIPT),  # noqa: S704
        "icon": _ICON,
        "max_rows": MAX_ROWS,
        "max_search": page_logs.MAX_SEARCH,
        "nearly_full": NEARLY_FULL,
        "min_width_of_name": MIN_WIDTH_OF_NAME,
        "line_beside_label": line_beside_label,
        "drawing_of": drawing_of,
        "log_path": page_logs.log_path,
        "place_words": page_logs.place_words,
        "legend_of": page_now.legend,
        "phase_words": page_now.phase_words,
        "steps_of": page_now.steps,
        "worker_words": page_now.worker_words,
        "dir_words": page_now.dir_words,
        "damage_place": page_now.damage_place,
        "max_bytes": _max_bytes,
        "dir_tone": _DIR_TONES.__getitem__,
        "result_tone": lambda result: _RESULT_TONES.get(result, Tone.QUIET),
        "job_tone": lambda state: _JOB_TONES.get(state, Tone.QUIET),
    }
    return environment


def _source(name: str) -> str:
    """Return a template without its line ends and indentation, which are only for readers of the source."""
    return "".join(line.strip() for line in _FILES.joinpath(name).read_text("utf-8").splitlines())


def _shown(value: object) -> object:
    """Return a value as it is before escaping: harmless text; markup is already escaped."""
    if value is None:
        return ""
    return value if hasattr(value, "__html__") else printable(str(value))


def _max_bytes(rounds: Sequence[RoundView]) -> int:
    return max((max(ended.bytes_read, ended.bytes_written) for ended in rounds), default=0)
