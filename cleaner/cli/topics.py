"""`cleaner topics`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.cli.arguments import add_format, parse_count
from cleaner.cli.fitting import columns, shortened
from cleaner.cli.kafka_flags import add_ignored, add_log_dir, assignments_of, note_ignored
from cleaner.cli.output import json_line, print_error, say
from cleaner.cli.stop import run_interruptibly
from cleaner.cli.work import take_identity
from cleaner.errors import TopicExistsError, UnknownTopicError, UsageError
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    import uuid

    from cleaner.cli.stop import StopFlag
    from cleaner.log.topics import Topic

SUMMARY = "create, alter, describe, list and delete topics of a log dir"

DESCRIPTION = """\
Works on the topics of a log dir, with the flags of kafka-topics; --add-config and --delete-config are those of
kafka-configs. The action may also be given as Kafka's flag (--create). A topic's settings are kept in
cleaner-topics.properties in the log dir, where cleaner run finds them.

create makes the log dir if it does not exist. While create, alter and delete run, they are the only writer of the log
dir; a cleaner and readers may run at the same time. describe and list lock nothing."""

EXAMPLES = """\
examples:
  cleaner topics create --log-dir /tmp/logs --topic prices --partitions 3 --config cleanup.policy=compact
  cleaner topics alter --log-dir /tmp/logs --topic prices --add-config segment.ms=60000 --delete-config retention.ms
  cleaner topics alter --log-dir /tmp/logs --topic prices --partitions 6
  cleaner topics describe --log-dir /tmp/logs --topic prices
  cleaner topics list --log-dir /tmp/logs
  cleaner topics delete --log-dir /tmp/logs --topic prices

exit status:
  0  done      1  refused: it exists, or does not      2  usage      75  the log dir is in use      78  a bad setting"""

_ACTIONS = ("create", "alter", "describe", "list", "delete")
_FLAGS = {
    "create": {"topic", "topic_id", "partitions", "configs", "if_not_exists", "writer_config"},
    "alter": {"topic", "partitions", "configs", "taken_back", "if_exists", "writer_config"},
    "describe": {"topic", "topic_id", "if_exists"},
    "list": {"topic"},
    "delete": {"topic", "if_exists", "writer_config"},
}
_NAMES = {"configs": "--config", "taken_back": "--delete-config", "writer_config": "--writer-config"}
_IGNORED = (
    "--bootstrap-server",
    "--broker-list",
    "--zookeeper",
    "--command-config",
    "--replication-factor",
    "--replica-assignment",
    "--partition-size-limit-per-response",
    "--entity-type",
)
_IGNORED_ALONE = (
    "--exclude-internal",
    "--force",
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("action", choices=_ACTIONS, nargs="?", help="what to do")
    for action in _ACTIONS:
        parser.add_argument(f"--{action}", dest="flagged", action="append_const", const=action, help=argparse.SUPPRESS)
    add_log_dir(parser, "the log dir")
    parser.add_argument(
        "--topic", "--entity-name", dest="topic", help="its name; describe and list take a regular expression too"
    )
    parser.add_argument("--topic-id", metavar="ID", help="create: the id it gets; describe: the topic with this id")
    parser.add_argument(
        "--partitions", metavar="N", type=parse_count, help="create: how many (default: 1); alter: how many in all"
    )
    parser.add_argument(
        "--config",
        "--add-config",
        dest="configs",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="create, alter: a setting of the topic; may be repeated, or hold several: a=1,b=[x,y]",
    )
    parser.add_argument(
        "--delete-config",
        dest="taken_back",
        metavar="KEY",
        action="append",
        default=[],
        help="alter: remove a setting; may be repeated",
    )
    parser.add_argument("--if-not-exists", action="store_true", help="create: no error if it exists")
    parser.add_argument(
        "--if-exists", action="store_true", help="alter, describe, delete: no error if it does not exist"
    )
    parser.add_argument("--writer-config", metavar="FILE", type=Path, help="a server.properties: defaults for topics")
    add_format(parser, "describe and list: one object a topic")
    add_ignored(parser, _IGNORED, _IGNORED_ALONE)


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen action; returns the exit code."""
    action = _action_of(arguments)
    note_ignored(arguments)
    take_identity(
        arguments.log_dir, stay_root=arguments.as_root, needs_kernels=False, may_be_new=arguments.action == "create"
    )
    work = {"create": _create, "alter": _alter, "describe": _describe, "list": _list, "delete": _delete}[action]
    run_interruptibly(lambda flag: work(arguments, flag))
    return 0


def _action_of(arguments: argparse.Namespace) -> str:
    """Return the action. Raises UsageError: none, several, or flags of another one."""
    given = [*([arguments.action] if arguments.action else []), *(arguments.flagged or [])]
    if len(given) != 1:
        raise UsageError(f"give one action: {', '.join(_ACTIONS)}")
    action: str = given[0]
    for name in set().union(*_FLAGS.values()) - _FLAGS[action]:
        if getattr(arguments, name):
            instead = "; `cleaner handover` gives logs the id of a cluster's topic" if name == "topic_id" else ""
            raise UsageError(f"{_NAMES.get(name, '--' + name.replace('_', '-'))} cannot be used with {action}{instead}")
    needs_topic = action in ("create", "alter", "delete") or (action == "describe" and arguments.if_exists)
    if needs_topic and not arguments.topic:
        raise UsageError(f"{action} needs a --topic")
    return action


def _create(arguments: argparse.Namespace, flag: StopFlag) -> None:
    from cleaner.cli.log_dirs import open_log_dir

    settings = assignments_of(arguments.configs)
    topic_id = _id_of(arguments.topic_id)
    with open_log_dir(arguments.log_dir, arguments.writer_config, flag, create=True) as manager:
        try:
            manager.create_topic(arguments.topic, arguments.partitions or 1, settings, topic_id=topic_id)
        except TopicExistsError:
            if not arguments.if_not_exists:
                raise
            return
    say(f"Created topic {arguments.topic}.")


def _id_of(text: str | None) -> uuid.UUID | None:
    """Read an id as Kafka writes it. Raises UsageError: it is not an id."""
    from cleaner.storage.files.kafka_uuid import parse_uuid

    try:
        return None if text is None else parse_uuid(text)
    except ValueError as error:
        raise UsageError(f"--topic-id {text!r}: {error}") from None


def _alter(arguments: argparse.Namespace, flag: StopFlag) -> None:
    from cleaner.cli.log_dirs import open_log_dir

    changes: dict[str, str | None] = {key: None for text in arguments.taken_back for key in text.split(",")}
    changes |= assignments_of(arguments.configs)
    if not changes and arguments.partitions is None:
        raise UsageError("alter needs --partitions, --config or --delete-config")
    with open_log_dir(arguments.log_dir, arguments.writer_config, flag) as manager:
        try:
            topic = manager.describe_topic(arguments.topic)
            if changes:
                manager.alter_topic(topic.name, changes)
            if arguments.partitions is not None:
                manager.add_partitions(topic.name, arguments.partitions)
        except UnknownTopicError:
            if not arguments.if_exists:
                raise


def _delete(arguments: argparse.Namespace, flag: StopFlag) -> None:
    from cleaner.cli.log_dirs import open_log_dir

    # No other thread of this process reads the topic, and readers in other processes keep their open files: no delay is
    # needed, and this process would end before it. If a topic sets its own delay, a later opening removes its files.
    overrides = {"log.segment.delete.delay.ms": "0"}
    with open_log_dir(arguments.log_dir, arguments.writer_config, flag, overrides=overrides) as manager:
        try:
            manager.delete_topic(arguments.topic)
            manager.upkeep.remove_due()
        except UnknownTopicError:
            if not arguments.if_exists:
                raise


def _found(arguments: argparse.Namespace) -> list[Topic]:
    """Return the topics asked for, by name or regular expression. Raises UsageError: an invalid expression."""
    import re

    from cleaner.cli.log_dirs import topics_in

    topics = topics_in(arguments.log_dir)
    for sentence in topics.left_out():
        print_error(sentence)
    names = topics.names()
    if arguments.topic and arguments.topic not in names:
        try:
            wanted = re.compile(arguments.topic)
        except re.error as error:
            raise UsageError(
                f"--topic {arguments.topic!r}: neither a topic nor a regular expression: {error}"
            ) from None
        names = [name for name in names if wanted.fullmatch(name)]
    elif arguments.topic:
        names = [arguments.topic]
    found = [topics.find(name) for name in names]
    topic_id = _id_of(arguments.topic_id)
    return found if topic_id is None else [topic for topic in found if topic.topic_id == topic_id]


def _describe(arguments: argparse.Namespace, _flag: StopFlag) -> None:
    from cleaner.cli.log_dirs import topics_in

    found = _found(arguments)
    if not found and (arguments.topic or arguments.topic_id) and not arguments.if_exists:
        if arguments.topic:
            topics_in(arguments.log_dir).find(arguments.topic)
        raise UnknownTopicError(arguments.topic or arguments.topic_id, f"no such topic in {arguments.log_dir}")
    _describe_topics(arguments.log_dir, found, arguments.format)


def _list(arguments: argparse.Namespace, _flag: StopFlag) -> None:
    _list_topics(_found(arguments), arguments.format)


def _list_topics(topics: Sequence[Topic], form: str) -> None:
    """Print names, one per line."""
    for topic in topics:
        if form == "json":
            print(json_line("topic", _row(topic)))
        else:
            print(shortened(topic.name, columns() or len(topic.name)))


def _describe_topics(log_dir: Path, topics: Sequence[Topic], form: str) -> None:
    """Print topics with their ids, settings and partitions; the only replica of each is this node's."""
    if form == "json":
        _list_topics(topics, form)
        return
    from cleaner.storage.files.kafka_uuid import format_uuid

    node = _node_of(log_dir)
    for topic in topics:
        topic_id = "-" if topic.topic_id is None else format_uuid(topic.topic_id)
        settings = ",".join(f"{key}={value}" for key, value in sorted(topic.settings.items()))
        head = f"Topic: {topic.name}\tTopicId: {topic_id}\tPartitionCount: {len(topic.homes)}\tReplicationFactor: 1"
        _say(f"{head}\tConfigs: {settings}")
        for number in sorted(topic.homes):
            _say(f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {node}\tReplicas: {node}\tIsr: {node}")


def _say(line: str) -> None:
    """Print one of Kafka's lines; on a narrow terminal as several, with blanks instead of tabs."""
    if (width := columns()) is not None and len(line.expandtabs()) > width:
        line = line.replace("\t", "  ").replace(",", ", ")
    say(line, hang="      ")


def _row(topic: Topic) -> dict[str, object]:
    from cleaner.storage.files.kafka_uuid import format_uuid

    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else format_uuid(topic.topic_id),
        "partitions": sorted(topic.homes),
        "settings": dict(sorted(topic.settings.items())),
    }


def _node_of(log_dir: Path) -> int:
    """Return the node a log dir belongs to; 0 if the log dir does not say."""
    from cleaner.storage.files.meta_properties import read_meta_properties
    from cleaner.storage.segment.names import META_PROPERTIES

    identity = read_meta_properties(FileSystem(), log_dir / META_PROPERTIES)
    return 0 if identity is None or identity.node_id is None else identity.node_id
