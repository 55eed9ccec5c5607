"""Words, lines and values of checkpoints, properties and JSON changed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fuzz.change_bytes import ODD, Rng, change_bytes

_TEXTS = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"-1",
    b"99999999999999999999999",
    "٣".encode(),
    b"1e3",
    b"0x7",
    b" ",
    b"\r",
    b"nan",
)
_JSON = (
    None,
    -1,
    2**70,
    1.5,
    True,
    "",
    "x" * 300,
    "../../etc",
    "/",
    "\ud800",
    [],
    {},
    [[]],
    "NaN",
    -(2**63),
    "topic--1",
)


def change_text(rng: Rng, path: Path) -> str:
    """Change a word or a line of a checkpoint or a properties file."""
    data = path.read_bytes()
    if rng.random() < 0.25:
        return change_bytes(rng, path)
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    what = rng.choice(("word", "word", "word", "again", "gone", "joined", "long"))
    if what == "word":
        words = lines[at].replace(b"=", b" = ").split(b" ")
        number = str(rng.choice(ODD)).encode()
        words[rng.randrange(len(words))] = number if rng.random() < 0.6 else rng.choice(_TEXTS)
        lines[at] = b" ".join(words).replace(b" = ", b"=")
    elif what == "again":
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif what == "gone":
        del lines[at]
    elif what == "joined":
        lines[at : at + 2] = [b"".join(lines[at : at + 2])]
    else:
        lines[at] = lines[at][:1000] * 20_000
    path.write_bytes(b"\n".join(lines))
    return f"{path.name}: {what} in line {at}"


def change_json(rng: Rng, path: Path) -> str:
    """Put something else in the place of a value."""
    lines = path.read_bytes().split(b"\n")
    is_lines = path.suffix not in (".json", "")
    at = rng.randrange(len(lines)) if is_lines else 0
    text = lines[at] if is_lines else b"\n".join(lines)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return change_bytes(rng, path)
    if rng.random() < 0.1:
        changed = rng.choice((b"[" * 100_000, b"null", b"[]", b"1", b"{}", b'"\\ud800"', b"1e999", b"NaN", b"9" * 5000))
    else:
        changed = json.dumps(_other(rng, value)).encode()
    if is_lines:
        lines[at] = changed
        changed = b"\n".join(lines)
    path.write_bytes(changed)
    return f"{path.name}: a value in line {at}"


def _other(rng: Rng, value: object) -> object:
    """Return a value like this one, with one thing in it another one, or gone."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _other(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _other(rng, value[at]), *value[at + rng.randrange(2) :]]
    return rng.choice(_JSON)
