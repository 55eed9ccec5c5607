"""`cleaner doctor`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.cli.advice import advice
from cleaner.cli.arguments import add_as_root, add_format, add_settings, load_process_settings
from cleaner.cli.output import Paint, json_line, say
from cleaner.errors import ConfigError
from cleaner.present.text import printable
from cleaner.storage.fs.file_system import FileSystem, once_each

if TYPE_CHECKING:
    from cleaner.app.configuration import Loaded
    from cleaner.app.doctor import Answer, Grade

SUMMARY = "check that this machine and these log dirs are ready for cleaning"

DESCRIPTION = """\
Checks everything that could stop `cleaner clean` or the daemon, and prints a line
for each check: PASS, WARN or FAIL, and what to do.

settings      as `cleaner config check`
memory        enough in the machine and the control group for the settings
kernels       compiled beforehand, and kept in a trusted place
spark         Java and its libraries, for `cleaner bulk` and DataFrames only
clock         set; nothing in the log dir is newer than now
state         the daemon's own directory, if the settings name one
owner         the user that root switches to
directories   a log dir, with sound checkpoints and names
access        that user can read and replace everything
lock          free, or which process holds it
marker        closed cleanly
space         room for the round of the largest log
descriptors   enough open files are allowed (ulimit -n)
file-system   renames, fsyncs and locks work as they must

Without a LOG_DIR it checks those of log.dirs in the settings, or only the
machine. Takes no lock and changes nothing."""

EXAMPLES = """\
examples:
  cleaner doctor /var/lib/kafka
  cleaner doctor --config /etc/cleaner/cleaner.properties
  cleaner doctor /var/lib/kafka --format json | jq 'select(.result == "FAIL")'

exit status:
  0  no check fails      1  a check fails      2  usage"""

_INDENT = 19  # after the grade and the longest name of a check
_COLOURS = {"PASS": "green", "WARN": "yellow", "FAIL": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "log_dirs", metavar="LOG_DIR", type=Path, nargs="*", help="one entry of a broker's log.dirs, or more"
    )
    add_settings(parser)
    add_format(parser, "one object a check")
    add_as_root(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the checks and print the results; returns the exit code."""
    from cleaner.app.doctor import Grade

    counts: Counter[Grade] = Counter()
    last: Path | None = None
    for answer in _answers(arguments):
        _show_answer(answer, arguments.format, is_new=answer.log_dir != last)
        counts[answer.grade] += 1
        last = answer.log_dir
    if arguments.format != "json":
        _show_counts(counts)
    return 1 if counts[Grade.FAIL] else 0


def _answers(arguments: argparse.Namespace) -> Iterator[Answer]:
    from cleaner.app.doctor import examine_machine, examine_owner, examine_settings, examine_state_dir
    from cleaner.app.doctor_log_dir import PATIENCE_SECONDS, examine_conflicts, examine_log_dir, within
    from cleaner.config.values import CleanerConfig

    fs = FileSystem()
    loaded, mistakes = _load(arguments)
    yield from mistakes
    config = CleanerConfig() if loaded is None else loaded.config
    yield from examine_machine(config)
    log_dirs = once_each(arguments.log_dirs or map(Path, config.log_dirs))
    if log_dirs:
        # A disk that hangs does not answer; that is reported below.
        owner = within(PATIENCE_SECONDS, lambda: examine_owner(log_dirs, stay_root=arguments.as_root))
        if owner is not None:
            yield owner
    if loaded is not None:
        yield from within(PATIENCE_SECONDS, lambda: list(examine_settings(fs, loaded, arguments.log_dirs))) or ()
        yield from within(PATIENCE_SECONDS, lambda: list(examine_state_dir(fs, loaded))) or ()
    for path in log_dirs:
        yield from examine_log_dir(fs, path, loaded, is_named=bool(arguments.log_dirs))
    if len(log_dirs) > 1:
        yield from within(PATIENCE_SECONDS, lambda: list(examine_conflicts(fs, log_dirs))) or ()


def _load(arguments: argparse.Namespace) -> tuple[Loaded | None, list[Answer]]:
    """Return the settings, or their mistakes."""
    from cleaner.app.doctor import wrong_setting

    try:
        return load_process_settings(arguments), []
    except ConfigError as error:
        return None, [wrong_setting(mistake) for mistake in error.mistakes]


def _show_answer(answer: Answer, form: str, *, is_new: bool) -> None:
    """
    Print a check's result, and below it what to do.

    Args:
        form: `table` or `json`.
        is_new: it is the first for its log dir.
    """
    remedy = answer.remedy or ("" if answer.error is None else advice(answer.error))
    if form == "json":
        fields = {
            "check": answer.check,
            "log_dir": None if answer.log_dir is None else str(answer.log_dir),
            "result": answer.grade.value,
            "finding": answer.finding,
            "next": remedy,
        }
        print(json_line("doctor", fields), flush=True)
        return
    if is_new and answer.log_dir is not None:
        say()
        say(printable(str(answer.log_dir)))
    hang = " " * _INDENT
    grade = Paint(sys.stdout)(_COLOURS[answer.grade.value], answer.grade.value)
    say(f"{grade}  {answer.check:<{_INDENT - 6}}{printable(_without(answer.finding, answer.log_dir))}", hang=hang)
    if remedy:
        say(f"{hang}do: {printable(remedy)}", hang=hang)
    sys.stdout.flush()


def _show_counts(counts: Mapping[Grade, int]) -> None:
    """Print the number of results of each grade."""
    from cleaner.app.doctor import Grade

    say()
    say(", ".join(f"{counts.get(grade, 0)} {grade.value}" for grade in reversed(Grade)))


def _without(finding: str, log_dir: Path | None) -> str:
    """Remove the log dir from the start of a finding: it is printed above."""
    if log_dir is None:
        return finding
    words = finding.removeprefix(f"{log_dir}: ").split(" ")
    return " ".join(word.removeprefix(f"{log_dir}/") for word in words)
