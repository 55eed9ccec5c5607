"""
Plain codecs and checksums for tests: whole bytes in, whole bytes out, in Kafka's framings (R-250..R-253).

They share no code with `cleaner.format.compression`, so a test that packs here and unpacks there is a real check.
"""

from __future__ import annotations

import random
import struct
import zlib

import cramjam
import google_crc32c

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 1 << 31
# Frame magic, FLG 0x60 (version 1, independent blocks), BD 0x40 (64 KiB blocks); the check byte follows.
_LZ4_HEADER = bytes.fromhex("04224d186040")
_LZ4_CHECK = b"\x82"
_LZ4_CHECK_MAGIC_0 = b"\x1a"
_GZIP_LOOKS_AHEAD_BYTES = 19  # the JDK ignores fewer bytes than this after a member, whatever they are


class BadStream(Exception):
    """The bytes are not a whole stream of their codec."""


def some_text(size: int, seed: int = 0) -> bytes:
    """Make data that packs to a half or so."""
    generator = random.Random(size + seed)
    words = [generator.randbytes(generator.randrange(2, 40)) for _ in range(300)]
    return b" ".join(generator.choices(words, k=size // 15 + 1))[:size]


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of `data`."""
    return int(google_crc32c.value(data))


def compress(codec: str, data: bytes, magic: int = 2) -> bytes:
    """Compress `data` as one stream at Kafka's default level; `none` returns it unchanged."""
    if codec == "none":
        return data
    if codec == "gzip":
        deflate = zlib.compressobj(-1, zlib.DEFLATED, -15)
        body = deflate.compress(data) + deflate.flush()
        return (
            bytes.fromhex("1f8b08000000000000ff") + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
        )
    if codec == "snappy":
        blocks = (bytes(cramjam.snappy.compress_raw(part)) for part in _parts(data, _XERIAL_BLOCK))
        return _XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == "lz4":
        out = bytearray(_LZ4_HEADER + (_LZ4_CHECK if magic else _LZ4_CHECK_MAGIC_0))
        for part in _parts(data, _LZ4_BLOCK):
            block = bytes(cramjam.lz4.compress_block(part, store_size=False))
            stored = len(block) >= len(part)
            out += (
                struct.pack("<I", len(part) | _LZ4_STORED) + part if stored else struct.pack("<I", len(block)) + block
            )
        return bytes(out + bytes(4))
    if codec == "zstd":
        return bytes(cramjam.zstd.compress(data, level=3))
    raise ValueError(f"no codec {codec!r}")


def compress_snappy_raw(data: bytes) -> bytes:
    """Compress with snappy's raw format, without xerial blocks, as librdkafka may."""
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(codec: str, data: bytes) -> bytes:
    """
    Unpack one whole stream. Unbounded: for a test's own data, never for hostile bytes.

    Raises:
        BadStream: the stream is damaged, cut or followed by other bytes; after gzip, by more than Kafka ignores.
    """
    if codec == "none":
        return data
    try:
        if codec == "gzip":
            inflate = zlib.decompressobj(31)
            out = inflate.decompress(data)
            if not inflate.eof or len(inflate.unused_data) >= _GZIP_LOOKS_AHEAD_BYTES:
                raise BadStream("gzip stream incomplete, or more bytes after it")
            return out
        if codec == "snappy":
            return _snappy(data)
        if codec == "lz4":
            return _lz4(data)
        if codec == "zstd":
            return bytes(cramjam.zstd.decompress(data))
    except (zlib.error, cramjam.DecompressionError, struct.error, IndexError) as error:
        raise BadStream(f"{codec}: {error}") from error
    raise ValueError(f"no codec {codec!r}")


def _parts(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def _snappy(data: bytes) -> bytes:
    if data[:8] != _XERIAL[:8]:
        return bytes(cramjam.snappy.decompress_raw(data))
    out, at = bytearray(), len(_XERIAL)
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return bytes(out)


def _lz4(data: bytes) -> bytes:
    """Walk Kafka's frame by hand: no library accepts the check byte of magic 0."""
    flags = data[4]
    at = 7 + (8 if flags & 0x08 else 0)
    limit = 1 << (8 + 2 * ((data[5] >> 4) & 7))
    out = bytearray()
    while True:
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if size == 0:
            break
        block = data[at : at + (size & ~_LZ4_STORED)]
        out += block if size & _LZ4_STORED else _lz4_block(block, limit)
        at += len(block) + (4 if flags & 0x10 else 0)
    if at + (4 if flags & 0x04 else 0) != len(data):
        raise BadStream("bytes behind the lz4 frame")
    return bytes(out)


def _lz4_block(block: bytes, limit_bytes: int) -> bytes:
    # `decompress_block` would pad the result with zeros up to the limit; this one returns the length.
    out = bytearray(limit_bytes)
    return bytes(out[: cramjam.lz4.decompress_block_into(block, out)])
