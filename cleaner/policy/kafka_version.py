"""
Which Kafka release's rules a round follows: one row a release, with the rules that differ.

All other rules are the same in every release of the table. Code asks a row for a rule, never for its name, so a new
release is a new row, with its tests (docs/new-kafka.md).

Source: R-537, R-538, R-541, R-548.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.config.process_settings import KAFKA_VERSION_KEY
from cleaner.errors import ConfigError

AUTO = "auto"
_NO_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class KafkaVersion:
    """
    A release line of Kafka, and its rules.

    Attributes:
        name: as in `cleaner.kafka.version`.
        release: the release that was compared with ours.
        first_level: the lowest level of `metadata.version` that releases before it do not have.
        last_level: the highest level that it writes in production.
        keeps_empty_range_end: the batch that ends the cleanable range stays without records, wherever the high
            watermark is (R-541 b); otherwise only if the range ends at the high watermark (R-548).
        reads_every_index: the last index entry of every source of a group is read, not only the last source's (R-538).
        differs: what is different from the release before, in words.
    """

    name: str
    release: str
    first_level: int
    last_level: int
    keeps_empty_range_end: bool
    reads_every_index: bool
    differs: str = ""

    def kept_end_offset(self, first_uncleanable_offset: int, high_watermark: int) -> int:
        """
        Return the offset right below which a batch stays even if empty (R-541 b, R-548).

        If no batch stays by that rule, it is the highest possible offset.
        """
        is_kept = self.keeps_empty_range_end or first_uncleanable_offset == high_watermark
        return first_uncleanable_offset if is_kept else _NO_OFFSET


KAFKA_VERSIONS = (
    KafkaVersion("4.3", "4.3.1", 0, 31, keeps_empty_range_end=True, reads_every_index=True),
    KafkaVersion(
        "4.4",
        "4.4.0",
        32,
        33,
        keeps_empty_range_end=False,
        reads_every_index=False,
        differs="an empty batch that ends the cleanable range stays only at the high watermark, and the index of a "
        "group's earlier source is not read",
    ),
)
"""All known releases, ascending."""

DEFAULT_KAFKA_VERSION = KAFKA_VERSIONS[0]


@dataclass(frozen=True)
class ChosenVersion:
    """
    The version whose rules apply to a log dir.

    Attributes:
        version: the row.
        origin: why it was chosen: the source of the setting, or what `auto` found.
        warning: what the operator should know; may be empty.
    """

    version: KafkaVersion
    origin: str
    warning: str = ""


def choose_version(wanted: str, origin: str, metadata_level: int | None) -> ChosenVersion:
    """
    Choose the version for a log dir.

    Args:
        wanted: the setting's value: `auto`, or the name of a version.
        origin: the setting's source.
        metadata_level: the level of `metadata.version` in the cluster's metadata; None if there is no metadata, or none
            with a level.
    Raises:
        ConfigError: an unknown version.
    """
    if wanted != AUTO:
        found = next((each for each in KAFKA_VERSIONS if each.name == wanted), None)
        if found is None:
            bound = f"must be one of {', '.join([AUTO, *(each.name for each in KAFKA_VERSIONS)])}"
            raise ConfigError(KAFKA_VERSION_KEY, wanted, bound)
        return ChosenVersion(found, origin)
    if metadata_level is None:
        return ChosenVersion(DEFAULT_KAFKA_VERSION, f"{AUTO}: no metadata.version found")
    fitting = (each for each in reversed(KAFKA_VERSIONS) if metadata_level >= each.first_level)
    version = next(fitting, DEFAULT_KAFKA_VERSION)
    seen = f"{AUTO}: metadata.version has level {metadata_level}"
    newest = KAFKA_VERSIONS[-1]
    if version is not newest:
        # Only the finalized level is on disk, and brokers may be upgraded long before it is raised.
        following = KAFKA_VERSIONS[KAFKA_VERSIONS.index(version) + 1]
        return ChosenVersion(version, f"{seen}; a {following.name} broker has it too until it is raised")
    if metadata_level > newest.last_level:
        warning = (
            f"metadata.version has level {metadata_level}, newer than Kafka {newest.release} ({newest.last_level}): "
            f"the rules of {newest.name} are used ({newest.differs}); what later releases changed is not known"
        )
        return ChosenVersion(version, f"{seen}, newer than any known here", warning)
    return ChosenVersion(version, seen)
