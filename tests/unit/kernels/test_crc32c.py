"""CRC-32C against Google's library, through every lane and through the tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import uint64

from cleaner.kernels import crc32c as kernel
from cleaner.kernels.checksums import crc32c
from cleaner.kernels.compile import jit
from cleaner.kernels.crc32c import crc32c_range
from cleaner.kernels.memory import load_u64_le

pytestmark = pytest.mark.kernels

_SHORT, _LONG = 3 * 256, 3 * 2048
_BOUNDARIES = (0, 8, _SHORT, 2 * _SHORT, _LONG, _LONG + _SHORT, 2 * _LONG, 2 * _LONG + 3 * _SHORT)
LENGTHS = sorted({max(0, boundary + i) for boundary in _BOUNDARIES for i in range(-9, 10)})

RANDOM = np.random.default_rng(20).integers(0, 256, 2 * _LONG + 4 * _SHORT, np.uint8)


@jit
def _by_tables(data, start, end):  # type: ignore[no-untyped-def]
    state = uint64(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        state = kernel._table_8_bytes(state, load_u64_le(data, at))
        at += 8
    while at < end:
        state = kernel._SLICING[(state ^ uint64(data[at])) & uint64(255)] ^ (state >> uint64(8))
        at += 1
    return state ^ uint64(0xFFFFFFFF)


def test_crc32c_of_check_string_is_published_value() -> None:
    """The catalogue's check value of CRC-32/ISCSI."""
    assert crc32c(b"123456789") == 0xE3069283


def test_crc32c_at_lane_boundaries_equals_google() -> None:
    """Every length around a boundary of the short and the long lanes, at every alignment."""
    for length in LENGTHS:
        for start in range(8) if length < 64 else (0, 1, 5):
            expected = google_crc32c.value(RANDOM[start : start + length].tobytes())
            assert crc32c_range(RANDOM, start, start + length) == expected, (start, length)


def test_table_steps_at_lane_boundaries_equal_google() -> None:
    """Where the processor has no instruction the tables give the same checksum."""
    for length in LENGTHS:
        expected = google_crc32c.value(RANDOM[3 : 3 + length].tobytes())
        assert _by_tables(RANDOM, 3, 3 + length) == expected, length


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=["bytes", "bytearray", "memoryview"])
def test_crc32c_takes_any_buffer(kind: type) -> None:
    """Readers and writers pass several types."""
    assert crc32c(kind(b"record batch")) == google_crc32c.value(b"record batch")


@given(st.binary(max_size=4000), st.integers(0, 7))
def test_crc32c_of_any_bytes_equals_google(data: bytes, cut: int) -> None:
    """Any content, any alignment."""
    assert crc32c(memoryview(data)[cut:]) == google_crc32c.value(data[cut:])


@pytest.mark.parametrize("zeros", [256, 512, 2048, 4096])
def test_append_zeros_table_equals_feeding_zeros(zeros: int) -> None:
    """The tables that join the lanes say what that many zero bytes do to a state."""
    tables = {256: kernel._SHORT_ONE, 512: kernel._SHORT_TWO, 2048: kernel._LONG_ONE, 4096: kernel._LONG_TWO}
    state = 0x12345678
    joined = 0
    for row in range(4):
        joined ^= int(tables[zeros][256 * row + (state >> 8 * row & 255)])
    for _ in range(zeros):
        state = int(kernel._SLICING[state & 255]) ^ (state >> 8)
    assert joined == state


OLD_PROCESSOR = """
import llvmlite.binding
llvmlite.binding.get_host_cpu_features = llvmlite.binding.FeatureMap
import google_crc32c
from cleaner.kernels import crc32c as kernel
from cleaner.kernels.checksums import crc32c
assert not kernel.HAS_INSTRUCTION
data = bytes(range(256)) * 60
for size in (0, 1, 7, 8, 9, 767, 768, 769, 6143, 6144, 6151, 6912, 15_000):
    assert crc32c(data[:size]) == google_crc32c.value(data[:size]), size
print("equal")
"""


def test_crc32c_on_a_processor_without_the_instruction_equals_google(tmp_path: Path) -> None:
    """The lanes then use the tables; tested in a process that sees no processor features."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", OLD_PROCESSOR]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "equal\n"
