"""
Explains why a log is, or is not, cleaned now: the meaning, the settings behind it, the next commands.

The words of a reason are a row of `policy/reasons.py`; here its placeholders are filled with the data of one log, from
a daemon (`explain_log`) or from a look at a log dir (`explain_entry`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from cleaner.app.plan_report import PlanEntry
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import duration
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.daemon.snapshot import LogView, ServiceSnapshot
from cleaner.errors import RecordAboveLimitError
from cleaner.policy.cleaning_status import CleaningStatus
from cleaner.policy.reasons import RATIO_SETTINGS, Commands, Reason
from cleaner.present.text import ago, moment
from cleaner.state.quarantine import QuarantinedLog

PLAN_CODES: Mapping[Reason, str] = {
    Reason.LOG_DIR_NEEDS_RECOVERY: "needs_recovery",
    Reason.LOG_DIR_LOCKED: "locked",
}
"""Codes that have other names in `plan`: docs/json.md promises these to programs."""

# By the bound that ends the cleanable range (`Cleanable.bounded_by`): its meaning, and the settings behind it.
BOUNDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "active segment": (
        "Only the active segment has new records, and it is never cleaned: they wait until the writer of the "
        "log rolls it.",
        ("segment.ms", "segment.bytes"),
    ),
    "high watermark": (
        "All new records are above the high watermark: they do not count as replicated yet.",
        (),
    ),
    "last stable offset": (
        "All new records are behind the start of an open transaction: whether they count is not decided yet.",
        (),
    ),
    "min.compaction.lag.ms": ("All new records are younger than the minimum lag.", ("min.compaction.lag.ms",)),
}
_NOTHING_DIRTY: tuple[str, tuple[str, ...]] = ("There is nothing dirty.", ())
_BROKER = "--bootstrap-server localhost:9092"

# What the label next to the line already says.
_IN_LABEL = re.compile(r"(next|number \d+ in the queue|in progress|nothing to clean|quarantined|paused)[:,] ")


@dataclass(frozen=True)
class Explanation:
    """
    Why a log is in its state.

    Attributes:
        meaning: one or two sentences.
        settings: keys of the settings behind it, the deciding one first.
        commands: possible next commands, each with its effect.
    """

    meaning: str
    settings: tuple[str, ...] = ()
    commands: Commands = ()


def line_beside_label(view: LogView) -> str:
    """Return a log's own line without what the label of its reason says."""
    if view.error:
        return view.error
    return _IN_LABEL.sub("", view.why, count=1) if view.verdict else view.why


def explain_log(view: LogView, shown: ServiceSnapshot) -> Explanation:
    """
    Explain one log of a daemon.

    Args:
        view: the log.
        shown: the daemon it belongs to, with its settings.
    """
    reason, verdict = view.reason, view.verdict
    words = reason.words
    places = {"name": str(view.partition), "log_dir": quote(view.log_dir)}
    meaning, settings, commands = words.meaning, words.settings, words.commands
    if reason is Reason.NOTHING_TO_CLEAN and verdict is not None:
        meaning, settings = BOUNDS.get(verdict.cleanable.bounded_by, _NOTHING_DIRTY)
    elif reason is Reason.UNDER_RATIO and verdict is not None:
        meaning = _under_ratio(verdict.cleanable.ratio, verdict.min_ratio, verdict.overdue_in_ms)
    elif reason is Reason.PAUSED:
        paused = {words.partition(" ")[0] for words in shown.pauses}  # the name is followed by the number of pauses
        scopes = [scope for scope in (str(view.partition), view.partition.topic) if scope in paused]
        ((command, what),) = commands
        commands = tuple((command.format(name=scope), what) for scope in scopes or [str(view.partition)])
    else:
        meaning = meaning.format(**_figures(view, verdict, shown))
        entry = _quarantined(view, shown)
        if entry is not None and entry.kind == RecordAboveLimitError.__name__:
            settings = ("max.decompressed.message.bytes",)
            meaning += " No byte is damaged: raise the setting for the topic, then release the log."
    return Explanation(meaning, settings, tuple((command.format(**places), what) for command, what in commands))


def _quarantined(view: LogView, shown: ServiceSnapshot) -> QuarantinedLog | None:
    """Return the log's entry in the quarantine; None: it is not there."""
    return next((entry for entry in shown.quarantine if entry.topic_partition == view.partition), None)


def _figures(view: LogView, verdict: CleaningStatus | None, shown: ServiceSnapshot) -> dict[str, object]:
    """Return the values for the placeholders of a meaning."""
    quarantined = _quarantined(view, shown)
    where = ""
    if quarantined is not None and quarantined.file:
        where = f" ({quarantined.file}{'' if quarantined.position is None else f' at byte {quarantined.position}'})"
    figures: dict[str, object] = {
        "since": "" if quarantined is None else f" {ago(quarantined.since_ms, shown.now_ms)}",
        "where": where,
        "opens": "" if shown.opens_at_ms is None else f" The next one opens {moment(shown.opens_at_ms)}.",
    }
    if verdict is not None:
        overdue_ms = verdict.overdue_ms if verdict.reason is Reason.OVERDUE else 0
        figures["by"] = _due_by(verdict.cleanable.ratio, verdict.min_ratio, overdue_ms)
        figures["place"] = "the next one" if verdict.place == 1 else f"number {verdict.place} in the queue"
        figures["offset"] = verdict.cleanable.first_dirty_offset
    return figures


def explain_entry(entry: PlanEntry, log_dir: Path, options: str = "") -> Explanation:
    """
    Explain one partition that was looked at without a daemon.

    Args:
        entry: the result of the look.
        log_dir: as for the next command.
        options: the sources of settings, which the next command needs too.
    """
    place, name = quote(str(log_dir)), quote(entry.partition)
    clean = f"cleaner clean {place} {name}{options}"
    topic = TopicPartition.parse(entry.partition).topic
    if entry.why is Reason.NOTHING_TO_CLEAN:
        return _of_bound(entry, clean, topic)
    if entry.why.is_due:
        by = _due_by(entry.ratio, _min_ratio(entry), entry.overdue_ms)
        return _of_rounds(entry, f"It is due: {by}.", clean)
    if entry.why is Reason.HORIZON_PASSED:
        meaning = "Nothing in it is dirty, but the time of tombstones, markers or records in it has come."
        return Explanation(meaning, entry.why.words.settings, ((clean, "remove them now"),))
    meaning = entry.why.words.meaning
    if entry.why is Reason.UNDER_RATIO:
        in_ms = None if entry.overdue_at_ms is None else entry.overdue_at_ms - entry.now_ms
        meaning = _under_ratio(entry.ratio, _min_ratio(entry), in_ms)
    # A daemon's settings have no effect here.
    settings = tuple(key for key in entry.why.words.settings if key in TOPIC_SETTINGS)
    compact = f"{clean} --set {quote(f'{topic}:cleanup.policy=compact')}"
    damage = "why it cannot be read, and all damage in it"
    commands = {
        Reason.BAD_SETTING: (f"cleaner config check --log-dir {place}{options}", "every mistake in the settings"),
        Reason.UNREADABLE: (f"cleaner check {quote(str(log_dir / entry.partition))}", damage),
        Reason.NOT_COMPACTED: (compact, "if it should be compacted: this deletes old values"),
        Reason.POLICY_NOT_TRUSTED: (clean, "confirm it by naming the partition"),
        Reason.LOG_DIR_NEEDS_RECOVERY: (f"cleaner recover {place}{options}", "recover it now"),
        Reason.LOG_DIR_LOCKED: (f"fuser -v {place}/.lock", "who has it open"),
        Reason.NO_HIGH_WATERMARK: (f"{clean} --high-watermark end", "if this log is all there is"),
        Reason.UNDER_RATIO: (clean, "clean it anyway, because it is named"),
        Reason.UNFINISHED_SWAP: (clean, "settle it, and clean what is dirty then"),
    }
    return Explanation(meaning, settings, (commands[entry.why],))


def _under_ratio(ratio: float, min_ratio: float, overdue_in_ms: int | None) -> str:
    """Say that too little is dirty, and when the log becomes due whatever its ratio (None: never)."""
    words = f"{ratio:.1%} of the bytes that a round would read are dirty; a round begins above {min_ratio:.1%}."
    if overdue_in_ms is not None:
        words += f" In {duration(overdue_in_ms)} it is due by its age, whatever its ratio."
    return words


def _due_by(ratio: float, min_ratio: float, overdue_ms: int) -> str:
    """Say why a log is due: its age (`overdue_ms` above 0) or its ratio."""
    if overdue_ms:
        return f"it is over max.compaction.lag.ms by {duration(overdue_ms)}"
    return f"{ratio:.1%} of it is dirty, more than {min_ratio:.1%}"


def _of_rounds(entry: PlanEntry, meaning: str, clean: str) -> Explanation:
    """Explain a due log: it may take several rounds."""
    rounds = entry.rounds
    if rounds is None or rounds.count <= 1:
        return Explanation(meaning, RATIO_SETTINGS, ((clean, "clean it now"),))
    key = "log.cleaner.dedupe.buffer.size"
    commands = [(f"{clean} --rounds all", "clean all of it, round by round")]
    if entry.survivor:
        commands = []  # one round compares all records of a key
    if rounds.one_round_buffer_size is not None:
        buffer = f"{clean} --set {key}={rounds.one_round_buffer_size}"
        commands.append((buffer, "clean it in one round, if there is enough memory"))
    meaning += f" With this buffer a round takes {rounds.most_keys} keys, and there may be {rounds.keys}."
    return Explanation(meaning, (key, *RATIO_SETTINGS), tuple(commands))


def _of_bound(entry: PlanEntry, clean: str, topic: str) -> Explanation:
    """Explain why nothing is cleanable."""
    meaning, settings = BOUNDS.get(entry.bounded_by, _NOTHING_DIRTY)
    match entry.bounded_by:
        case "active segment":
            roll = f"kafka-configs.sh {_BROKER} --alter --topic {quote(topic)} --add-config segment.ms=3600000"
            return Explanation(meaning, settings, ((roll, "where a broker runs: segments of an hour at most"),))
        case "high watermark":
            all_of_it = (f"{clean} --high-watermark end", "if this log is all there is")
            return Explanation(meaning, settings, (all_of_it,))
        case "min.compaction.lag.ms" if entry.lag_ends_ms is not None:
            left = duration(entry.lag_ends_ms - entry.now_ms)
            meaning += f" It is old enough in {left}, at {moment(entry.lag_ends_ms)}."
            without = f"{clean} --set {quote(f'{topic}:min.compaction.lag.ms=0')}"
            return Explanation(meaning, settings, ((without, "clean it anyway, if no consumer relies on the lag"),))
        case "last stable offset" if entry.undecided is not None:
            open_for = duration(max(0, entry.now_ms - entry.undecided.since_ms))
            meaning += (
                f" Producer {entry.undecided.producer_id} (epoch {entry.undecided.producer_epoch}) began it at offset "
                f"{entry.undecided.first_offset}, {open_for} ago."
            )
            partition = TopicPartition.parse(entry.partition).partition
            abort = (
                f"kafka-transactions.sh {_BROKER} abort --topic {quote(topic)} --partition {partition} "
                f"--start-offset {entry.undecided.first_offset}"
            )
            return Explanation(meaning, settings, ((abort, "where a broker runs: ends a transaction that hangs"),))
    return Explanation(meaning, settings)


def _min_ratio(entry: PlanEntry) -> float:
    setting = entry.setting("min.cleanable.dirty.ratio")
    return float(setting.value) if setting is not None else 0.5
