"""
Prepares every kernel of a round before it is needed.

A kernel is compiled, or loaded from the cache, at its first call. A process that gives up root must load all of them
before, because the cache belongs to root; a daemon must not keep its first partition waiting. So both passes run over a
log of a few records in memory: the same calls with the same types as for a real log.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from cleaner.base.model import AbortedTxn, LastRecord
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.index_follower import IndexFollower
from cleaner.cleaning.passes.transactions import CleanedTransactions
from cleaner.cleaning.recopy.batch_retention import ActiveProducers, decide_retention
from cleaner.cleaning.recopy.erasure import ErasedRecords, ErasingSurvivors
from cleaner.cleaning.recopy.expiry import Expiry
from cleaner.cleaning.recopy.offset_bits import OffsetBits
from cleaner.cleaning.recopy.recompress import Recompressor
from cleaner.cleaning.recopy.retained import RetainedWriter
from cleaner.cleaning.recopy.survivors import BitmapSurvivors, BlockRetention, MapSurvivors
from cleaner.config.forms import Recompression
from cleaner.format.batch import Chunk, ReadBuffer, SegmentReader
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import compress
from cleaner.format.encode import encode_batches, join_columns
from cleaner.format.key_digests import KeyDigests, new_secret
from cleaner.format.layout import Layout, cut_out, lay_out
from cleaner.format.parallel_reader import verify_checksums
from cleaner.format.record_numbers import RecordNumbers
from cleaner.format.records import Block, Unpacker
from cleaner.kernels import PAD_BYTES, proof, retain, table
from cleaner.kernels import columns as column_kernel
from cleaner.kernels import offset_map as map_kernel
from cleaner.kernels import transactions as transaction_kernel
from cleaner.kernels.batch_header import HEADER, MAGIC
from cleaner.kernels.checksums import crc32c, xxhash32
from cleaner.kernels.codec_table import GZIP, LZ4, NONE, SNAPPY
from cleaner.policy.survivor_rule import SurvivorRule
from cleaner.state.key_index import IndexBlock
from cleaner.storage.segment.index_builder import IndexBuilder
from cleaner.storage.segment.indexes import offset_entries
from cleaner.verification.proof.erased.wanted import WantedKeys, header_sizes

# length 10, attributes 0, deltas 0, key "k", value "value", no headers
_RECORD = bytes([24, 0, 0, 0, 2]) + b"k" + bytes([10]) + b"value" + bytes([0])
# The same with a header that is not UTF-8: a rewrite changes it.
_ODD_RECORD = bytes([30]) + _RECORD[1:-1] + bytes([2, 2, 0xFF, 1])


class _MemoryFile:
    """A `.log` that is not on any disk."""

    def __init__(self, content: bytes) -> None:
        self.path = Path("warm-up")
        self._content = content

    def read_into(self, buffer: memoryview, position: int) -> int:
        part = self._content[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


def _batch(offset: int, attributes: int, records: bytes) -> bytes:
    """Return a batch of magic 2 with one record."""
    header = HEADER.pack(offset, 0, 0, MAGIC, 0, attributes, 0, -1, -1, -1, -1, -1, 1)
    data = np.frombuffer(bytearray(header + records + bytes(PAD_BYTES)), np.uint8)
    end = len(header) + len(records)
    retain.seal_batch(data, 0, end)
    return data[:end].tobytes()


def _wrapper(offset: int, packed: bytes) -> bytes:
    """Return a compressed batch of magic 0 (R-241) around some entries."""
    body = bytes([0, GZIP]) + b"\xff\xff\xff\xff" + len(packed).to_bytes(4, "big") + packed
    entry = zlib.crc32(body).to_bytes(4, "big") + body
    return offset.to_bytes(8, "big") + len(entry).to_bytes(4, "big") + entry


def _log() -> bytes:
    """Return batches of every kind that has its own kernels: plain, packed with snappy, odd, and of magic 0."""
    packed = GrowingBuffer()
    size = compress(SNAPPY, memoryview(bytearray(_RECORD)), packed, 0)
    log = _batch(0, 0, _RECORD) + _batch(1, SNAPPY, packed.view[:size].tobytes()) + _batch(2, 0, _ODD_RECORD)
    inner_body = b"\0\0" + b"\xff" * 8  # magic 0, no codec, null key and value
    inner = zlib.crc32(inner_body).to_bytes(4, "big") + inner_body
    return log + _wrapper(3, gzip.compress((3).to_bytes(8, "big") + len(inner).to_bytes(4, "big") + inner, mtime=0))


def _encode() -> None:
    """Build batches as an append does: its kernels take other arrays than those of a round."""
    columns = join_columns([b"value", None], [b"k", None], 0, [[("h", b"x")], []])
    for codec in (NONE, LZ4):
        encode_batches(columns, GrowingBuffer(), codec=codec, batch_bytes=1024, scratch=GrowingBuffer())


def _split_columns(layout: Layout) -> None:
    """Put keys and headers into columns, as for a DataFrame."""
    count = len(layout)
    ends, is_there = np.zeros(count + 1, np.int32), np.zeros(count // 8 + 1, np.uint8)
    target = GrowingBuffer()
    column_kernel.join_fields(layout.data, layout.key_starts, layout.key_sizes, target.array, 0, ends, is_there, 0)
    total = column_kernel.count_headers(layout.data, layout.header_starts, np.zeros(count, np.int64))
    column_kernel.find_headers(layout.data, layout.header_starts, np.zeros((4, int(total)), np.int64))


def _search_keys(layout: Layout) -> None:
    keys = WantedKeys([b"key"], [b"prefix"])
    keys.of_records(layout)
    header_sizes(layout)
    for _ in keys.in_bytes(layout.data, 0):
        pass


def _look_up(layout: Layout) -> None:
    """Call the kernels of a table of keys."""
    words, moved, secret = np.zeros(4096, np.uint64), np.zeros(4096, np.uint64), new_secret()
    keys = layout.data, layout.key_starts, layout.key_sizes
    table.put_keys(words, 1024, secret, *keys, layout.offsets, np.zeros(len(layout), np.int64), 0, 0, 1000)
    table.move_keys(words, moved, 1024)
    rows, grouped = np.zeros(4 * len(layout), np.uint64), np.zeros(4 * len(layout), np.uint64)
    table.digest_entries(secret, *keys, layout.offsets, np.zeros(len(layout), np.int64), 0, rows, 0)
    table.group_entries(rows, len(layout), grouped, np.zeros(table.GROUPS, np.int64))
    table.count_missing(words, 1024, grouped)
    table.put_entries(words, 1024, grouped, 0, 0, 1000)
    out, scratch = np.zeros(1024, np.uint8), np.zeros(table.SCRATCH_WORDS, np.uint64)
    table.are_current(words, 1024, secret, *keys, layout.offsets, scratch, np.zeros(len(layout), bool))
    one, cell = np.zeros(1, np.int64), np.zeros((3, 1), np.int64)
    no_file = np.full(1, -1, np.int64)
    key = np.zeros(PAD_BYTES, np.uint8)
    state = np.zeros(2, np.int64)
    statuses, shelves = np.zeros(1, np.uint8), np.zeros(table.SHELF_WORDS * table.SHELVES_A_PLACE, np.int64)
    table.shelf_for(shelves, 1)
    unpacked = out, out.view(np.int64), shelves, one
    table.read_values(words, 1024, secret, no_file, 0, *unpacked, key, one, one, scratch, out, statuses, cell, state)


def _erase(path: Path, block: Block, retention: BlockRetention) -> None:
    copied = replace(retention, batches=retention.batches.copy())
    ErasingSurvivors(ErasedRecords([b"key"])).judge(path, block, copied, np.zeros(4, np.uint8))


def _prove(chunk: Chunk, layout: Layout) -> None:
    """Compare a chunk and its records with themselves, as a proof compares two logs."""
    rows, partners = chunk.batches, np.zeros(len(chunk.batches), np.int64)
    proof.find_same_batches(chunk.data, rows, chunk.data, rows, partners, np.zeros(len(rows), np.uint8))
    keys = np.zeros(proof.DIGEST_WORDS, np.uint64)
    digests = np.zeros(proof.DIGEST_WORDS * len(layout), np.uint64)
    proof.digest_fields(layout.data, layout.key_starts, layout.key_sizes, keys, digests)
    columns = (
        layout.data,
        layout.timestamps_ms,
        layout.key_starts,
        layout.key_sizes,
        layout.value_starts,
        layout.value_sizes,
        layout.header_starts,
    )
    of_records = np.zeros(len(layout), np.int64)
    proof.compare_records(*columns, *columns, of_records, np.zeros(len(layout), np.uint8))


def _own_rules(log: bytes) -> None:
    """Call the kernels of topics with a survivor rule or an age of their own."""
    by_number, path = OffsetMap(8, 8, SurvivorRule(2, RecordNumbers(b"h"))), Path("warm-up")
    digests, verdicts = KeyDigests(numbers=by_number.rule.numbers), np.full(4, map_kernel.KEEP, np.uint8)
    for chunk in SegmentReader(_MemoryFile(log), size=len(log), buffer=ReadBuffer(4096), check_order_from=0):
        no_flags = np.zeros(len(chunk.batches), np.uint8)
        for block in Unpacker(1 << 20).blocks(path, chunk):
            by_number.put(digests.of(path, block, no_flags, by_number.keys))
            undecided = BlockRetention.undecided(len(chunk.batches), legacy_deletes_stay=True)
            Expiry(2**62, 3).apply(path, block, undecided, verdicts)


def warm_up(*, rounds_only: bool = False) -> None:
    """
    Compile or load every kernel: `ABOUT_SECONDS` the first time on a machine, then a third of a second.

    Args:
        rounds_only: leave out those that only `erase` and `prove-erased` use.
    """
    _encode()
    log = _log()
    offset_map, unpacker, path = OffsetMap(8, 8), Unpacker(1 << 20), Path("warm-up")
    bits = OffsetBits(0)
    bits.set(np.zeros(1, np.int64))
    by_bits = BitmapSurvivors(bits, 0, 0, 0)
    survivors, writer = MapSurvivors(offset_map, 0), RetainedWriter(0)
    read, written = (IndexBuilder(path, 0, interval_bytes=0, max_index_bytes=1024) for _ in range(2))
    digests, packer = KeyDigests(), Recompressor(Recompression(LZ4), 1 << 20, unpacker.limit_bytes)
    crc32c(b"")
    xxhash32(b"")
    for chunk in SegmentReader(_MemoryFile(log), size=len(log), buffer=ReadBuffer(4096), check_order_from=0):
        read.append(chunk.batches)
        verify_checksums(path, chunk)
        IndexFollower(offset_entries([], []), path, 0).add_batches(chunk.batches)
        no_flags = np.zeros(len(chunk.batches), np.uint8)
        transactions = CleanedTransactions()
        transactions.add_aborted([AbortedTxn(7, 0, 0, 1)])
        transaction_kernel.list_markers(chunk.data, chunk.batches, np.empty(len(chunk.batches), np.int8))
        retention = decide_retention(
            chunk.batches,
            transactions.discardable(path, chunk),
            ActiveProducers({7: LastRecord(3, 0)}),
            kept_end_offset=4,
            removal_ms=0,
            legacy_deletes_stay=True,
        )
        verdicts = np.zeros(4, np.uint8)
        writer.begin(len(chunk.batches))
        for block in unpacker.blocks(path, chunk, record_limit_bytes=unpacker.limit_bytes - 1):
            layout = lay_out(path, block, no_flags, 0, 4)
            cut_out(layout.data, layout.key_starts, layout.key_sizes)
            _prove(chunk, layout)
            _split_columns(layout)
            offset_map.put(digests.of(path, block, no_flags, offset_map.keys))
            survivors.judge(path, block, retention, verdicts)
            by_bits.judge(path, block, retention, verdicts)
            if not rounds_only:
                _search_keys(layout)
                _look_up(layout)
                _erase(path, block, retention)
            verdicts[:] = map_kernel.KEEP_TOMBSTONE  # sets a horizon: all batches are rebuilt, some of them packed
            writer.write(path, block, retention, verdicts)
        writer.equals(chunk)
        output = writer.end()
        written.append(output.written)
        packer.begin(0)
        packer.add(path, output, is_equal=False)
        packer.end()
    written.close()
    _own_rules(log)
    offset_map.get(b"k")
    offset_map.are_all_latest(0, 0, 1)
    offset_map.has_any(IndexBlock(0, 0, np.zeros(1, np.uint16), np.zeros(0, np.uint32)))
    no_numbers = np.zeros(0, np.uint64)
    map_kernel.move_entries(offset_map.table, no_numbers, OffsetMap(8, 8).table, no_numbers, 9, 0, 0)
