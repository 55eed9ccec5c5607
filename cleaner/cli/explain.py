"""`cleaner explain`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import name_without_place
from cleaner.base.sizes import counted, duration, human_bytes
from cleaner.cli.arguments import (
    add_high_watermark,
    add_sampling,
    add_way_of_looking,
    sampling_of,
    settings_given,
    sources,
)
from cleaner.cli.daemon_options import (
    EXIT_CODES,
    add_daemon,
    control_of,
    options_given,
    parse_partition,
    with_options,
)
from cleaner.cli.log_page import LogPage
from cleaner.cli.logs import log_warning
from cleaner.cli.output import json_line
from cleaner.cli.plan import plan_line
from cleaner.cli.work import take_identity
from cleaner.errors import SteeringError, UsageError
from cleaner.policy.reasons import Tone
from cleaner.present.text import ago, moment
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.which_dir import why_no_log_dir

if TYPE_CHECKING:
    from cleaner.app.plan_report import PlanEntry
    from cleaner.daemon.snapshot import LogView, ServiceSnapshot

SUMMARY = "why a log is, or is not, cleaned now"

DESCRIPTION = """\
Draws one log to scale (clean and dirty section, delete retention point, first uncleanable offset, active segment)
and gives the one reason why it is next, waits or is not cleaned: what it means, the setting behind it, and what to
type next. Asks the running daemon; with a LOG_DIR it reads the log itself, as cleaner plan does, and shows the value
of each bound that limits cleaning."""

EXAMPLES = f"""\
examples:
  cleaner explain orders-0
  cleaner explain orders-0 --format json | jq .why
  cleaner explain /var/lib/kafka orders-0 --config /etc/kafka/server.properties     without a daemon

the signs of the drawing:
  =  clean, its tombstones may go       #  dirty: the next round takes it
  -  clean, its tombstones must stay     .  uncleanable for now      ~  the active segment

exit status:
  0  explained      1  the daemon has no such log, or it cannot be read
  2  usage          78  a bad setting
  {EXIT_CODES}"""

_LAG = "min.compaction.lag.ms"
_COLOURS = {Tone.BAD: "red", Tone.HELD: "yellow", Tone.QUIET: "yellow"}
"""Of a log's reason: red if an operator must act, yellow if the log is held or quiet, otherwise green."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "partitions",
        metavar="[LOG_DIR] TOPIC-PARTITION",
        nargs="+",
        help="which log; with one entry of a broker's log.dirs before it the daemon is not asked",
    )
    add_way_of_looking(parser)
    add_high_watermark(parser)
    add_sampling(parser)
    add_daemon(parser, has_config=True)


def run(arguments: argparse.Namespace) -> int:
    """Explain one log; returns the exit code."""
    *places, name = arguments.partitions
    if len(places) > 1:
        raise UsageError("one log at a time: cleaner explain [LOG_DIR] TOPIC-PARTITION")
    try:
        partition = str(parse_partition(name_without_place(name) if places else name))
    except argparse.ArgumentTypeError as error:
        raise UsageError(_why_no_partition(name) if not places and "/" in name else str(error)) from error
    if places:
        return _look(Path(places[0]), partition, arguments)
    of_settings = (arguments.sets, arguments.topics_dir, arguments.metadata_dir, arguments.as_kafka)
    if any(of_settings) or sampling_of(arguments):
        raise UsageError(
            "a daemon has its own settings: name the LOG_DIR before the partition to read the log without the daemon"
        )
    return _ask(partition, arguments)


def _why_no_partition(name: str) -> str:
    """Say what a path is that was given without a partition."""
    reason = why_no_log_dir(FileSystem(), Path(name))
    return f"{name}: {reason or 'a log dir; name one of its partitions after it, LOG_DIR TOPIC-PARTITION'}"


def _look(log_dir: Path, name: str, arguments: argparse.Namespace) -> int:
    """Look at a log without a daemon."""
    settings = sources(arguments)

    from cleaner.app.options import CallContext
    from cleaner.app.plan_log_dir import plan_log_dir

    sampling = sampling_of(arguments)
    take_identity(log_dir, stay_root=arguments.as_root, needs_kernels=sampling is not None)
    context = CallContext.of(now_ms=arguments.now, warn=log_warning)
    (entry,) = plan_log_dir(
        log_dir,
        settings,
        context,
        partitions=[name],
        high_watermark=arguments.high_watermark,
        as_if_all=True,
        sampling=sampling,
    )
    options = settings_given(arguments)
    if arguments.format == "json":
        print(plan_line(entry, log_dir, options))
    else:
        _show_entry(entry, log_dir, options)
    return entry.exit_code


def _ask(name: str, arguments: argparse.Namespace) -> int:
    """Ask the daemon for one log, in each log dir that has it."""
    from cleaner.daemon.snapshot import ServiceSnapshot

    control = control_of(arguments)
    shown = control.value(ServiceSnapshot, control.ask("status", of=[name], config=True), "snapshot")
    # A topic's name may look like a partition of another topic.
    views = [view for view in shown.logs if str(view.partition) == name]
    if not views:
        # Ask again, for the names: a mistake by the user, and rare.
        everything = control.value(ServiceSnapshot, control.ask("status"), "snapshot")
        likely = did_you_mean(name, (str(view.partition) for view in everything.logs))
        what = f"the daemon at {control.path} has no log {name}"
        raise SteeringError(what + (likely or "; cleaner status --logs all lists them"))
    for number, view in enumerate(views):
        if arguments.format == "json":
            print(json_line("explain", view))
        else:
            print("\n" if number else "", end="")
            show_log(view, shown, options_given(arguments))
    return 0


def show_log(view: LogView, shown: ServiceSnapshot, options: str) -> None:
    """Print the page of a log; for `options` see `options_given`."""
    from cleaner.present.explanations import explain_log

    page = LogPage()
    page.head(str(view.partition), view.log_dir, _facts_of_log(view, shown))
    if view.sections is not None:
        page.sections(view.sections)
    found = explain_log(view, shown)
    print()
    page.words(
        "why", f"{view.why}: {view.error}" if view.error else view.why, _COLOURS.get(view.reason.words.tone, "green")
    )
    page.words("meaning", found.meaning)
    for number, setting in enumerate(found.settings):
        page.words("" if number else "settings", setting + _value(setting, view, shown))
    for name, words in _work(view, shown):
        page.words(name, words)
    for warning in view.warnings:
        page.words("warning", warning, "yellow")
    page.commands((with_options(command, options), what) for command, what in found.commands)


def _facts_of_log(view: LogView, shown: ServiceSnapshot) -> Iterator[str]:
    yield f"cleanup.policy={view.policy} ({view.policy_origin})"
    yield counted(view.segments, "segment")
    if view.sections is not None:
        yield human_bytes(view.sections.total_bytes)
    if view.last_round_ms is not None:
        yield f"last round {ago(view.last_round_ms, shown.now_ms)}"


def _value(setting: str, view: LogView, shown: ServiceSnapshot) -> str:
    """Return a setting's value, of a topic setting the value for this topic; empty if unknown."""
    from cleaner.config.table import TOPIC_SETTINGS

    own = [(each.value, each.origin) for each in view.settings if each.key == setting]
    of_process = () if setting in TOPIC_SETTINGS else shown.config.values
    found = own or [(value, origin) for key, value, origin in of_process if key == setting]
    return f"={found[0][0]} ({found[0][1]})" if found else ""


def _work(view: LogView, shown: ServiceSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the current work on a log, and the result of its last round."""
    for worker in shown.workers:
        if worker.partition == view.partition and worker.log_dir in (None, view.log_dir):
            part = f" {worker.done_bytes / worker.total_bytes:.0%}" if worker.total_bytes > 0 else ""
            yield "worker", f"{worker.name}: {worker.phase}{part}, for {duration(shown.now_ms - worker.since_ms)}"
    for ended in shown.rounds:
        if (ended.partition, ended.log_dir) == (view.partition, view.log_dir):
            freed = f", freed {human_bytes(ended.bytes_freed)}" if ended.bytes_freed > 0 else ""
            detail = f": {ended.detail}" if ended.detail else ""
            yield "last round", f"{ago(ended.ended_ms, shown.now_ms)}, {ended.result}{freed}{detail}"
            return


def _show_entry(entry: PlanEntry, log_dir: Path, options: str) -> None:
    """Print the page of a partition; for `options` see `explain_entry`."""
    from cleaner.present.explanations import explain_entry

    page = LogPage()
    page.head(entry.partition, str(log_dir), _facts_of_entry(entry))
    if entry.sections is not None:
        page.sections(entry.sections)
    if entry.bounds:
        page.table(("bound", "offset", "figure"), _bounds(entry), left=frozenset((0, 2)))
    if entry.settings:
        settings = [(setting.key, setting.value, setting.origin) for setting in entry.settings]
        page.table(("setting", "value", "from"), settings, left=frozenset((0, 2)))
    found = explain_entry(entry, log_dir, options)
    print()
    reason = f"{entry.reason}: {entry.error}" if entry.error else entry.reason
    page.words("why", reason, _COLOURS.get(entry.why.words.tone, "green"))
    page.words("meaning", found.meaning)
    page.words("settings", ", ".join(found.settings))
    page.words("rounds", _rounds(entry))
    page.words("estimate", _estimate(entry))
    if entry.cut_bytes:
        page.words("recovery", f"would cut {human_bytes(entry.cut_bytes)} from the end, judged by the batch headers")
    if entry.in_use:
        page.words("in use", f"by {entry.in_use}, while it was read: the figures may be out of date", "yellow")
    for warning in entry.warnings:
        page.words("warning", warning, "yellow")
    page.commands(found.commands)


def _facts_of_entry(entry: PlanEntry) -> Iterator[str]:
    if entry.policy_origin:
        yield f"cleanup.policy={entry.policy} ({entry.policy_origin})"
    yield counted(entry.segments, "segment")
    yield human_bytes(entry.bytes)
    if entry.log_end_offset is not None:
        yield f"offsets {entry.log_start_offset} to {entry.log_end_offset}"


def _bounds(entry: PlanEntry) -> Iterator[tuple[str, str, str]]:
    """Yield the start of the cleanable range, each bound that may end it, and the figures that make it due."""
    line = entry.checkpoint_offset
    offsets = {bound.name: bound.offset for bound in entry.bounds}
    if entry.is_checkpoint_reset:
        figure = f"reset: its line, {line}, is outside of the log"
    else:
        figure = "no line in cleaner-offset-checkpoint" if line is None else "cleaner-offset-checkpoint"
    yield "first dirty offset", f"{entry.first_dirty_offset}", figure
    yield "active segment", f"{offsets['active segment']}", "never cleaned; begins by segment.ms, segment.bytes"
    yield "high watermark", f"{offsets['high watermark']}", "below it records are replicated"
    yield "last stable offset", f"{offsets['last stable offset']}", _transaction(entry)
    young = f"{offsets[_LAG]}" if _LAG in offsets else "-"
    yield _LAG, young, _too_young(entry)
    ends = f"by {entry.bounded_by}, at the start of a segment"
    yield "first uncleanable offset", f"{entry.first_uncleanable_offset}", ends
    yield "dirty ratio", "-", _ratio(entry)
    yield "max.compaction.lag.ms", "-", _overdue(entry)


def _too_young(entry: PlanEntry) -> str:
    if entry.lag_ends_ms is None:
        return "no dirty segment is too young"
    return f"old enough in {duration(entry.lag_ends_ms - entry.now_ms)}, at {moment(entry.lag_ends_ms)}"


def _transaction(entry: PlanEntry) -> str:
    found = entry.undecided
    if found is None:
        return "no open transaction below the high watermark"
    open_for = duration(max(0, entry.now_ms - found.since_ms))
    return f"open for {open_for}: producer {found.producer_id}, epoch {found.producer_epoch}"


def _ratio(entry: PlanEntry) -> str:
    dirty, all_ = human_bytes(entry.dirty_bytes), human_bytes(entry.dirty_bytes + entry.clean_bytes)
    return f"{entry.ratio:.3f}: {dirty} dirty of {all_}"


def _overdue(entry: PlanEntry) -> str:
    if entry.overdue_ms:
        return f"over it by {duration(entry.overdue_ms)}"
    if entry.overdue_at_ms is None:
        return "never over it"
    return f"over it in {duration(entry.overdue_at_ms - entry.now_ms)}"


def _estimate(entry: PlanEntry) -> str:
    """Say what cleaning would do, from a sample."""
    found = entry.estimate
    if found is None:
        return ""
    least, most = human_bytes(found.least_bytes_freed), human_bytes(found.most_bytes_freed)
    return (
        f"frees {human_bytes(found.bytes_freed)} of {human_bytes(found.bytes_before)} (likely {least} to {most}), "
        f"needs {human_bytes(found.extra_disk_bytes)} of extra space until then, takes about "
        f"{duration(1000 * found.seconds)}; {found.dirty_keys} keys are dirty; read: {found.sample_part:.0%}"
    )


def _rounds(entry: PlanEntry) -> str:
    """Say how many rounds are needed with this buffer, and with which buffer one would do."""
    ahead = entry.rounds
    if ahead is None or not entry.dirty_bytes:
        return ""
    at_most = "at most" if entry.estimate is None else "about"
    words = (
        f"{at_most} {ahead.count}: there are {at_most} {ahead.keys} keys, and a round takes {ahead.most_keys} "
        f"({human_bytes(ahead.buffer_bytes)} a thread, {ahead.slots} slots)"
    )
    if ahead.count <= 1:
        return words
    words += f", of the dirty section about {human_bytes(ahead.head_bytes)}"
    if ahead.one_round_buffer_size is None:
        return f"{words}; cleaner.map.kafka.cap forbids a buffer for one round"
    return f"{words}; one round with log.cleaner.dedupe.buffer.size={ahead.one_round_buffer_size}"
