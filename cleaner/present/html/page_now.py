"""The words and numbers of the page: the daemon's state, what is being cleaned, why other logs wait."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from cleaner.base.sizes import duration, human_bytes
from cleaner.daemon.snapshot import Forecast, LogDirView, LogView, ServiceSnapshot, WorkerView
from cleaner.policy.reasons import Reason, Tone
from cleaner.present.problems import problems_of
from cleaner.present.text import ago, count, counted, percent, until
from cleaner.state.quarantine import QuarantinedLog

PHASES = ("load", "map", "copy", "close")
_PHASE_WORDS = {
    "load": "loading the log",
    "map": "building the offset map",
    "copy": "copying what stays",
    "retention": "removing expired segments",
    "close": "finishing",
}


def headline(snapshot: ServiceSnapshot) -> tuple[Tone, str]:
    """Say what the daemon does, in a few words, and how many problems it has."""
    tone, words = _doing(snapshot)
    wrong = problems_of(snapshot)
    # A stuck daemon has its own words; one that starts or stops may have problems for the moment.
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
        return Tone.HELD, f"Waiting for its window, {until(snapshot.opens_at_ms, snapshot.now_ms)}"
    if snapshot.counts.waiting:
        return Tone.DUE, f"{counted(snapshot.counts.waiting, 'log')} due"
    return Tone.GOOD, "All clean enough"


def tiles(snapshot: ServiceSnapshot) -> list[tuple[str, str, str, str]]:
    """Return the summary numbers: name, number, words, and tone."""
    freed = sum(totals.bytes_read - totals.bytes_written for totals in snapshot.topics.values())
    rounds = sum(totals.rounds.get("done", 0) for totals in snapshot.topics.values())
    counts = snapshot.counts
    late = f"up to {duration(counts.max_overdue_ms)}" if counts.overdue else "none over its lag"
    last = ago(snapshot.ended_ms, snapshot.now_ms)
    since = f"by {counted(rounds, 'round')}, last {last}" if rounds else "no round yet"
    return [
        ("Logs", count(counts.logs), f"in {counted(len(snapshot.log_dirs), 'log dir')}", ""),
        ("Dirtiest that waits", percent(counts.dirtiest_ratio), str(counts.dirtiest or "nothing dirty waits"), ""),
        ("Waiting for a worker", count(counts.waiting), _workers_words(snapshot), "due" if counts.waiting else ""),
        ("Empty in", *_forecast_words(snapshot.forecast)),
        ("Overdue", count(counts.overdue), late, "due" if counts.overdue else ""),
        ("Freed", human_bytes(max(0, freed)), since, "good" if freed > 0 else ""),
        (
            "In quarantine",
            count(len(snapshot.quarantine)),
            "not cleaned any more",
            "bad" if snapshot.quarantine else "",
        ),
        ("Memory", *_memory_words(snapshot), "bad" if snapshot.has_too_much_memory else ""),
    ]


def _forecast_words(forecast: Forecast) -> tuple[str, str, str]:
    due = f"{count(forecast.due)} due, {human_bytes(forecast.left_bytes)} to read"
    if not forecast.due:
        return "-", "nothing is due", ""
    if forecast.is_growing:
        return "growing", f"{due}; more arrives than is cleaned", "bad"
    if forecast.about_seconds is None:
        return "?", f"{due}; no rate is known yet", ""
    return f"about {duration(forecast.about_seconds * 1000)}", due, ""


def _memory_words(snapshot: ServiceSnapshot) -> tuple[str, str]:
    has, needs = snapshot.anonymous_bytes, snapshot.needed_bytes
    return "?" if has is None else human_bytes(
        has
    ), "" if needs is None else f"{human_bytes(needs)} is the most it needs"


def _workers_words(snapshot: ServiceSnapshot) -> str:
    busy = sum(worker.partition is not None for worker in snapshot.workers)
    return f"{busy} of {counted(len(snapshot.workers), 'worker')} busy"


def next_log(snapshot: ServiceSnapshot) -> LogView | None:
    """Return the log that would be next, or the dirtiest; None: none could be looked at."""
    drawn = [view for view in snapshot.logs if view.sections is not None and view.verdict is not None]
    return min(
        drawn,
        key=lambda view: (view.verdict.place or len(drawn) + 1 if view.verdict else 0, -(view.ratio or 0.0)),
        default=None,
    )


def phase_words(worker: WorkerView) -> str:
    """Say what a worker does."""
    return "stopping" if worker.is_stopping else _PHASE_WORDS.get(worker.phase, worker.phase)


def steps(worker: WorkerView) -> list[tuple[str, str]]:
    """Return the phases of a round, each with whether it is done or current."""
    names = [*PHASES[:3], "retention", "close"] if worker.phase == "retention" else [*PHASES]
    at = names.index(worker.phase) if worker.phase in names else -1
    return [(name, "done" if number < at else "current" if number == at else "") for number, name in enumerate(names)]


def worker_words(worker: WorkerView, now_ms: int) -> str:
    """Say how much is done, by which worker, since when, and where."""
    done = f"{human_bytes(worker.done_bytes)} of {human_bytes(worker.total_bytes)}" if worker.total_bytes else ""
    since = duration(max(0, now_ms - worker.since_ms))
    return " · ".join(filter(None, (done, f"{worker.name}, since {since}", worker.log_dir)))


def legend(view: LogView) -> list[tuple[str, str, int, str]]:
    """Return the legend of a drawing's parts: class, name, bytes and words."""
    sections = view.sections
    if sections is None:
        return []
    bound = view.verdict.cleanable.bounded_by if view.verdict else "the log's bounds"
    rows = [
        ("clean", "Clean section, the tail", sections.clean_bytes, "cleaned before: the last value of each key"),
        ("dirty", "Dirty section, the head", sections.dirty_bytes, "written since, from the cleaner point on"),
        ("young", "Held back", sections.uncleanable_bytes, f"not cleaned yet because of {bound}"),
        ("active", "Active segment", sections.active_bytes, "still written to, never cleaned"),
    ]
    return [row for row in rows if row[2] or row[0] in ("clean", "dirty")]


@dataclass(frozen=True)
class WaitingLogs:
    """How many logs wait for one reason, where they are listed, and their position in a drawing of all (percent)."""

    many: int
    reason: Reason
    link: str
    x: float
    width: float

    @property
    def words(self) -> str:
        """The drawing in words."""
        return f"{count(self.many)} {self.reason.words.label}"


def waiting(snapshot: ServiceSnapshot) -> list[WaitingLogs]:
    """Return the reasons for which logs wait, the most important first."""
    order = {tone: number for number, tone in enumerate(Tone)}
    rows = [(key, Reason(key), many) for key, many in snapshot.counts.standings.items()]
    rows = [row for row in rows if row[1].words.tone is not Tone.WORK]
    rows.sort(key=lambda row: (order[row[1].words.tone], -row[2]))
    total = sum(many for _, _, many in rows)
    made, x = [], 0.0
    for key, label, many in rows:
        width = 100 * many / total if total else 0.0
        made.append(WaitingLogs(many, label, f"/?{urlencode({'reason': key})}#logs", x, width))
        x += width
    return made


def dir_words(view: LogDirView) -> str:
    """Say what is in a log dir."""
    facts = [counted(view.partitions, "log")]
    if view.workers:
        facts.append(f"{counted(view.workers, 'worker')} at work")
    if view.uncleanable_partitions:
        facts.append(f"{count(view.uncleanable_partitions)} in quarantine ({human_bytes(view.uncleanable_bytes)})")
    if view.beside_writer:
        facts.append("a writer is open too")
    if view.kafka:
        facts.append(f"cleaned as Kafka {view.kafka} does ({view.kafka_origin})")
    return " · ".join(facts)


def damage_place(entry: QuarantinedLog) -> str | None:
    """Say where the damage is."""
    return entry.file if entry.position is None else f"{entry.file} at byte {count(entry.position)}"
