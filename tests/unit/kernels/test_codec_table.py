"""The single table of codecs: Kafka's ids and names, and code that packs and unpacks each of them."""

from __future__ import annotations

import pytest

from cleaner.config.table import TOPIC_SETTINGS
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressionError
from cleaner.format.compression import compress, decompress
from cleaner.kernels.codec_table import CODEC_NAMES, CODECS, KERNEL_CODECS, LAST_CODEC, Codec
from tests.support.codecs import CODEC_IDS

pytestmark = pytest.mark.kernels


def test_codecs_have_kafkas_ids() -> None:
    """An id is the row's number; names are Kafka's (R-210)."""
    assert [codec.id for codec in CODECS] == list(range(len(CODECS)))
    assert dict(zip(CODEC_NAMES, range(len(CODECS)), strict=True)) == CODEC_IDS


def test_last_codecs_by_magic() -> None:
    """Magic 0 and 1 have the codecs up to lz4 (R-241)."""
    assert LAST_CODEC == (3, 3, 4)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_codec_of_the_table_packs_and_unpacks(codec: Codec) -> None:
    """Every row can be written and read, with the magics that have it."""
    data, packed, out = b"some bytes " * 50, GrowingBuffer(), GrowingBuffer()
    size = compress(codec.id, memoryview(data), packed, 0)
    assert out.view[: decompress(codec.id, 2, packed.view[:size], out, 0, 1 << 20)] == data
    if codec.min_magic:
        with pytest.raises(DecompressionError, match=f"{codec.name} in a batch of magic"):
            decompress(codec.id, codec.min_magic - 1, packed.view[:size], out, 0, 1 << 20)


def test_setting_offers_every_codec() -> None:
    """`compression.type` has all names of the table; for `none` it has its own word, as Kafka does."""
    assert set(TOPIC_SETTINGS["compression.type"].choices) == {*CODEC_NAMES[1:], "uncompressed", "producer"}


def test_kernel_codecs_are_bits() -> None:
    """The kernels' mask has a bit for each codec they know."""
    assert KERNEL_CODECS == 0b11100
