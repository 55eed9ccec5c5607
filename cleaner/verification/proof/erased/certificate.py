"""
The certificate: what was looked for, what was read and what was found, so that others can check it later.

It never holds a key. A key is named by its keyed digest, the HMAC-SHA256 of its bytes under a salt that is kept
elsewhere: who has salt and key can tell whether it was covered, and who has not cannot guess keys from digests.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleaner.base.json_values import JsonValue, described, json_value
from cleaner.verification.proof.erased.findings import Doubt, Level

FORMAT = "erasure-certificate"
DIGEST = "HMAC-SHA256"
SALT_BYTES = 32


@dataclass(frozen=True)
class SearchedFile:
    """
    A file, as it was when it was read.

    Attributes:
        path: absolute.
        partition: the partition directory it is in; None if it is in none.
        size: bytes.
        sha256: of its bytes.
        modified_ns: its time of modification, ns since 1970.
        device, inode: its identity.
        batches, records: read as such.
        codecs: of the batches.
        structured_bytes: in batches.
        raw_bytes: searched as mere bytes.
        zero_bytes: of these, in stretches of nothing else.
    """

    path: str
    partition: str | None
    size: int
    sha256: str
    modified_ns: int
    device: int
    inode: int
    batches: int
    records: int
    codecs: tuple[str, ...]
    structured_bytes: int
    raw_bytes: int
    zero_bytes: int


@dataclass(frozen=True)
class FoundKey:
    """
    A place where a key was found.

    Attributes:
        level: how.
        path: the file.
        position: in the file: of the batch if it is in one, else of the key's first byte.
        offset: of the record; None for bytes.
        partition: the partition directory it is in; None if it is in none.
        is_prefix: it is a key that begins with a prefix that was looked for, or the prefix's own bytes.
        key_digest: of the key, or of the prefix; None without a salt.
        key_line: where the key is in the list that was given, from 1 on; None for a prefix.
    """

    level: Level
    path: str
    position: int
    offset: int | None
    partition: str | None
    is_prefix: bool
    key_digest: str | None
    key_line: int | None


@dataclass(frozen=True)
class NotSearched:
    """
    Something that was not, or not surely, searched.

    Attributes:
        kind: which kind of doubt.
        path: the file or directory.
        position: in the file; None if it concerns the whole file.
        reason: in words.
    """

    kind: Doubt
    path: str
    position: int | None
    reason: str


@dataclass(frozen=True)
class NotCovered:
    """
    Where a key may still be although nothing was found.

    Attributes:
        place: the place.
        command: what erases it, or shows whether there is such a place.
    """

    place: str
    command: str


@dataclass(frozen=True)
class Certificate:
    """
    What `prove-erased` has looked for, read and found.

    Attributes:
        result: `proven`, `found`, or `not_proven`: nothing was found, but not everything was searched.
        program: the version of `cleaner`.
        libraries: the versions of Python and of libraries that read bytes.
        begun_at, ended_at: the host's time, UTC, ISO 8601.
        directories: absolute.
        topics: the only ones whose records count; None: all.
        mentions: what became of keys within values and headers: `note`, `found` or `off`.
        keys, prefixes: how many different ones were looked for.
        short_keys: of both, those too short to be looked for among mere bytes.
        key_digests, prefix_digests: of all of them, ascending; None without a salt.
        salt_sha256: of the salt; None without one.
        total_files, total_bytes, total_batches, total_records: what was read.
        found_records, found_raw, found_mentions: places where a key was found, by level.
        found_keys: how many different keys and prefixes were found as a record or among mere bytes.
        found: the places; at most a thousand.
        total_not_searched: how many things were not, or not surely, searched.
        not_searched: these; at most a thousand.
        files: all that were read.
        limits: what the search does not do, in words.
        not_covered: where else a key may be.
    """

    result: str
    program: str
    libraries: Mapping[str, str]
    begun_at: str
    ended_at: str
    directories: tuple[str, ...]
    topics: tuple[str, ...] | None
    mentions: str
    keys: int
    prefixes: int
    short_keys: int
    key_digests: tuple[str, ...] | None
    prefix_digests: tuple[str, ...] | None
    salt_sha256: str | None
    total_files: int
    total_bytes: int
    total_batches: int
    total_records: int
    found_records: int
    found_raw: int
    found_mentions: int
    found_keys: int
    found: tuple[FoundKey, ...]
    total_not_searched: int
    not_searched: tuple[NotSearched, ...]
    files: tuple[SearchedFile, ...]
    limits: tuple[str, ...]
    not_covered: tuple[NotCovered, ...]

    @property
    def is_proven(self) -> bool:
        """Tell whether all was searched, and nothing was found."""
        return self.result == "proven"

    def document(self) -> dict[str, JsonValue]:
        """Return it with its own digest, as it is written."""
        body = json_value(self)
        return described(FORMAT, {"body_sha256": body_digest(body), "body": body})


def canonical(body: JsonValue) -> bytes:
    """Return the bytes that are digested: JSON without spaces, names sorted, ASCII only."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def body_digest(body: JsonValue) -> str:
    """Return the SHA-256 of a certificate's body."""
    return hashlib.sha256(canonical(body)).hexdigest()


def key_digest(salt: bytes, key: bytes) -> str:
    """Return the keyed digest by which a certificate names a key."""
    return hmac.digest(salt, key, "sha256").hex()


def key_digests(salt: bytes | None, keys: Iterable[bytes]) -> tuple[str, ...] | None:
    """Return the keyed digests of keys, ascending; None without a salt."""
    return None if salt is None else tuple(sorted({key_digest(salt, key) for key in keys}))
