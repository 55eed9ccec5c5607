"""Rewrites records without their values, where they have expired (`cleaner.record.ttl.ms`)."""

from __future__ import annotations

from numba import int64

from cleaner.kernels.compile import jit
from cleaner.kernels.memory import copy_bytes
from cleaner.kernels.records import read_record, read_varint
from cleaner.kernels.varints import write_varint

GROWTH_BYTES = 1
"""A record becomes longer by so much at most: a null value's length takes one byte, as an empty value's does."""


@jit
def remove_values(data, unpacked, batches, changed, is_read, expired, out, at):
    """
    Copy the records of some batches, expired ones without their values; the batches then point to the copies.

    Args:
        data, unpacked, batches: the batches and their records, which were checked before.
        changed: uint8 a batch; 1 for those to copy.
        is_read: uint8 a batch; 1 if its records are counted in `expired`.
        expired: uint8 a record of all batches that are read; 1 takes its value away.
        out, at: where to write; there is room for the copies, and GROWTH_BYTES a record.
    """
    ordinal = int64(0)
    for b in range(batches.size):
        row = batches[b]
        if not is_read[b]:
            continue
        if not changed[b]:
            ordinal += row.count
            continue
        body = unpacked if row.unpacked else data
        read_at, start = row.body_start, at
        for _ in range(row.count):
            _, after, _, _, _, key_start, key_size, value_size, _ = read_record(body, read_at, row.body_end)
            if not expired[ordinal]:
                copy_bytes(out, at, body, read_at, after - read_at)
                at += after - read_at
            else:
                _, fields, _ = read_varint(body, read_at, row.body_end, 5)
                value_field = key_start + max(key_size, int64(0))
                _, value_start, _ = read_varint(body, value_field, row.body_end, 5)
                headers = value_start + max(value_size, int64(0))
                size = (value_field - fields) + 1 + (after - headers)
                at = write_varint(out, at, size)
                copy_bytes(out, at, body, fields, value_field - fields)
                at = write_varint(out, at + value_field - fields, int64(-1))
                copy_bytes(out, at, body, headers, after - headers)
                at += after - headers
            ordinal += 1
            read_at = after
        row.body_start = start
        row.body_end = at
        row.unpacked = 1
