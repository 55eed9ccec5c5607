"""Bytes of a file changed anywhere, and numbers that programs get wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

ODD = (
    0,
    1,
    -1,
    2,
    7,
    13,
    14,
    26,
    48,
    49,
    60,
    61,
    62,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
)

Rng = random.Random


def change_bytes(rng: Rng, path: Path) -> str:
    """Change bytes, and put nothing right."""
    data = bytearray(path.read_bytes())
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 61, 200))
    kinds: dict[str, Callable[[], bytearray]] = {
        "cut off": lambda: data[:at],
        "flip": lambda: flipped(rng, data),
        "zero to the end": lambda: data[:at] + bytes(len(data) - at),
        "leave out": lambda: data[:at] + data[at + size :],
        "insert": lambda: data[:at] + rng.randbytes(size) + data[at:],
        "repeat": lambda: data[:at] + data[max(0, at - size) : at] + data[at:],
        "append zeros": lambda: data + bytes(rng.choice((1, 7, 8, 11, 4096, 1 << 20))),
        "append noise": lambda: data + rng.randbytes(rng.choice((1, 16, 60, 61, 100))),
        "odd number": lambda: data[:at] + odd(rng, rng.choice((1, 2, 4, 8))) + data[at + 8 :],
    }
    what = rng.choice(sorted(kinds))
    path.write_bytes(kinds[what]())
    return f"{path.name}: {what} at {at}, {size}"


def flipped(rng: Rng, data: bytearray) -> bytearray:
    for _ in range(rng.choice((1, 1, 3, 20))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def odd(rng: Rng, width: int) -> bytes:
    number = rng.choice(ODD) if rng.random() < 0.8 else rng.getrandbits(8 * width)
    return (number % 256**width).to_bytes(width, "big")
