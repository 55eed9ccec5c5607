"""What `plan` and `explain LOG_DIR` say of a partition, explained: what it means, whose setting, what to type."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from cleaner.app.plan_report import PlanEntry, Why
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import duration
from cleaner.present.formatting import moment
from cleaner.present.meanings import (
    BAD_SETTING,
    BOUNDS,
    LOCKED,
    NEEDS_RECOVERY,
    NOT_COMPACTED,
    NOTHING_DIRTY,
    ONLY_BY_DEFAULT,
    RATIO_SETTINGS,
    UNREADABLE,
    Explanation,
    due_by,
    under_ratio,
)

_BROKER = "--bootstrap-server localhost:9092"


def explain_entry(entry: PlanEntry, log_dir: Path, options: str = "") -> Explanation:
    """
    Explain one partition.

    Args:
        entry: what there is to see of it.
        log_dir: as the next command names it.
        options: where settings came from, as the next command has to be told too.
    """
    place, name = quote(str(log_dir)), quote(entry.partition)
    clean = f"cleaner clean {place} {name}{options}"
    topic = TopicPartition.parse(entry.partition).topic
    match entry.why:
        case Why.BAD_SETTING:
            check = (f"cleaner config check --log-dir {place}{options}", "every mistake in the settings")
            return Explanation(BAD_SETTING, (), (check,))
        case Why.UNREADABLE:
            what = "what keeps it from being read, and all that is damaged there"
            check = (f"cleaner check {quote(str(log_dir / entry.partition))}", what)
            return Explanation(UNREADABLE, (), (check,))
        case Why.NOT_COMPACTED:
            setting = quote(f"{topic}:cleanup.policy=compact")
            return Explanation(
                NOT_COMPACTED,
                ("cleanup.policy",),
                ((f"{clean} --set {setting}", "if it is meant to be compacted: old values are gone then"),),
            )
        case Why.POLICY_NOT_TRUSTED:
            return Explanation(ONLY_BY_DEFAULT, ("cleanup.policy",), ((clean, "confirm it by naming the partition"),))
        case Why.NEEDS_RECOVERY:
            return Explanation(NEEDS_RECOVERY, (), ((f"cleaner recover {place}{options}", "recover it now"),))
        case Why.LOCKED:
            return Explanation(LOCKED, (), ((f"fuser -v {place}/.lock", "who has it open"),))
        case Why.NO_HIGH_WATERMARK:
            return Explanation(
                "replication-offset-checkpoint has no line for it, so nothing counts as replicated.",
                (),
                ((f"{clean} --high-watermark end", "if this log is all there is"),),
            )
        case Why.NOTHING_TO_CLEAN:
            return _of_bound(entry, clean, topic)
        case Why.UNDER_RATIO:
            in_ms = None if entry.overdue_at_ms is None else entry.overdue_at_ms - entry.now_ms
            meaning = under_ratio(entry.ratio, _min_ratio(entry), in_ms)
            return Explanation(meaning, RATIO_SETTINGS, ((clean, "clean it all the same: whoever names it may"),))
    by = due_by(entry.ratio, _min_ratio(entry), entry.overdue_ms)
    return _of_rounds(entry, f"It is due: {by}.", clean)


def _of_rounds(entry: PlanEntry, meaning: str, clean: str) -> Explanation:
    """Explain what is due: it may take several rounds."""
    rounds = entry.rounds
    if rounds is None or rounds.count <= 1:
        return Explanation(meaning, RATIO_SETTINGS, ((clean, "clean it now"),))
    key = "log.cleaner.dedupe.buffer.size"
    commands = [(f"{clean} --rounds all", "clean all of it, round by round")]
    if rounds.one_round_buffer_size is not None:
        buffer = f"{clean} --set {key}={rounds.one_round_buffer_size}"
        commands.append((buffer, "clean it in one round, if there is so much memory"))
    meaning += f" With this buffer a round takes {rounds.most_keys} keys, and there may be {rounds.keys}."
    return Explanation(meaning, (key, *RATIO_SETTINGS), tuple(commands))


def _of_bound(entry: PlanEntry, clean: str, topic: str) -> Explanation:
    """Explain why nothing is cleanable."""
    meaning, settings = BOUNDS.get(entry.bounded_by, NOTHING_DIRTY)
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
            return Explanation(meaning, settings, ((without, "clean it all the same, if nobody relies on the lag"),))
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
