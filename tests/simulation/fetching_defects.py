"""Planted defects of what `cleaner serve` answers to a Fetch; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner.read import extent
from cleaner.serve.partition import Partition
from cleaner.serve.reading import Reader
from tests.simulation.planting import breaks


@breaks(Partition, "_aborted_in")
def fetches_do_not_tell_aborted_transactions(_real: Any, *_args: Any) -> list[Any]:
    """A consumer takes their records for committed ones."""
    return []


@breaks(Partition, "_aborted_in")
def fetches_tell_the_first_aborted_transaction_only(real: Any, *args: Any) -> Any:
    """The others are taken for committed ones."""
    return real(*args)[:1]


@breaks(Partition, "reach")
def fetches_end_at_the_high_watermark(real: Any, *args: Any, **named: Any) -> Any:
    """Not at the last stable offset: a consumer is shown what is undecided."""
    found = real(*args, **named)
    return replace(found, last_stable=found.high_watermark)


@breaks(extent, "_first_batch")
def fetches_begin_one_batch_late(real: Any, segment: Any, size: int, offset: int) -> Any:
    """Where a batch of several records begins at the wanted offset, its first one is missing."""
    return real(segment, size, offset + 1)


@breaks(extent, "_find")
def fetches_end_where_a_segment_has_nothing_left(real: Any, files: Any, listing: Any, first: int, *more: Any) -> Any:
    """What was cleaned away at the end of a segment is taken for the end of the log."""
    only = max(listing.holder_of(first), 0)
    return real(files, replace(listing, places=listing.places[: only + 1]), first, *more)


@breaks(Reader, "_fetch_one")
def fetches_forget_to_close_what_they_opened(real: Any, *args: Any, **named: Any) -> Any:
    """A segment stays open behind each answer."""
    found = real(*args, **named)
    named["fetched"].records.clear()
    return found


@breaks(Partition, "_require_same")
def fetches_go_on_in_the_next_topic_of_the_name(_real: Any, *_args: Any) -> None:
    """A topic is deleted and made again between two answers: a consumer gets the records of both."""


@breaks(Partition, "extent")
def fetches_keep_an_end_from_before_a_cut(
    real: Any, self: Any, offset: int, reach: Any, *args: Any, **named: Any
) -> Any:
    """What has the offsets of what was cut off is taken for it: a consumer is shown what is undecided."""
    self._files.generation = lambda: reach.generation
    try:
        return real(self, offset, reach, *args, **named)
    finally:
        del self._files.generation
