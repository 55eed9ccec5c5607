"""Why an offset has no record for a reader. The names are part of the JSON format and never change."""

from __future__ import annotations

import enum


class GapReason(enum.Enum):
    """
    A reason; the values say what it means, and what it does not.

    They are in the order in which they are shown: what an operator must know first.
    """

    LOST = "gone, and no rule explains it"
    UNEXPLAINED = "lost, or removed by a cleaning of which this directory has no record"
    UNREADABLE = "in or beside damaged batches, whose own offsets cannot be trusted"
    RETENTION = "below the log's start: deleted by retention or by a request to delete records"
    COMPACTED = "removed by cleaning: superseded records, expired tombstones and markers"
    ABORTED = "removed by cleaning, between the first record and the marker of an aborted transaction"
    HIDDEN = "still there, of an aborted transaction: read_committed readers skip them"
    MARKERS = "transaction markers, which no reader is given"


BAD_REASONS = frozenset((GapReason.LOST, GapReason.UNEXPLAINED, GapReason.UNREADABLE))
"""Reasons that keep a partition from being called complete."""
