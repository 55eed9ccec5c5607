"""`cleaner undo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from cleaner.cli.arguments import add_format, add_settings, sources

SUMMARY = "put back what clean --keep-old has kept"

DESCRIPTION = """\
Puts the segments back that `cleaner clean --keep-old DIR` has kept in DIR, and the cleaner checkpoint of before. A
log that was appended to or cleaned since is refused, with what has changed; nothing in it is touched then. Safe
against crashes as cleaning is: each group of segments is the new one or the old ones, and the same command finishes.

What was put back is removed from DIR. The log dir must not be in use by a broker."""

EXAMPLES = """\
examples:
  cleaner clean /var/lib/kafka prices-0 --keep-old /var/lib/kafka-kept --set prices:cleanup.policy=compact
  cleaner undo /var/lib/kafka-kept

exit status:
  0  put back      1  some partition was refused, the others are done
  2  usage      75  the log dir is in use      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("kept_dir", metavar="DIR", type=Path, help="what --keep-old named")
    add_settings(parser)
    add_format(parser)
    parser.add_argument(
        "--as-root", action="store_true", help="started as root, stay root instead of becoming the log dir's owner"
    )


def run(arguments: argparse.Namespace) -> int:
    """Put back what is kept; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.options import CallContext
    from cleaner.app.undo_clean import log_dir_of, undo_clean
    from cleaner.cli.identity import take_identity
    from cleaner.cli.logs import log_warning
    from cleaner.cli.show_undo import show_undone
    from cleaner.cli.stop import StopFlag, run_interruptibly
    from cleaner.storage.fs.file_system import FileSystem

    # First by the directory itself: whoever owns it may have written anything into the manifests.
    take_identity(arguments.kept_dir, stay_root=arguments.as_root)
    log_dir = log_dir_of(FileSystem(), arguments.kept_dir)
    take_identity(arguments.kept_dir, log_dir, stay_root=arguments.as_root)

    def work(flag: StopFlag) -> int:
        lent = CallContext.of(check_done=flag.check_done, warn=log_warning)
        return show_undone(undo_clean(arguments.kept_dir, settings, lent), arguments.format)

    return run_interruptibly(work)
