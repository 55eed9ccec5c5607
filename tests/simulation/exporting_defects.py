"""Planted defects of `export`; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner.exporting import topic
from cleaner.exporting.changes import Changes
from cleaner.exporting.forms import TableWriter
from cleaner.exporting.manifest import ExportedFile
from cleaner.log.reader import LogReader
from cleaner.storage.swap.backup import crc32_of
from tests.simulation.planting import breaks


@breaks(TableWriter, "finish")
def exports_are_not_forced_to_disk(_real: Any, self: Any) -> Any:
    """The manifest names files that a power cut may take."""
    self._rows.close()
    return ExportedFile(self._name, self._count, *crc32_of(self._fs, self._file.path))


@breaks(topic._Writer, "write")
def exports_remove_the_one_before_first(real: Any, self: Any, partitions: Any, context: Any) -> Any:
    """What the manifest names is gone until it is replaced."""
    done = real(self, partitions, context)
    topic._remove_all_but(context.fs, self._place, self._directory.name)
    return done


@breaks(Changes, "deletes")
def changes_forget_deletes(_real: Any, _self: Any, _partition: Any) -> Any:
    """As where only tombstones that are still there count."""
    return iter(())


@breaks(Changes, "deletes")
def changes_delete_what_was_put(real: Any, self: Any, partition: Any) -> Any:
    """Every key of a row that is gone, though it has another one."""
    self._come = []
    return real(self, partition)


@breaks(Changes, "upserts")
def changes_put_every_row(real: Any, self: Any, new: Any) -> Any:
    """Rows that have not changed, too."""
    real(self, new)
    return new


@breaks(LogReader, "latest")
def exports_hold_aborted_records(real: Any, self: Any, **named: Any) -> Any:
    """Transactions are not looked at."""
    return real(self, **{**named, "isolation": "read_uncommitted"})


@breaks(topic, "last_export")
def changes_begin_from_nothing(real: Any, fs: Any, directory: Any) -> Any:
    """The export that is there is compared as if it were empty."""
    found = real(fs, directory)
    return None if found is None else replace(found, partitions=())
