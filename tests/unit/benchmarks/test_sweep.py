"""Shapes drawn at random."""

from __future__ import annotations

from benchmarks.sweep import draw


def test_draw_with_equal_seeds_makes_equal_shapes() -> None:
    """A slow shape can be made again from its seed."""
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_draw_makes_shapes_that_kafka_accepts() -> None:
    """A segment takes any batch, a key length tells all keys apart, and only producers have transactions."""
    for seed in range(500):
        options = draw(seed).options
        segment, batch, keys, key_bytes, records = (
            int(str(options[name])) for name in ("segment-bytes", "batch-bytes", "keys", "key-bytes", "records")
        )
        assert batch <= segment <= 1 << 30
        assert max(keys, records) <= 256**key_bytes
        assert records >= 100
        assert options["producers"] or not options["transactions"]
