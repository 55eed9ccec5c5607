"""The top of the page: what state the daemon is in, what is wrong, what is being cleaned, and why the others wait."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlencode

from cleaner.base.model import TopicPartition
from cleaner.base.sizes import human_bytes, human_rate
from cleaner.daemon.snapshot import Forecast, LogView, ServiceSnapshot, WorkerView
from cleaner.present.html.drawing import anatomy, bar, stack
from cleaner.present.html.markup import Markup, el
from cleaner.present.http.health import warnings
from cleaner.present.problems import troubles
from cleaner.present.reasons import Label, Tone, said_of_standing
from cleaner.present.text import ago, count, counted, duration, moment, percent, plain

LOG_PATH = "/log/"
PHASES = ("load", "map", "copy", "close")
_PHASE_WORDS = {
    "load": "loading the log",
    "map": "building the offset map",
    "copy": "copying what stays",
    "retention": "removing expired segments",
    "close": "finishing",
}


def log_link(partition: TopicPartition, log_dir: str | None = None) -> Markup:
    """Return a log's name, leading to its page."""
    where = f"?{urlencode({'dir': plain(log_dir)})}" if log_dir else ""
    return el("a", str(partition), href=f"{LOG_PATH}{quote(plain(str(partition)), safe='')}{where}", class_="log-name")


def when(ms: int | None, now_ms: int) -> Markup:
    """Return how long ago a moment was; the moment itself is told to who points at it."""
    if ms is None:
        return el("span", "never")
    return el("time", ago(ms, now_ms), datetime=moment(ms), title=moment(ms))


def headline(snapshot: ServiceSnapshot) -> tuple[Tone, str]:
    """Say what the daemon does, in a few words, and how much is not well."""
    tone, words = _doing(snapshot)
    wrong = troubles(snapshot)
    # What is stuck says so itself; a daemon that starts or stops need not be as it should be.
    if not wrong or snapshot.state != "running" or not snapshot.is_progressing:
        return tone, words
    return Tone.BAD, f"{count(len(wrong))} not well" + (
        "" if tone is Tone.GOOD else f", {words[:1].lower()}{words[1:]}"
    )


def _doing(snapshot: ServiceSnapshot) -> tuple[Tone, str]:
    busy = [worker for worker in snapshot.workers if worker.partition is not None]
    if snapshot.state == "stopping":
        return Tone.HELD, "Stopping"
    if not snapshot.is_progressing:
        return Tone.BAD, "Stuck"
    if snapshot.state == "starting" or not snapshot.is_ready:
        return Tone.WORK, "Starting"
    if busy:
        return Tone.WORK, f"Cleaning {counted(len(busy), 'log')}"
    if "all" in snapshot.pauses:
        return Tone.HELD, "Paused"
    if snapshot.opens_at_ms is not None:
        return Tone.HELD, f"Waiting for its window, {ago(snapshot.opens_at_ms, snapshot.now_ms)}"
    if snapshot.counts.waiting:
        return Tone.DUE, f"{counted(snapshot.counts.waiting, 'log')} due"
    return Tone.GOOD, "All clean enough"


def header(snapshot: ServiceSnapshot) -> Markup:
    """Return the bar at the top."""
    tone, words = headline(snapshot)
    now_ms, throttle, config = snapshot.now_ms, snapshot.throttle, snapshot.config
    limit = human_rate(throttle.bytes_per_second)
    window = "open" if snapshot.opens_at_ms is None else f"opens {ago(snapshot.opens_at_ms, now_ms)}"
    settings: object = ("read ", when(config.loaded_ms, now_ms)) if config.is_last_reload_good else "last reload failed"
    next_look = "when woken" if snapshot.next_turn_ms is None else ago(snapshot.next_turn_ms, now_ms)
    facts = [
        ("Window", window, snapshot.opens_at_ms is not None),
        ("Throttle", limit, False),
        ("Paused", ", ".join(snapshot.pauses) or "nothing", bool(snapshot.pauses)),
        ("Settings", settings, not config.is_last_reload_good),
        ("Next look", next_look, False),
        ("Up for", duration((now_ms - snapshot.started_ms) / 1000), False),
    ]
    return el(
        "header",
        el(
            "div",
            el("a", _mark(), el("span", "cleaner"), href="/", class_="brand"),
            el("h1", el("span", class_="dot"), words, class_=f"state tone-{tone.value}"),
            el("p", el("span", "as of ", moment(now_ms), id="live", class_="live"), class_="live-line"),
            class_="bar-top",
        ),
        el(
            "dl",
            [el("div", el("dt", k), el("dd", v), class_="odd" if odd else None) for k, v, odd in facts],
            class_="facts",
        ),
        id="top",
        data_live=True,
    )


def _mark() -> Markup:
    """Return the mark: a log with a clean tail, a dirty head and a broom between."""
    cells = [("clean", 1, 5), ("clean", 8, 3), ("dirty", 14, 4), ("dirty", 19, 4), ("active", 24, 7)]
    rects = [el("rect", x=x, y="10", width=width, height="12", rx="1", class_=kind) for kind, x, width in cells]
    return el("svg", rects, viewBox="0 0 32 32", width="32", height="32", aria_hidden="true", class_="mark")


def alerts(snapshot: ServiceSnapshot) -> Markup:
    """Return what somebody should look at; an empty place when there is nothing."""
    failures = [] if snapshot.is_progressing else [*snapshot.stuck] or ["nothing moves"]
    lines = [el("li", el("strong", "Stuck: "), words, class_="bad") for words in failures]
    lines += [el("li", words) for words in warnings(snapshot)]
    label = "What needs attention"
    return el(
        "section", (el("h2", label), el("ul", lines)) if lines else None, id="alerts", data_live=True, hidden=not lines
    )


def tiles(snapshot: ServiceSnapshot) -> Markup:
    """Return the numbers that say how things stand."""
    freed = sum(totals.bytes_read - totals.bytes_written for totals in snapshot.topics.values())
    rounds = sum(totals.rounds.get("done", 0) for totals in snapshot.topics.values())
    counts = snapshot.counts
    late = f"up to {duration(counts.max_overdue_ms / 1000)}" if counts.overdue else "none over its lag"
    last = ago(snapshot.ended_ms, snapshot.now_ms)
    since = f"by {counted(rounds, 'round')}, last {last}" if rounds else "no round yet"
    rows = [
        ("Logs", count(counts.logs), f"in {counted(len(snapshot.log_dirs), 'log dir')}", ""),
        ("Dirtiest that waits", percent(counts.dirtiest_ratio), str(counts.dirtiest or "nothing dirty waits"), ""),
        ("Waiting for a worker", count(counts.waiting), _workers_words(snapshot), "due" if counts.waiting else ""),
        ("Empty in", *_forecast_words(snapshot.forecast)),
        ("Overdue", count(counts.overdue), late, "due" if counts.overdue else ""),
        ("Freed", human_bytes(max(0, freed)), since, "good" if freed > 0 else ""),
        ("In quarantine", count(len(snapshot.quarantine)), "set aside", "bad" if snapshot.quarantine else ""),
        ("Memory", *_memory_words(snapshot), "bad" if snapshot.has_too_much_memory else ""),
    ]
    cells = [
        el("div", el("dt", name), el("dd", el("b", number), el("small", words)), class_=f"tile {kind}".strip())
        for name, number, words, kind in rows
    ]
    return el("section", el("dl", cells, class_="tiles"), id="tiles", data_live=True, aria_label="Numbers")


def _forecast_words(forecast: Forecast) -> tuple[str, str, str]:
    due = f"{count(forecast.due)} due, {human_bytes(forecast.left_bytes)} to read"
    if not forecast.due:
        return "-", "nothing is due", ""
    if forecast.is_growing:
        return "growing", f"{due}; more arrives than is cleaned", "bad"
    if forecast.about_seconds is None:
        return "?", f"{due}; no rate is known yet", ""
    return f"about {duration(forecast.about_seconds)}", due, ""


def _memory_words(snapshot: ServiceSnapshot) -> tuple[str, str]:
    has, needs = snapshot.anonymous_bytes, snapshot.needed_bytes
    return "?" if has is None else human_bytes(
        has
    ), "" if needs is None else f"{human_bytes(needs)} are the most it needs"


def _workers_words(snapshot: ServiceSnapshot) -> str:
    busy = sum(worker.partition is not None for worker in snapshot.workers)
    return f"{busy} of {counted(len(snapshot.workers), 'worker')} busy"


def now(snapshot: ServiceSnapshot) -> Markup:
    """Return what is being cleaned; when nothing is, the log that would be next, or the dirtiest."""
    busy = [worker for worker in snapshot.workers if worker.partition is not None]
    views = {(view.partition, view.log_dir): view for view in snapshot.logs}
    cards = [_work(snapshot, worker, views, is_first=number == 0) for number, worker in enumerate(busy)]
    idle = len(snapshot.workers) - len(busy)
    note = el("p", f"{counted(idle, 'worker')} waiting.", class_="soft") if busy and idle else None
    title = "Being cleaned" if busy else "Nothing is being cleaned"
    return el("section", el("h2", title), cards or _next(snapshot), note, id="now", data_live=True, class_="card")


def _next(snapshot: ServiceSnapshot) -> Markup:
    drawn = [view for view in snapshot.logs if view.sections is not None and view.verdict is not None]
    if not drawn:
        return el("p", "No log could be looked at yet.", class_="soft")
    view = min(drawn, key=lambda v: (v.verdict.place or len(drawn) + 1 if v.verdict else 0, -(v.ratio or 0.0)))
    is_next = view.verdict is not None and view.verdict.place == 1
    words = "Next is " if is_next else "Nothing is due; the dirtiest log is "
    return el("div", el("p", words, log_link(view.partition, view.log_dir)), anatomy(view), legend(view), class_="work")


def _work(
    snapshot: ServiceSnapshot,
    worker: WorkerView,
    views: dict[tuple[TopicPartition, str], LogView],
    *,
    is_first: bool,
) -> Markup:
    partition, log_dir = worker.partition, worker.log_dir or ""
    if partition is None:
        raise ValueError(f"{worker.name} waits")
    view = views.get((partition, log_dir))
    part = min(1.0, worker.done_bytes / worker.total_bytes) if worker.total_bytes else 0.0
    phase = "stopping" if worker.is_stopping else _PHASE_WORDS.get(worker.phase, worker.phase)
    left = "" if worker.remaining_seconds is None else f"about {duration(worker.remaining_seconds)} left"
    done = f"{human_bytes(worker.done_bytes)} of {human_bytes(worker.total_bytes)}" if worker.total_bytes else ""
    return el(
        "article",
        el(
            "p",
            log_link(partition, log_dir),
            el("span", phase, class_="phase"),
            el("b", percent(part), class_="percent"),
            el("span", left, class_="left"),
            class_="work-head",
        ),
        _steps(worker),
        anatomy(view, worker) if view else bar(part, "work", f"{percent(part)} done"),
        el(
            "p",
            " · ".join(filter(None, (done, f"{worker.name}, since {_since(worker, snapshot)}", log_dir))),
            class_="soft",
        ),
        legend(view) if is_first and view else None,
        class_="work",
    )


def _since(worker: WorkerView, snapshot: ServiceSnapshot) -> str:
    return duration(max(0.0, float((snapshot.now_ms - worker.since_ms) // 1000)))


def _steps(worker: WorkerView) -> Markup:
    names = [*PHASES[:3], "retention", "close"] if worker.phase == "retention" else [*PHASES]
    at = names.index(worker.phase) if worker.phase in names else -1
    steps = []
    for number, name in enumerate(names):
        kind = "done" if number < at else "current" if number == at else None
        steps.append(el("li", name, class_=kind, aria_current="step" if number == at else None))
    return el("ol", steps, class_="steps", aria_label="Phases of a round")


def legend(view: LogView) -> Markup | None:
    """Return what the parts of a drawing are, with this log's numbers."""
    sections = view.sections
    if sections is None:
        return None
    bound = view.verdict.cleanable.bounded_by if view.verdict else "the log's bounds"
    rows = [
        ("clean", "Clean section, the tail", sections.clean_bytes, "cleaned before: the last value of each key"),
        ("dirty", "Dirty section, the head", sections.dirty_bytes, "written since, from the cleaner point on"),
        ("young", "Held back", sections.uncleanable_bytes, f"not cleaned yet because of {bound}"),
        ("active", "Active segment", sections.active_bytes, "still written to, never cleaned"),
    ]
    items = [
        el("div", el("dt", el("i", class_=f"swatch {kind}"), name), el("dd", el("b", human_bytes(weight)), " ", words))
        for kind, name, weight, words in rows
        if weight or kind in ("clean", "dirty")
    ]
    old = el(
        "div",
        el("dt", el("i", class_="swatch old"), "Past delete retention"),
        el("dd", "below that point tombstones may go"),
    )
    return el("dl", items, old if sections.delete_retention_bytes else None, class_="legend")


def waiting(snapshot: ServiceSnapshot) -> Markup:
    """Return how many logs wait for which reason, each leading to those logs."""
    said = {key: said_of_standing(key) for key in snapshot.counts.standings}
    counts = {key: many for key, many in snapshot.counts.standings.items() if said[key].tone is not Tone.WORK}
    order = {tone: number for number, tone in enumerate(Tone)}
    rows = sorted(counts.items(), key=lambda row: (order[said[row[0]].tone], -row[1]))
    words = ", ".join(f"{count(many)} {said[key].word}" for key, many in rows)
    drawn = stack([(said[key].tone.value, many, said[key].word) for key, many in rows], words)
    return el(
        "section",
        el("h2", "Why the others wait"),
        (drawn, el("ul", _reasons(rows, said), class_="reasons")) if rows else el("p", "No log waits.", class_="soft"),
        id="waiting",
        data_live=True,
        class_="card",
    )


def _reasons(rows: list[tuple[str, int]], said: dict[str, Label]) -> Iterator[Markup]:
    for key, many in rows:
        link = f"/?{urlencode({'reason': key})}#logs"
        what = said[key]
        yield el(
            "li",
            el("a", el("b", count(many)), " ", what.word, href=link, class_=f"chip tone-{what.tone.value}"),
            el("span", what.meaning, class_="soft"),
        )
