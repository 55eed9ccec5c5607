"""The rest of the page: log dirs, quarantine, retries, jobs, the last rounds, the settings."""

from __future__ import annotations

from collections.abc import Sequence

from cleaner.base.sizes import human_bytes
from cleaner.daemon.snapshot import JobView, LogDirView, RoundView, ServiceSnapshot
from cleaner.policy.selection_context import DirCondition
from cleaner.present.html.drawing import bar, round_bar
from cleaner.present.html.markup import Markup, el
from cleaner.present.html.page_now import log_link, when
from cleaner.present.reasons import Tone
from cleaner.present.text import count, counted, duration, percent

MOST_ROUNDS = 12
MOST_ROWS = 100
# From here on a disk is drawn as one that is filling up: cleaning itself needs room.
NEARLY_FULL = 0.9

_DIR_TONES = {
    DirCondition.ONLINE: Tone.GOOD,
    DirCondition.LOCKED: Tone.HELD,
    DirCondition.NEEDS_RECOVERY: Tone.BAD,
    DirCondition.OFFLINE: Tone.BAD,
}
_RESULT_TONES = {
    "done": Tone.GOOD,
    "nothing": Tone.QUIET,
    "retry": Tone.HELD,
    "locked": Tone.HELD,
    "aborted": Tone.HELD,
    "quarantined": Tone.BAD,
    "offline": Tone.BAD,
}
_JOB_TONES = {"queued": Tone.DUE, "running": Tone.WORK, "done": Tone.GOOD, "failed": Tone.BAD, "cancelled": Tone.QUIET}


def table(caption: str, headings: Sequence[str], rows: Sequence[Markup], kind: str) -> Markup:
    """Return a table that says what it is."""
    head = el("thead", el("tr", [el("th", heading, scope="col") for heading in headings]))
    return el("table", el("caption", caption), head, el("tbody", rows), class_=kind)


def _chip(words: str, tone: Tone) -> Markup:
    return el("span", words, class_=f"chip tone-{tone.value}")


def _cell(label: str, *content: object, kind: str = "") -> Markup:
    """Return a cell that brings its heading along, for screens too narrow for columns."""
    return el("td", *content, data_label=label, class_=kind or None)


def log_dirs(snapshot: ServiceSnapshot) -> Markup:
    """Return every log dir with its condition and room."""
    cards = [_log_dir(view, snapshot.now_ms) for view in snapshot.log_dirs]
    return el("section", el("h2", "Log dirs"), el("ul", cards, class_="dirs"), id="dirs", data_live=True, class_="card")


def _log_dir(view: LogDirView, now_ms: int) -> Markup:
    facts = [counted(view.partitions, "log")]
    if view.workers:
        facts.append(f"{counted(view.workers, 'worker')} at work")
    if view.uncleanable_partitions:
        facts.append(f"{count(view.uncleanable_partitions)} in quarantine ({human_bytes(view.uncleanable_bytes)})")
    if view.beside_writer:
        facts.append("beside a writer")
    room: object = el("p", "room unknown", class_="soft")
    if view.free_bytes is not None and view.total_bytes:
        used = 1 - view.free_bytes / view.total_bytes
        words = f"{human_bytes(view.free_bytes)} free of {human_bytes(view.total_bytes)}"
        room = (bar(used, "full" if used > NEARLY_FULL else "used", f"{percent(used)} used, {words}"), el("p", words))
    since = ("since ", when(view.since_ms, now_ms)) if view.condition is not DirCondition.ONLINE else None
    return el(
        "li",
        el("p", el("b", view.path, class_="path"), _chip(view.condition.value, _DIR_TONES[view.condition])),
        el("p", since, f": {view.detail}" if since and view.detail else view.detail, class_="detail")
        if since or view.detail
        else None,
        room,
        el("p", " · ".join(facts), " · looked at ", when(view.looked_at_ms, now_ms), class_="soft"),
    )


def quarantine(snapshot: ServiceSnapshot) -> Markup:
    """Return the logs set aside."""
    rows = [
        el(
            "tr",
            el(
                "th",
                log_link(entry.topic_partition, entry.log_dir),
                el("small", entry.log_dir, class_="soft dir"),
                scope="row",
            ),
            _cell(
                "Reason",
                entry.reason,
                el("small", _where(entry.file, entry.position), class_="soft path") if entry.file else None,
            ),
            _cell("Kind", entry.kind),
            _cell("Since", when(entry.since_ms, snapshot.now_ms)),
        )
        for entry in snapshot.quarantine[:MOST_ROWS]
    ]
    hint = el("p", "When the cause is gone: ", el("code", "cleaner release TOPIC-PARTITION"), class_="soft")
    caption = "Set aside after an error; nothing of them is touched until somebody releases them"
    content = (el("h2", "Quarantine"), table(caption, ("Log", "Reason", "Kind", "Since"), rows, "plain"), hint)
    return _section("quarantine", content if rows else ())


def _section(name: str, content: object) -> Markup:
    """Return a section that may be empty, and keeps its place for when it is not."""
    return el("section", content, id=name, data_live=True, class_="card" if content else None, hidden=not content)


def _where(file: str, position: int | None) -> str:
    return file if position is None else f"{file} at byte {count(position)}"


def retries(snapshot: ServiceSnapshot) -> Markup:
    """Return the logs that failed last time."""
    rows = [
        el(
            "tr",
            el("th", log_link(partition), scope="row"),
            _cell("Cause", retry.cause),
            _cell("Failures in a row", count(retry.failures), kind="number"),
            _cell("Again", when(retry.not_before_ms, snapshot.now_ms)),
        )
        for partition, retry in sorted(snapshot.retries.items())[:MOST_ROWS]
    ]
    caption = "Failed for a reason that may pass; the delay doubles with each failure"
    headings = ("Log", "Cause", "Failures in a row", "Again")
    return _section("retries", (el("h2", "Tried again later"), table(caption, headings, rows, "plain")) if rows else ())


def jobs(snapshot: ServiceSnapshot) -> Markup:
    """Return what was asked for with `cleaner now`."""
    rows = [_job(job, snapshot.now_ms) for job in snapshot.jobs[:MOST_ROWS]]
    headings = ("Log", "Job", "State", "Progress", "Asked")
    content = (el("h2", "Jobs"), table("Asked for with cleaner now, newest first", headings, rows, "plain"))
    return _section("jobs", content if rows else ())


def _job(job: JobView, now_ms: int) -> Markup:
    return el(
        "tr",
        el("th", log_link(job.partition), scope="row"),
        _cell("Job", f"#{job.id}"),
        _cell(
            "State", _chip(job.state, _JOB_TONES.get(job.state, Tone.QUIET)), " ", el("span", job.detail, class_="soft")
        ),
        _cell("Progress", bar(job.progress, "work", f"{percent(job.progress)} done"), kind="drawn-small"),
        _cell("Asked", when(job.asked_ms, now_ms), f" by user {job.asked_by}"),
    )


def rounds(snapshot: ServiceSnapshot, shown: Sequence[RoundView] | None = None) -> Markup:
    """Return the last rounds with what they freed; `shown`: only these."""
    views = list(snapshot.rounds if shown is None else shown)[:MOST_ROUNDS]
    most = max((max(view.bytes_read, view.bytes_written) for view in views), default=0)
    rows = [_round(view, most, snapshot.now_ms) for view in views]
    headings = ("Log", "Result", "Kept and freed", "Freed", "Took", "When")
    body = (
        table("Newest first; all bars have one scale", headings, rows, "plain rounds")
        if rows
        else (el("p", "None yet.", class_="soft"))
    )
    return el("section", el("h2", "Last rounds"), body, id="rounds", data_live=True, class_="card")  # fmt: skip


def _round(view: RoundView, most: int, now_ms: int) -> Markup:
    removed = ", ".join(f"{count(many)} {reason}" for reason, many in view.removed.items() if many)
    has_copied = bool(view.bytes_read)
    freed = human_bytes(max(0, view.bytes_freed)) if has_copied else "-"
    part = f" ({percent(max(0, view.bytes_freed) / view.bytes_read)})" if has_copied else ""
    return el(
        "tr",
        el("th", log_link(view.partition, view.log_dir), scope="row"),
        _cell(
            "Result",
            _chip(view.result, _RESULT_TONES.get(view.result, Tone.QUIET)),
            el("small", view.detail, class_="soft") if view.detail else None,
        ),
        _cell(
            "Kept and freed",
            round_bar(view, most) if has_copied else None,
            el("small", removed, class_="soft") if removed and has_copied else None,
            kind="drawn-small",
        ),
        _cell("Freed", freed, el("span", part, class_="soft"), kind="number"),
        _cell("Took", duration(view.seconds), kind="number"),
        _cell("When", when(view.ended_ms, now_ms)),
    )


def settings(snapshot: ServiceSnapshot) -> Markup:
    """Return the settings in force, folded away."""
    config = snapshot.config
    rows = [
        el("tr", el("th", el("code", key), scope="row"), _cell("Value", el("code", value)), _cell("From", origin))
        for key, value, origin in config.values
    ]
    where = ("from ", el("span", config.file, class_="path")) if config.file else "without a file"
    return el(
        "section",
        el(
            "details",
            el("summary", el("h2", "Settings in force"), el("span", where, class_="soft")),
            table(
                "Every key with its value and where it comes from; those of topics as topics have them that nobody "
                "speaks of",
                ("Key", "Value", "From"),
                rows,
                "plain",
            ),
            id="settings-fold",
        ),
        id="settings",
        data_live=True,
        class_="card",
    )
