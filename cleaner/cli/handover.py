"""`cleaner handover`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.sizes import human_bytes
from cleaner.cli.arguments import add_format
from cleaner.cli.output import say_all, say_refusal
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import UsageError

if TYPE_CHECKING:
    from uuid import UUID

    from cleaner.app.handover import HandedOver, HandoverReport
    from cleaner.app.options import CallContext

SUMMARY = "replace a stopped broker's empty logs by logs of the cleaner's writer"

DESCRIPTION = """\
Hands all partitions of some topics over to a broker: it copies their files into
the broker's log dir, under the id that the cluster has given each topic, with
their lines of the four offset checkpoints. The broker then starts on them as on
its own, without recovering anything. --from does not change: delete the topics
there when the broker serves them (cleaner topics delete).

Before: create the topic at the broker, with one replica and as many partitions,
note its id, stop the broker, and close the log dir --from cleanly. If there is a
metadata log (here, or where --config or --metadata-dir say), ids, numbers of
partitions and replicas are compared with it.

Nothing is done if one partition is refused, or there is no room for all. Batches
are checked while they are copied: a partition with a damaged one is refused, and
the others are handed over. A crash leaves each partition handed over or not
begun; the same command finishes the work."""

EXAMPLES = """\
examples:
  cleaner handover --from /srv/prices --to /var/lib/kafka \\
      --topic-id prices=IvGBsEpRQHy0e2ZFbihfbw --dry-run
  cleaner handover --from /srv/prices --to /var/lib/kafka \\
      --topic-id prices=IvGBsEpRQHy0e2ZFbihfbw

exit status:
  0  handed over, or was there already
  1  a partition was refused, or the disk failed
  2  usage      75  a log dir is in use      78  a bad setting"""

_HEADINGS = ("partition", "log start", "log end", "bytes", "state")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--from", dest="from_dir", metavar="DIR", type=Path, required=True, help="the log dir that has the logs"
    )
    parser.add_argument(
        "--to", dest="to_dir", metavar="BROKER_DIR", type=Path, required=True, help="one of the broker's log.dirs"
    )
    parser.add_argument(
        "--topic-id",
        dest="topic_ids",
        metavar="TOPIC=ID",
        action="append",
        required=True,
        help="a topic, and its id in the cluster; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="check all but the batches, and write nothing")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the broker's server.properties")
    parser.add_argument(
        "--metadata-dir", metavar="DIR", type=Path, help="where __cluster_metadata-0 is, if not in BROKER_DIR"
    )
    add_format(parser)
    parser.add_argument(
        "--as-root",
        action="store_true",
        help="started as root, stay root: the log dirs have different owners. New files belong to BROKER_DIR's owner",
    )


def run(arguments: argparse.Namespace) -> int:
    """Hand over; returns the exit code."""
    topic_ids = _topic_ids(arguments.topic_ids)

    from cleaner.app.handover import hand_over
    from cleaner.app.options import Sources
    from cleaner.settings import read_config_file
    from cleaner.storage.fs.file_system import FileSystem

    config = {} if arguments.config is None else read_config_file(FileSystem(), arguments.config)
    settings = Sources(config=config, metadata_dir=arguments.metadata_dir)
    places = arguments.from_dir, arguments.to_dir
    bar = prepare_work(*places, stay_root=arguments.as_root)

    def work(context: CallContext) -> HandoverReport:
        return hand_over(*places, topic_ids, settings, context, dry_run=arguments.dry_run)

    return _show(run_work(work, bar), arguments.format)


def _topic_ids(texts: list[str]) -> dict[str, UUID]:
    """Read topics and their ids. Raises UsageError: a text is neither, or a topic has two ids."""
    from cleaner.storage.files.kafka_uuid import parse_uuid

    found: dict[str, UUID] = {}
    for text in texts:
        topic, equals, written = text.partition("=")
        if not topic or not equals:
            raise UsageError(f"--topic-id {text}: expected TOPIC=ID, as in prices=IvGBsEpRQHy0e2ZFbihfbw")
        try:
            topic_id = parse_uuid(written)
        except ValueError as error:
            raise UsageError(f"--topic-id {text}: {error}") from None
        if topic_id.int == 0 or found.setdefault(topic, topic_id) != topic_id:
            raise UsageError(f"--topic-id {text}: {'no id of a topic' if not topic_id.int else 'a second id'}")
    return found


def _show(report: HandoverReport, form: str) -> int:
    """Print what was handed over and what was refused; returns the exit code."""
    say_all(report.partitions, "handover", form, _HEADINGS, _row, left=frozenset((0, 4)))
    return max((say_refusal(refusal, "handover", form) for refusal in report.refused), default=0)


def _row(handed: HandedOver) -> tuple[str, ...]:
    offsets = str(handed.log_start_offset), str(handed.log_end_offset)
    return (handed.partition, *offsets, human_bytes(handed.bytes), handed.state)
