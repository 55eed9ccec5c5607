"""
Producers of one partition: with sequence numbers, and with transactions.

A *transactional id* is a name that outlives the process. A producer that begins under it gets the id's producer id with
the next epoch, which ends an earlier instance's open transaction and fences that instance off. The ids are kept in a
small file of the partition's directory, `cleaner-transactional-ids`:

    {"format": "cleaner-transactional-ids", "version": 1,
     "ids": {"payments": {"producer_id": 5174, "epoch": 3, "used_ms": 1700000000000}}}

It is in the partition's directory because transactions are of one partition here: it moves with the partition, is
deleted with it, and no partition waits for another. It does not disturb a broker: in a partition directory Kafka's
loader ignores every file whose name neither begins with an offset nor ends in one of its suffixes (R-642), and a broker
that takes over does not know our transactional ids anyway.

A name that is *resumed* (`Log.producer(name, resume=True)`) stands in the same file, with `"resumes": true`. It has no
transactions and keeps its epoch: how far it came is in the log itself. It is never forgotten, as its numbers would
begin anew.

Producer ids are chosen at random from the upper half of their range. Brokers count theirs up from 0, so the two do not
collide in a log that both have written, and producer ids without a transactional id need not be remembered.

Source: rules R-230, R-653; `ProducerStateManager.java`; what a transaction coordinator does, for one partition.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cleaner.base.json_values import JsonValue, NotJsonError, format_json, parse_json
from cleaner.errors import CorruptCheckpointError, UsageError, shortened
from cleaner.storage.files.checkpoint import read_bounded
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import TRANSACTIONAL_IDS

FILE_NAME = TRANSACTIONAL_IDS
FORMAT, VERSION = "cleaner-transactional-ids", 1  # values on disk, never to be changed

LIMIT_BYTES = 16 << 20
"""A hundred thousand ids."""

FORGOTTEN_AFTER_MS = 7 * 86_400_000
"""Kafka's default of `transactional.id.expiration.ms`."""

MAX_EPOCH = 32_766  # 32 767 is left for the marker that ends a transaction of the last one


class Identity(NamedTuple):
    """A producer's id and epoch in a log."""

    producer_id: int
    epoch: int


@dataclass(frozen=True)
class _Known:
    """One transactional id."""

    identity: Identity
    used_ms: int
    resumes: bool = False


def new_producer_id() -> int:
    """Return a random unused producer id, not below 2**62."""
    return 1 << 62 | secrets.randbits(62)


class TransactionalIds:
    """
    The transactional ids of one partition. Every call is a step of its open log (`PartitionWriter.run`): of a log that
    was closed, the directory may be another one's.

    Args:
        fs: the file system.
        directory: the partition's.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._path = directory / FILE_NAME

    def begin(self, transactional_id: str, epoch_of: Callable[[int], int], now_ms: int) -> Identity:
        """
        Give a transactional id to a new instance, durably: the same producer id, and an epoch above all earlier ones.

        Args:
            epoch_of: returns the latest epoch the log knows of a producer id, -1 for none.
        Raises:
            CorruptCheckpointError: the file is damaged or of a later release. It is not changed: without the earlier
                epochs an earlier instance cannot be fenced.
            UsageError: it is the name of a producer that is resumed.
            LogDirOfflineError, NoSpaceError: the disk.
        """
        ids = self._read()
        known = ids.get(transactional_id)
        if known is not None and known.resumes:
            raise UsageError(f"{transactional_id!r} is resumed, so it has no transactions: take another id for those")
        identity = Identity(new_producer_id(), 0)
        if known is not None:
            epoch = max(known.identity.epoch, epoch_of(known.identity.producer_id)) + 1
            if epoch <= MAX_EPOCH:
                identity = Identity(known.identity.producer_id, epoch)
        self._put(ids, transactional_id, identity, epoch_of, now_ms)
        return identity

    def resume(self, name: str, epoch_of: Callable[[int], int], now_ms: int) -> tuple[Identity, bool]:
        """
        Return the identity of a producer that goes on where it was, and whether it is new; a new one is kept, durably.

        Raises:
            UsageError: it is an id of transactions.
            CorruptCheckpointError, LogDirOfflineError, NoSpaceError: as `begin`.
        """
        ids = self._read()
        known = ids.get(name)
        if known is None:
            identity = Identity(new_producer_id(), 0)
            self._put(ids, name, identity, epoch_of, now_ms, resumes=True)
            return identity, True
        if not known.resumes:
            raise UsageError(f"{name!r} has been used for transactions, which are not resumed: take another id")
        return known.identity, False

    def raise_epoch(
        self, transactional_id: str, identity: Identity, epoch_of: Callable[[int], int], now_ms: int
    ) -> Identity:
        """Raise the id's epoch, durably; returns the identity that aborts its transaction. Raises as `begin`."""
        raised = identity._replace(epoch=identity.epoch + 1)
        self._put(self._read(), transactional_id, raised, epoch_of, now_ms)
        return raised

    def _put(
        self,
        ids: Mapping[str, _Known],
        transactional_id: str,
        identity: Identity,
        epoch_of: Callable[[int], int],
        now_ms: int,
        *,
        resumes: bool = False,
    ) -> None:
        """Write the file with one id changed, without ids that are long unused and forgotten by the log."""
        kept = {
            name: known
            for name, known in ids.items()
            if known.resumes or now_ms - known.used_ms < FORGOTTEN_AFTER_MS or epoch_of(known.identity.producer_id) >= 0
        }
        kept[transactional_id] = _Known(identity, max(0, now_ms), resumes)
        words = {name: _words(known) for name, known in kept.items()}
        text = format_json({"format": FORMAT, "version": VERSION, "ids": words})
        self._fs.write_atomically(self._path, text.encode("ascii"))

    def _read(self) -> dict[str, _Known]:
        data = read_bounded(self._fs, self._path, LIMIT_BYTES)
        if data is None:
            return {}
        try:
            content = parse_json(data)
        except NotJsonError as error:
            raise CorruptCheckpointError(self._path, 0, f"no list of transactional ids: {error}") from error
        if content.get("format") != FORMAT or content.get("version") != VERSION:
            what = f"{shortened(repr(content.get('format')))}, version {shortened(repr(content.get('version')))}"
            raise CorruptCheckpointError(self._path, 0, f"{what}, where {FORMAT!r}, version {VERSION} is expected")
        ids = content.get("ids")
        if not isinstance(ids, dict):
            raise CorruptCheckpointError(self._path, 0, "without its ids")
        return {name: self._known(name, value) for name, value in ids.items()}

    def _known(self, name: str, value: JsonValue) -> _Known:
        fields = value if isinstance(value, dict) else {}
        numbers = [fields.get(field) for field in ("producer_id", "epoch", "used_ms")]
        producer_id, epoch, used_ms = (number if type(number) is int else -1 for number in numbers)
        if not 0 <= producer_id < 2**63 or not 0 <= epoch < 2**15 or type(numbers[2]) is not int:
            raise CorruptCheckpointError(
                self._path, 0, f"no producer of transactional id {shortened(repr(name))}: {shortened(repr(value))}"
            )
        # The clock was before 1970 when it was written: all that matters is that the id is known.
        return _Known(Identity(producer_id, epoch), max(0, used_ms), fields.get("resumes") is True)


def _words(known: _Known) -> dict[str, JsonValue]:
    producer_id, epoch = known.identity
    words: dict[str, JsonValue] = {"producer_id": producer_id, "epoch": epoch, "used_ms": known.used_ms}
    return words | {"resumes": True} if known.resumes else words
