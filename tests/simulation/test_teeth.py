"""The simulator has teeth: each of these promises broken is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

from tests.simulation import run
from tests.simulation.defects import found_by, likely_seeds
from tests.simulation.planting import breaks
from tests.simulation.run import remove_scratch

pytestmark = pytest.mark.long

# Each with a seed that finds it. A change of the product may move it: then others are tried, which takes a while, and
# the one that finds it now belongs here.
_FOUND: dict[str, int | str] = {
    "flush without fsync": 0,
    "answered as durable before the fsync": 14,
    "after an error a reader goes on behind what it read": 8,
    "failed append is not undone": 0,
    "repeats are not recognised": 0,
    "flushes are not asked for again": 0,
    "aborts are not indexed": 0,
    "rounds leave a file open": 2,
    "retention removes a segment too many": 67,
    "checkpoints outlive a topic": 3,
    "recovery believes the page cache": 78,
    "openings cut what was on disk": 1848,
    "readers keep an end from before a cut": 926,
    "recover cuts what it refused": 25381,
    "topics are made without directory fsyncs": 95,
    "topics are deleted without directory fsyncs": 28,
    "readers end at damage": 204,
    "segments stay whatever becomes of them": 0,
    "chunks that lose no record count as equal": 5,
    "checkpoint does not wait for the last swap": 27,
    "digests are compared one bit off": 27,
    "quiet rounds find nothing": 75,
    "short writes count as whole": 1,
    "proofs lose keys at borders": 43,
    "proofs pass over old formats": 38,
    "packing lets tombstones go": 72,
    "who does not see the last part": 37,
    "who counts aborted records": 138,
    "erase passes over the last segment": 1000,
    "tables have aborted records": 80,
    "gaps explain every hole": 1086,
    "changes forget deletes": 54,
    "exports remove the one before first": 285,
    "replicas take what is gone for expired": 10,
    "views do not reach the map": 6,
    "expiry is forgotten by rounds": 9,
    "rules keep records that lose at once": 95,
    "resume forgets the sequence": 21,
    "decisions are not read at the opening": 21,
    "replays end at damage": 166,
    "replays ignore generations": 35,
    "replays compare names only": 166,
    "replays take aborts for commits": 68,
    "rounds drop the last offset of a group": 144,
    "rounds exchange generations": 680,
    "fetches do not tell aborted transactions": 17,
    "fetches begin one batch late": 505,
    "the last records that were gathered are not put": 80,
    "a run is put in front of those before it": 80,
    "room stays behind closed logs": 2,
    "records are put behind the room": 2,
    "room is cut off behind the fsync": 45,
    "undone records stay in the room": 237,
    "a segment that loses its room counts as cut": 359,
    "numbers of files are given again": 1677,
    "replays leave a member at its first epoch": 144,
    "rounds drop what a group wrote last": 144,
    "replays keep targets of streams groups": 21,
    "replays take a tombstone for that of another member": 35,
    "replays let the epoch of an assignment go back": 35,
    "replays lose topologies": 35,
    "replays pass over updates of share partitions": 35,
    "replays keep what was before a snapshot": 35,
    "replays let the lower delivery count win": 35,
    "rounds take a share group back": 35,
    "replays keep share partitions without a group": 166,
    "rounds forget producers": 2,
    "erase drops the first batch of a transaction": 60,
    "cuts leave the flushed offset": 27,
    "times of indexes are set behind the fsync": 45,
    "undone appends are not forced to disk": 237,
    "fetches keep an end from before a cut": 383,
    "lines are worked out too early": 2137,
    "undo removes first what says where files belong": "undo/307",
    "states notice a cut by sizes alone": 120300315,
}


@pytest.fixture(autouse=True)
def _no_scratch_left() -> Iterator[None]:
    yield
    remove_scratch()


@pytest.mark.parametrize("name", _FOUND)
def test_planted_defect_is_found(name: str) -> None:
    """By its seed, by one of those whose worlds are likely to meet it, or by one near its own."""
    first = _FOUND[name]
    near = range(first + 1, first + 60) if isinstance(first, int) else ()
    assert found_by(name, chain([first], likely_seeds(name, 30), near)) is not None


def test_defect_that_does_not_fit_the_product_is_refused() -> None:
    """It would be found by its own error, or never, and prove nothing."""
    taken = "run_seed takes \\['seed', 'plan'\\]"
    with pytest.raises(AssertionError, match=taken):
        breaks(run, "run_seed")(lambda _real, _seed: None)
    with pytest.raises(AssertionError, match=taken):
        breaks(run, "run_seed")(lambda _real, _seed, _plan, *, other: other)
    with pytest.raises(AssertionError, match="no_such_function is gone"):
        breaks(run, "no_such_function")(lambda _real: None)
