"""
Finds the aborted transactions of a log from its batches: each must be in a transaction index.

A missing entry makes aborted records visible. An extra entry is harmless: the records of a transaction may have been
cleaned away before its marker.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Chunk, Mask
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.producer_state import ProducerState
from cleaner.storage.load.replay import replay
from cleaner.storage.load.snapshots import Snapshots
from cleaner.verification.check.findings import Finding, FindingKind, OnFinding

_WANTED = CONTROL_FLAG | TRANSACTIONAL_FLAG


class TransactionFollower:
    """
    Follows the transactions of one partition, segment after segment.

    Args:
        log_start_offset: data below it needs no entry. Nobody reads it, and a recovery looks at transactions from there
            on; its segments may be there still, after a power cut.
    """

    def __init__(self, fs: FileSystem, directory: Path, log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        self._state = ProducerState(Snapshots(fs, directory, ()), now_ms=0, expiration_ms=0)

    def take(self, path: Path, chunk: Chunk, good: Mask, on_finding: OnFinding) -> list[AbortedTxn]:
        """
        Add the good batches of a chunk; returns the aborted transactions that end in it.

        A batch whose marker cannot be read is reported, and counts as damaged.
        """
        if not chunk.kinds & _WANTED:
            return []
        attributes, last_offsets = chunk.batches["attributes"], chunk.batches["last_offset"]
        counts = (attributes & CONTROL_FLAG != 0) | (last_offsets >= self._log_start_offset)
        rows = np.flatnonzero(good & counts & (attributes & _WANTED != 0))
        part = replace(chunk, batches=chunk.batches[rows], failure=None)

        def note(error: CorruptBatchError) -> None:
            at = int(np.searchsorted(part.batches["position"], error.position))
            offset = int(part.batches["base_offset"][at])
            on_finding(Finding(FindingKind.BATCH_TRANSACTION, path, error.reason, error.position, offset))
            good[rows[at]] = False

        return replay(self._state, part, slice(None), path, each_batch=True, on_damage=note)
