"""
`prove-erased` between two lives: a process reads everything, and its verdict is compared with what is known.

Known are the keys that readers must be shown, keys that were never sent, and a left-over that an operator has made: in
a kept copy, a renamed segment, an aborted transaction, among bytes, compressed, or none. The copies may change while
they are read: the left-over goes from a file that is still to be read to one that was read. A daemon may be at work.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from cleaner.app.erasure_proof import Wanted, prove_erased
from cleaner.app.options import CallContext
from cleaner.verification.proof.erased.certificate import Certificate
from cleaner.verification.proof.erased.file_search import WINDOW_BYTES
from tests.reference.erased import places
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong
from tests.simulation.plan import KEYS, Rest
from tests.support.batch_builder import Producer, Record, data_batch, legacy_batch

NEVER_SENT = b"a key that nobody has sent"
LEFT_OVER = b"a key that was left over"
_LETTERS_NEVER_SENT = (b"q", b"x-y")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SEGMENT = "topic-9/00000000000000000000.log"


_OF_ACCIDENTS = ("no file descriptor is left", os.strerror(errno.EIO))


class ProvedWorld:
    """
    What is proved in one rest.

    Args:
        bench: what all share.
        rest: its number says what is left over, and where.
        has_daemon: it may be at work in the logs.
        is_closed: they were closed in order, and have no damage.
    """

    def __init__(self, bench: Bench, rest: Rest, *, has_daemon: bool, is_closed: bool) -> None:
        self._bench = bench
        self._rng = Random(rest.number + bench.done)  # another left-over in each rest
        self._has_daemon = has_daemon
        self._is_closed = is_closed
        self._copies = bench.log_dir.parent / "copies"
        self._has_left_over = self._moves = False
        self._looks = 0
        self.certificate: Certificate | None = None

    def command(self, fs: SimFiles) -> None:
        """Make the left-over, and have the certificate made."""
        shutil.rmtree(self._copies, ignore_errors=True)
        directories = [self._bench.log_dir, self._copies]
        self._leave()
        self._looks = self._rng.randrange(1, 9) if self._moves else 0
        keys, known = [NEVER_SENT, LEFT_OVER, *_LETTERS_NEVER_SENT], set[bytes]()
        if not self._moves and self._rng.random() < 0.7:
            keys += [key.encode() for key in KEYS]
            known = self._known()
        context = CallContext(fs=fs, clock=self._bench.clock, check_done=self._look)
        try:
            self.certificate = prove_erased(directories, Wanted(keys=keys), context)
        finally:
            shutil.rmtree(self._copies, ignore_errors=True)
        self._judge(self.certificate, keys, known)

    def _known(self) -> set[bytes]:
        """Return the keys that must be found: the last committed record of each."""
        known = set()
        for name in self._bench.topics.compacted:
            oracle = self._bench.topics.now[name]
            shown, _ = oracle.must_be_shown()
            oracle.start.look()  # retention may have removed some since
            last = {sent.key: sent for at, sent in sorted(shown.items()) if at >= oracle.start.offset}
            # What an erased record had superseded is gone, too.
            superseded = {sent.key for sent in oracle.sent.values() if sent.was_cleaned}
            known |= {key.encode() for key, sent in last.items() if sent.value is not None and key not in superseded}
        return known

    def _look(self) -> None:
        """Be called before each chunk: now and then the copies change."""
        self._looks -= 1
        if self._moves and self._looks == 0:
            first, last = sorted(path for path in self._copies.iterdir() if path.is_file())
            content = last.read_bytes()
            last.write_bytes(bytes(len(content)))
            first.write_bytes(content)

    def _leave(self) -> None:
        rng, copies = self._rng, self._copies
        kind = rng.choice(("none", "moved", "deleted", "aborted", "packed", "legacy", "border", "kept"))
        self._has_left_over, self._moves = kind != "none", kind == "moved"
        records = [Record(b"x", b"y"), Record(LEFT_OVER, b"value"), Record(b"z", None)]
        batch = data_batch(records, 0, codec=rng.choice(_CODECS[:1] if kind == "aborted" else _CODECS))
        write: Callable[[str, bytes], None] = lambda name, data: _write(copies / name, data)  # noqa: E731
        write("topic-9/notes", b"nothing")
        if kind == "moved":
            write("a", bytes(len(batch)))
            write("z", batch)
        elif kind == "deleted":
            write(f"{_SEGMENT}.deleted", batch)
        elif kind == "aborted":
            write(_SEGMENT, data_batch(records, 0, producer=Producer(5, 0, 0, True)))
        elif kind == "packed":
            write(_SEGMENT, data_batch(records, 0, codec=rng.choice(_CODECS[1:])))
        elif kind == "legacy":
            magic = rng.choice((0, 1))
            write(_SEGMENT, legacy_batch(records, 0, magic, codec=rng.choice(_CODECS[:4])))
        elif kind == "border":
            at = WINDOW_BYTES - rng.randrange(1, len(LEFT_OVER))
            write("unknown", bytes(at) + LEFT_OVER + bytes(100))
        elif kind == "kept":
            write(f"group/{_SEGMENT}", batch)

    def _judge(self, certificate: Certificate, keys: list[bytes], known: set[bytes]) -> None:
        """Compare the verdict with what is known."""
        found = {keys[each.key_line - 1] for each in certificate.found if each.key_line is not None}
        if found & {NEVER_SENT, *_LETTERS_NEVER_SENT}:
            raise Wrong("prove-erased has found a key that was never sent")
        if LEFT_OVER in found and not self._has_left_over:
            raise Wrong("prove-erased has found a left-over where there is none")
        if certificate.result == "proven" and (known or self._has_left_over):
            # If it moves: it was there at every moment, wherever it was.
            raise Wrong(f"prove-erased has proven keys erased that are there: {known}")
        if self._moves or any(reason in each.reason for each in certificate.not_searched for reason in _OF_ACCIDENTS):
            return
        if self._has_left_over and LEFT_OVER not in found:
            raise Wrong(f"prove-erased has not found a left-over: {certificate.result}")
        if self._has_daemon:
            return
        there = self._in_logs(keys)
        if found - {LEFT_OVER} != there or not known <= there:
            raise Wrong(f"prove-erased has found {found}; in the logs are {there}, readers must be shown {known}")
        # A deleted topic's logs may be torn.
        is_whole = self._is_closed and not list(self._bench.log_dir.glob("*-delete"))
        if not found and is_whole and certificate.result != "proven":
            raise Wrong(f"nothing is left over, and prove-erased says {certificate.not_searched}")

    def _in_logs(self, keys: list[bytes]) -> set[bytes]:
        """Return the keys of records in the logs, as the slow twin reads them."""
        paths = [path for path in self._bench.log_dir.rglob("*.log*") if path.is_file()]
        return {place.key for path in paths for place in places(path.read_bytes(), keys) if place.level != "mention"}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
