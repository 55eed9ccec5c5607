"""
Options for where to begin and end: one value for all partitions, or one each in the JSON of Spark's Kafka source.

    earliest   latest   1000   {"prices": {"0": 1000, "1": -2}}      -2 is earliest, -1 latest

Partitions that the JSON does not name begin or end as they do without the option.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from cleaner.base.model import TopicPartition
from cleaner.errors import UsageError

EARLIEST, LATEST = -2, -1
MARKS = "@"
"""A key next to the topics in a stream's place, which may be given as an option, too; no topic can have this name."""

_NAMES = {"earliest": EARLIEST, "latest": LATEST}
_MOST = 2**63 - 1


@dataclass(frozen=True)
class Offsets:
    """
    For each partition an offset, `EARLIEST` or `LATEST`.

    Attributes:
        usual: for partitions that are not in `by_partition`.
    """

    usual: int
    by_partition: dict[TopicPartition, int] = field(default_factory=dict)

    def of(self, topic_partition: TopicPartition) -> int:
        """Return the offset of a partition."""
        return self.by_partition.get(topic_partition, self.usual)

    def resolve(self, topic_partition: TopicPartition, start_offset: int, end_offset: int) -> int:
        """Return the offset of a partition, limited to the range of its log."""
        offset = self.of(topic_partition)
        if offset < 0:
            return start_offset if offset == EARLIEST else end_offset
        return min(max(offset, start_offset), end_offset)


@dataclass(frozen=True)
class Times:
    """Milliseconds since 1970 for each partition; `usual` is None: only the named partitions have a time."""

    usual: int | None
    by_partition: dict[TopicPartition, int] = field(default_factory=dict)

    def of(self, topic_partition: TopicPartition) -> int | None:
        """Return the time of a partition."""
        return self.by_partition.get(topic_partition, self.usual)


def parse_offsets(name: str, text: str, usual: int) -> Offsets:
    """
    Parse an option's text.

    Args:
        name: of the option.
        usual: for partitions that are not named.
    Raises:
        UsageError: the text is invalid.
    """
    if text.lower() in _NAMES:
        return Offsets(_NAMES[text.lower()])
    found = _read(name, text, least=EARLIEST)
    return Offsets(found) if isinstance(found, int) else Offsets(usual, found)


def parse_times(name: str, text: str) -> Times:
    """Parse an option's text of milliseconds, one number for all or JSON. Raises UsageError."""
    found = _read(name, text, least=0)
    return Times(found) if isinstance(found, int) else Times(None, found)


def offsets_json(offsets: dict[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as a structure whose JSON text `parse_offsets` reads."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _read(name: str, text: str, least: int) -> int | dict[TopicPartition, int]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name}={text}: neither a word, a number nor JSON by topic and partition") from error
    if _is_offset(found, least):
        return int(found)
    if not isinstance(found, dict):
        raise UsageError(f"{name}={text}: must be a number of at least {least}, or JSON by topic and partition")
    return offsets_of(name, found, least)


def offsets_of(name: str, found: dict[str, object], least: int = 0) -> dict[TopicPartition, int]:
    """Return the offsets of parsed JSON, without a stream's marks. Raises UsageError."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        if topic == MARKS:
            continue
        if not isinstance(partitions, dict):
            raise UsageError(f'{name}: the value of topic {topic} is not of the form {{"0": 1000}}')
        for partition, offset in partitions.items():
            if not partition.isdecimal() or not _is_offset(offset, least):
                raise UsageError(f"{name}: {partition}: {offset} of topic {topic} is not a partition and a number")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def _is_offset(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST
