"""CRC-32C of small files: the same as the kernel's, which is loaded only for many bytes."""

from __future__ import annotations

import subprocess
import sys

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.checksums import crc32c, crc32c_by_table


@given(st.binary(max_size=300))
def test_table_and_kernel_agree_with_another_library(data: bytes) -> None:
    """R-125, R-201: one checksum, by either way."""
    assert crc32c(data) == crc32c_by_table(memoryview(data)) == google_crc32c.value(data)


def test_kernel_is_loaded_once_many_bytes_were_checked() -> None:
    """The table is slow, so a process uses it only for a limited number of bytes."""
    program = (
        "import sys\n"
        "from cleaner.format import checksums\n"
        "checksums._TableBytes.left = 9\n"
        "assert checksums.crc32c(b'123456789') == 0xE3069283\n"
        "assert 'cleaner.kernels.checksums' not in sys.modules\n"
        "assert checksums.crc32c(b'123456789') == 0xE3069283\n"
        "assert 'cleaner.kernels.checksums' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
