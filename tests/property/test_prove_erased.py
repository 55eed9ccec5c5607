"""`prove-erased` finds a key wherever it was left, finds none where none is, and says what the slow twin says."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from cleaner.app.erasure_proof import Wanted, prove_erased
from cleaner.app.options import CallContext
from cleaner.verification.proof.erased import file_search
from cleaner.verification.proof.erased.certificate import Certificate
from tests.reference.erased import Place, places
from tests.scratch import scratch_directory
from tests.support.batch_builder import Producer, Record, data_batch, legacy_batch, legacy_entry
from tests.support.codecs import CODEC_IDS, compress
from tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.kernels
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = CODECS[:4]
WINDOW = 700  # bytes searched at a time, so that keys lie across borders


def some_bytes(rng: Random, most: int) -> bytes:
    """Draw bytes that are no text."""
    return rng.randbytes(rng.randrange(most))


def a_key(rng: Random) -> bytes:
    """Draw a key that nothing else in a world contains, of any class of lengths, often like others at its beginning."""
    size = rng.choice((4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 36, 64, 300))
    return (b"~" + rng.choice((b"", b"customer/", b"https://example.org/of/"))[: size - 4] + rng.randbytes(size))[:size]


def records(rng: Random, count: int) -> list[Record]:
    """Draw records whose keys are not looked for."""
    return [
        Record(
            rng.choice((None, b"key-%d" % rng.randrange(50), some_bytes(rng, 12))),
            rng.choice((None, b"value " * rng.randrange(9), some_bytes(rng, 60))),
            headers=((b"name", b"content"),) * rng.randrange(3),
        )
        for _ in range(count)
    ]


def with_key(rng: Random, key: bytes) -> list[Record]:
    """Draw records of which one has the key."""
    found = records(rng, rng.randrange(1, 6))
    place = rng.randrange(len(found))
    found[place] = found[place]._replace(key=key)
    return found


def a_log(rng: Random) -> LogBuilder:
    """Draw a log with batches of every kind."""
    log = LogBuilder(segment_bytes=rng.choice((400, 4000)))
    for _ in range(rng.randrange(2, 9)):
        kind = rng.choice(("plain", "plain", "legacy", "aborted", "open", "empty"))
        if kind == "plain":
            log.append(*records(rng, rng.randrange(1, 6)), codec=rng.choice(CODECS))
        elif kind == "legacy":
            found = [each._replace(headers=()) for each in records(rng, rng.randrange(1, 4))]
            log.append(*found, codec=rng.choice(LEGACY_CODECS), magic=rng.choice((0, 1)))
        elif kind == "empty":
            log.append_empty(producer=Producer(7, 0, 0, False))
        else:
            producer = Producer(rng.randrange(3), 0, log.next_offset, True)
            log.append(*records(rng, 2), producer=producer)
            if kind == "aborted":
                log.end_transaction(producer.producer_id, 0, commit=False)
    return log


def nested(rng: Random, key: bytes) -> bytes:
    """Return a legacy entry within compressed ones, with the key."""
    magic = rng.choice((0, 1))
    entry = legacy_entry(3, key, b"value", magic)
    for _ in range(rng.randrange(1, 4)):
        codec = rng.choice(LEGACY_CODECS[1:])
        entry = legacy_entry(3, None, compress(codec, entry, magic), magic, attributes=CODEC_IDS[codec])
    return entry


def unreadable(rng: Random, key: bytes) -> bytes:
    """Return a sound batch that says it has more records than it has."""
    found = with_key(rng, key)
    return data_batch(found, 0, codec=rng.choice(CODECS), overrides={"count": 99, "last_offset_delta": 99})


def hidden(rng: Random, key: bytes) -> bytes:
    """Return a batch with the key that says it has no record."""
    return data_batch(with_key(rng, key), 0, codec=rng.choice(CODECS), overrides={"count": 0})


def in_wrapper(rng: Random, key: bytes) -> bytes:
    """Return a compressed legacy entry that has the key itself, which readers ignore."""
    inner = legacy_entry(0, b"key", b"value", 1)
    return legacy_entry(3, key, compress("gzip", inner, 1), 1, attributes=CODEC_IDS["gzip"])


def plain(rng: Random, key: bytes) -> bytes:
    """Return a batch of magic 2 with the key."""
    producer = rng.choice((Producer(-1, -1, -1, False), Producer(3, 0, 5, True)))
    return data_batch(with_key(rng, key), rng.randrange(99), codec=rng.choice(CODECS), producer=producer)


def legacy(rng: Random, key: bytes) -> bytes:
    """Return a legacy set with the key."""
    found = [each._replace(headers=()) for each in with_key(rng, key)]
    return legacy_batch(found, rng.randrange(99), rng.choice((0, 1)), codec=rng.choice(LEGACY_CODECS))


BATCHES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(plain, plain, plain, legacy, legacy, nested, unreadable, hidden, in_wrapper),
)


def filler(rng: Random) -> bytes:
    """Draw bytes that are no batch: zeros, text or anything, often about as long as what is searched at a time."""
    size = rng.choice((0, rng.randrange(60), WINDOW + rng.randrange(-80, 20), 2 * WINDOW + rng.randrange(-80, 20)))
    return rng.choice((bytes(size), b"." * size, rng.randbytes(size)))


def plant(rng: Random, directory: Path, key: bytes) -> None:
    """Leave the key somewhere below a directory."""
    logs = sorted(directory.rglob("*.log"))
    where = rng.choice(("batch in a log", "batch in a file", "bytes in a file", "bytes behind", "middle"))
    batch = rng.choice(BATCHES)(rng, key)
    if where == "batch in a log":
        path = rng.choice(logs)
        path.write_bytes(path.read_bytes() + batch)
    elif where == "batch in a file":
        names = (
            *("topic-0/00000000000000000042.log.deleted", "topic-0/00000000000000000042.log.swap", "kept/1/old.log"),
            *(
                "topic-0/00000000000000000042.log.cleaned",
                "cut",
                "topic-1.0123456789abcdef0123456789abcdef-delete/0.log",
            ),
        )
        path = directory / rng.choice(names)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(filler(rng) + batch + filler(rng))
    elif where == "bytes in a file":
        some = [each for each in directory.rglob("*") if each.is_file() and each.suffix != ".log"]
        path = rng.choice([*some, directory / "unknown", directory / "state.json"])
        data = path.read_bytes() if path.exists() else b""
        path.write_bytes(data + filler(rng) + key + filler(rng))
    elif where == "bytes behind":
        path = rng.choice(logs)
        path.write_bytes(path.read_bytes() + filler(rng) + key + filler(rng))
    else:  # the batch between damage and further batches
        path = rng.choice(logs)
        data = path.read_bytes()
        size = struct.unpack_from(">i", data, 8)[0] + 12 if len(data) > 12 else 0
        path.write_bytes(data[:size] + filler(rng) + batch + data[size:])


def found_by(certificate: Certificate, directory: Path, keys: list[bytes]) -> dict[str, set[Place]]:
    """Return what a certificate has found, by file."""
    found: dict[str, set[Place]] = {}
    for each in certificate.found:
        assert (each.key_line is None) == each.is_prefix
        place = Place(each.level.value, each.position, each.offset, keys[(each.key_line or 0) - 1])
        found.setdefault(str(Path(each.path).relative_to(directory)), set()).add(place)
    return found


def judge(seed: int) -> None:
    """Make a world with or without a left-over, and compare."""
    rng = Random(f"{seed}/erased")
    with scratch_directory() as root:
        directory = Path(root).resolve()
        for name, data in a_log(rng).files().items():
            for place in ("topic-0", "kept/g1/topic-0"):
                path = directory / place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        key = a_key(rng)
        others = [b"customer/%d" % rng.randrange(10**9) for _ in range(rng.choice((0, 3, 200)))]
        keys = [*others, key, a_key(rng)]
        is_planted = rng.random() < 0.8
        if is_planted:
            plant(rng, directory, key)
        prefixes = [key[: max(4, len(key) // 2)]] if rng.random() < 0.3 else []
        keys = [each for each in keys if not prefixes or each != key]
        wanted = Wanted(keys=keys, prefixes=prefixes, salt=b"salt")
        certificate = prove_erased([directory], wanted, CallContext.of(now_ms=1))
        expected = {
            str(path.relative_to(directory)): found
            for path in directory.rglob("*")
            if path.is_file() and (found := places(path.read_bytes(), set(keys), prefixes))
        }
        assert found_by(certificate, directory, [*keys, *prefixes]) == expected, seed
        assert (certificate.result == "found") == is_planted, seed
        if is_planted:
            found_keys = {place.key for found in expected.values() for place in found if place.level != "mention"}
            assert found_keys & {key, *prefixes}
        else:
            assert certificate.result == "proven", (seed, certificate.not_searched)


@pytest.mark.parametrize("worlds", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_left_over_is_found_wherever_it_is(worlds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each certificate refutes a planted key and says of every file what the twin says; without one it proves."""
    monkeypatch.setattr(file_search, "WINDOW_BYTES", WINDOW)
    for seed in range(worlds):
        judge(seed)
