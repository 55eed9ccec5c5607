"""`__consumer_offsets`: what a group coordinator makes of a partition of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cleaner.format.fields import FieldReader
from cleaner.format.group_messages import GROUP_RECORDS
from cleaner.format.message_schema import parse_table, read_key
from cleaner.verification.replay.group_types import CONSUMER, SHARE, STREAMS, Groups, ReplayError
from cleaner.verification.replay.offsets import CommitKey, CommittedOffsets
from cleaner.verification.replay.state import Facts, Notes, Thing

_COMMITS = (0, 1)
_CLASSIC = 2
_GROUPS = {3: CONSUMER, 11: SHARE, 17: STREAMS}
_MEMBERS = {5: CONSUMER, 10: SHARE, 19: STREAMS}
_TARGET_EPOCHS = {6: CONSUMER, 12: SHARE, 20: STREAMS}
_TARGETS = {7: CONSUMER, 13: SHARE, 21: STREAMS}
_CURRENT = {8: CONSUMER, 14: SHARE, 22: STREAMS}
_OTHERS = {4: (CONSUMER, "partition metadata"), 16: (CONSUMER, "expression"), 23: (STREAMS, "topology")}
_SHARE_PARTITIONS = 15


class GroupReplay:
    """
    The group coordinator's replay.

    Records of unknown types are passed over, as by the coordinator; at those it cannot read, unknown versions included,
    and at those whose order is wrong it fails and does not load the partition.
    """

    committed = False

    def __init__(self) -> None:
        self.notes = Notes()
        self._offsets = CommittedOffsets()
        self._groups = Groups()
        self._share_partitions: dict[str, Facts] = {}

    def record(self, offset: int, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record."""
        name = "a record"
        try:
            table = parse_table(GROUP_RECORDS)
            number, fields = read_key(table, key)
            if fields is None:
                self.notes.skip(f"unknown record type {number}")
                return
            name = f"group {fields.get('group', fields.get('groupId'))}"
            if "memberId" in fields:
                name += f", member {fields['memberId']}"
            content = None
            if value is not None:
                body = FieldReader(value)
                content = table["value", number].read(body, body.integer(2))
            self._apply(offset, producer_id, number, fields, content)
        except ReplayError as error:
            self.notes.fail(offset, name, str(error))
        except ValueError as error:
            self.notes.fail(offset, name, f"a record that cannot be read: {error}")

    def marker(self, producer_id: int, is_commit: bool) -> None:
        """Apply the end of a transaction."""
        self._offsets.end(producer_id, is_commit)

    def committed_offsets(self) -> Iterator[tuple[CommitKey, Facts]]:
        """Yield the offsets that groups have committed."""
        yield from self._offsets.committed()

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield the state."""
        yield from self._offsets.things()
        yield from self._groups.things()
        for group, facts in self._share_partitions.items():
            yield Thing("share partitions", f"group {group}"), facts

    def _apply(
        self, offset: int, producer_id: int, number: int, key: dict[str, Any], value: dict[str, Any] | None
    ) -> None:
        groups = self._groups
        if number in _COMMITS:
            committed = CommitKey(key["group"], key["topic"], key["partition"])
            if value is None:
                self._offsets.delete(committed)
            else:
                groups.hold_offsets(committed.group)
                self._offsets.commit(offset, producer_id, committed, value)
        elif number == _CLASSIC:
            groups.classic(key["group"], value)
        elif number in _GROUPS:
            groups.metadata(_GROUPS[number], key["groupId"], value)
        elif number in _MEMBERS:
            groups.member(_MEMBERS[number], key["groupId"], key["memberId"], value)
        elif number in _TARGET_EPOCHS:
            groups.target_epoch(_TARGET_EPOCHS[number], key["groupId"], value)
        elif number in _TARGETS:
            groups.target(_TARGETS[number], key["groupId"], key["memberId"], value)
        elif number in _CURRENT:
            groups.current(_CURRENT[number], key["groupId"], key["memberId"], value)
        elif number == _SHARE_PARTITIONS:
            groups.require(SHARE, key["groupId"], value)
            if value is None:
                self._share_partitions.pop(key["groupId"], None)
            else:
                self._share_partitions[key["groupId"]] = value
        else:
            kind, what = _OTHERS[number]
            groups.other(kind, key["groupId"], " ".join([what, *list(key.values())[1:]]), value)
