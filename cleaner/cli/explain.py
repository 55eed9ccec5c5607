"""`cleaner explain`."""

from __future__ import annotations

import argparse
from pathlib import Path

from cleaner.base.mistakes import did_you_mean
from cleaner.cli.arguments import (
    add_high_watermark,
    add_sampling,
    add_way_of_looking,
    sampling_of,
    settings_given,
    sources,
)
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, options_given, parse_partition
from cleaner.errors import UsageError

SUMMARY = "why a log is, or is not, cleaned now"

DESCRIPTION = """\
Draws one log to scale (clean and dirty section, delete retention point, first uncleanable offset, active segment)
and says the one reason why it is next, waits or is not cleaned: what it means, the setting behind it, and what to
type next. Asks the running daemon; with a LOG_DIR it looks for itself, as cleaner plan does, and shows each bound of
what may be cleaned with its figure."""

EXAMPLES = f"""\
examples:
  cleaner explain orders-0
  cleaner explain orders-0 --format json | jq .why
  cleaner explain /var/lib/kafka orders-0 --config /etc/kafka/server.properties     without a daemon

the signs of the drawing:
  =  clean, and so old that its tombstones may go        #  dirty: what the next round takes
  -  clean, its tombstones have to stay yet              .  uncleanable for now      ~  the active segment

exit status:
  0  explained      1  the daemon has no such log, or it cannot be looked at
  2  usage          78  a bad setting
  {EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "partitions",
        metavar="[LOG_DIR] TOPIC-PARTITION",
        nargs="+",
        help="which log; with one entry of a broker's log.dirs before it no daemon is asked",
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
        partition = str(parse_partition(name.rstrip("/").rpartition("/")[2] if places else name))
    except argparse.ArgumentTypeError as error:
        raise UsageError(_what_is(name) if not places and "/" in name else str(error)) from error
    if places:
        return _look(Path(places[0]), partition, arguments)
    if arguments.sets or arguments.topics_dir or arguments.metadata_dir or sampling_of(arguments):
        raise UsageError("a daemon has settings of its own: name the LOG_DIR before the partition to look without it")
    return _ask(partition, arguments)


def _what_is(name: str) -> str:
    """Say what a path is that was named alone."""
    from cleaner.storage.fs.file_system import FileSystem
    from cleaner.storage.which_dir import why_no_log_dir

    reason = why_no_log_dir(FileSystem(), Path(name))
    return f"{name}: {reason or 'a log dir; name one of its partitions behind it, LOG_DIR TOPIC-PARTITION'}"


def _look(log_dir: Path, name: str, arguments: argparse.Namespace) -> int:
    """Look at a log without a daemon."""
    settings = sources(arguments)

    from cleaner.app.options import CallContext
    from cleaner.app.plan_log_dir import plan_log_dir
    from cleaner.cli.identity import take_identity
    from cleaner.cli.logs import log_warning
    from cleaner.cli.show_plan import entry_line
    from cleaner.cli.show_plan_page import show_plan_page

    sampling = sampling_of(arguments)
    take_identity(log_dir, stay_root=arguments.as_root, needs_kernels=sampling is not None)
    lent = CallContext.of(now_ms=arguments.now, warn=log_warning)
    (entry,) = plan_log_dir(
        log_dir,
        settings,
        lent,
        partitions=[name],
        high_watermark=arguments.high_watermark,
        as_if_all=True,
        sampling=sampling,
    )
    options = settings_given(arguments)
    if arguments.format == "json":
        print(entry_line(entry, log_dir, options))
    else:
        show_plan_page(entry, log_dir, options)
    return entry.exit_code


def _ask(name: str, arguments: argparse.Namespace) -> int:
    """Ask the daemon for one log, in each log dir that has it."""
    from cleaner.cli.output import json_line
    from cleaner.cli.show_explain import show_explain
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.errors import SteeringError

    control = control_of(arguments)
    shown = control.value(ServiceSnapshot, control.ask("status", of=[name], config=True), "snapshot")
    # A topic may have a name that reads like a partition of another one.
    views = [view for view in shown.logs if str(view.partition) == name]
    if not views:
        # Asked again, for the names: this is a mistake, and rare.
        everything = control.value(ServiceSnapshot, control.ask("status"), "snapshot")
        likely = did_you_mean(name, (str(view.partition) for view in everything.logs))
        what = f"the daemon at {control.path} has no log {name}"
        raise SteeringError(what + (likely or "; cleaner status --logs all lists them"))
    for number, view in enumerate(views):
        if arguments.format == "json":
            print(json_line("explain", view))
        else:
            print("\n" if number else "", end="")
            show_explain(view, shown, options_given(arguments))
    return 0
