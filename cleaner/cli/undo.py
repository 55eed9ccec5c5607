"""`cleaner undo`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.sizes import counted, human_bytes
from cleaner.cli.arguments import add_as_root, add_format, add_settings, sources
from cleaner.cli.output import json_line, say, say_refusal
from cleaner.cli.progress import ProgressBar
from cleaner.cli.work import run_work, take_identity
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.app.options import CallContext
    from cleaner.app.reports import Refusal
    from cleaner.app.undo_clean import UndoReport

SUMMARY = "undo a cleaning from the segments that clean --keep-old kept"

DESCRIPTION = """\
Puts back the segments that `cleaner clean --keep-old DIR` has kept in DIR, and the earlier cleaner checkpoint. A log
that was appended to or cleaned since is refused, with what has changed, and stays untouched. As safe against crashes
as cleaning: each group of segments is the new one or the old ones, and the same command finishes the work, and says
which partitions were undone already.

Segments that were put back are removed from DIR. The log dir must not be in use by a broker."""

EXAMPLES = """\
examples:
  cleaner clean /var/lib/kafka prices-0 --keep-old /var/lib/kafka-kept --set prices:cleanup.policy=compact
  cleaner undo /var/lib/kafka-kept

exit status:
  0  put back, or undone already
  1  some partition was refused, the others are done
  2  usage      75  the log dir is in use      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("kept_dir", metavar="DIR", type=Path, help="what --keep-old named")
    add_settings(parser)
    add_format(parser)
    add_as_root(parser)


def run(arguments: argparse.Namespace) -> int:
    """Put back the kept segments; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.undo_clean import log_dir_of, undo_clean

    # First become the owner of the directory: its owner may have written anything into the manifests.
    take_identity(arguments.kept_dir, stay_root=arguments.as_root)
    log_dir = log_dir_of(FileSystem(), arguments.kept_dir)
    take_identity(arguments.kept_dir, log_dir, stay_root=arguments.as_root)

    def work(context: CallContext) -> int:
        return _show(undo_clean(arguments.kept_dir, settings, context), arguments.format)

    return run_work(work, ProgressBar())


def _show(outcomes: Iterable[UndoReport | Refusal], form: str) -> int:
    """Print each partition as it is done; returns the exit code."""
    from cleaner.app.reports import Refusal

    code = 0
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            code = max(code, say_refusal(outcome, "undo", form))
        elif form == "json":
            print(json_line("undo", outcome))
        else:
            restored = f"{counted(outcome.segments, 'segment')} put back ({human_bytes(outcome.bytes)})"
            restored = "undone already" if outcome.was_undone else restored
            line = "none" if outcome.checkpoint is None else str(outcome.checkpoint)
            say(f"{outcome.partition}: {restored}, cleaner checkpoint {line}")
    return code
