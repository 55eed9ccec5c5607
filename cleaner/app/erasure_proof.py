"""`prove-erased`: evidence that no file of some directories holds a record of some keys; locks and changes nothing."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cleaner.app.options import CallContext
from cleaner.base.concurrency import undisturbed
from cleaner.base.json_values import JsonValue, WrongValueError, from_json
from cleaner.base.remote_path import any_path
from cleaner.errors import CleanerError, CleaningAborted, UsageError
from cleaner.storage.fs.file_system import once_each, real_path
from cleaner.storage.segment.names import may_be_of_topic
from cleaner.storage.which_dir import require_existing
from cleaner.verification.proof.erased.certificate import (
    FORMAT,
    Certificate,
    NotCovered,
    body_digest,
    key_digest,
    key_digests,
)
from cleaner.verification.proof.erased.findings import Level
from cleaner.verification.proof.erased.hashed_file import HashedFile
from cleaner.verification.proof.erased.prove import Answer, ErasureProof, Mentions, Question
from cleaner.verification.proof.erased.wanted import SHORTEST_RAW, WantedKeys

_LIMIT_BYTES = 512 << 20  # that a batch may unpack to; more than any topic's settings allow in practice
_MORE_SEARCHES = 2  # where nothing but a change stands in the way, such as a round that has ended meanwhile
_LIBRARIES = ("numpy", "numba", "cramjam", "isal", "zstandard")

LIMITS: Final = (
    "key indexes, and those of tables, hold digests of keys under a secret of their own, and no keys: such a digest is "
    "not looked for",
    "bytes outside of record batches are searched for keys as they are: not for keys that are escaped (JSON), encoded "
    "(base64, hexadecimal), encrypted, or cut in two",
    f"keys of fewer than {SHORTEST_RAW} bytes are looked for as keys of records only, because bytes contain them by "
    "chance",
    "bytes that a codec ignores behind the end of a compressed stream are not searched",
    "names of files and directories are not searched",
)
NOT_COVERED: Final = (
    NotCovered("free blocks of the file systems, which keep the bytes of removed files", "fstrim --verbose MOUNT"),
    NotCovered(
        "other replicas of the partitions",
        "kafka-topics.sh --bootstrap-server HOST:PORT --describe --topic TOPIC; then this command on each broker",
    ),
    NotCovered(
        "snapshots of volumes and file systems",
        "lvs -o name,origin; zfs list -t snapshot; btrfs subvolume list -s MOUNT",
    ),
    NotCovered(
        "tiered storage",
        "kafka-configs.sh --bootstrap-server HOST:PORT --describe --entity-type topics --entity-name TOPIC, for "
        "remote.storage.enable",
    ),
    NotCovered("backups and copies that are in none of the directories", "cleaner prove-erased --keys FILE BACKUP"),
    NotCovered(
        "consumers, sinks and other systems that have read the records",
        "kafka-consumer-groups.sh --list, for who reads",
    ),
)


@dataclass(frozen=True)
class Wanted:
    """
    What is looked for.

    Attributes:
        keys: of records, in the order in which they were given.
        prefixes: every key that begins with one of them is looked for, too.
        topics: the only ones whose records count; None: all.
        mentions: keys within values and headers of other records: `note` lists them, `found` lets them refute, `off`
            does not look for them.
        salt: for keyed digests of the keys; None: the certificate names no key.
    """

    keys: Sequence[bytes] = ()
    prefixes: Sequence[bytes] = ()
    topics: Collection[str] | None = None
    mentions: Mentions = "note"
    salt: bytes | None = None

    def checked(self) -> Wanted:
        """
        Return it.

        Raises:
            UsageError: nothing is looked for, or everything.
        """
        if not self.keys and not self.prefixes:
            raise UsageError("no key and no prefix to look for: the list of keys is empty")
        if b"" in self.prefixes:
            raise UsageError("an empty prefix: every key begins with it")
        return self


def prove_erased(directories: Sequence[Path], wanted: Wanted, context: CallContext) -> Certificate:
    """
    Search every file of some directories.

    Args:
        directories: log dirs, kept copies, state dirs: anything.
        wanted: what is looked for.
        context: the caller's file system, clock, progress and stop check.
    Raises:
        UsageError: there is no such directory, or no file in it, or nothing to look for.
    """
    wanted.checked()
    if not directories:
        raise UsageError("no directory to search")
    for directory in directories:
        require_existing(context.fs, directory)
    roots = tuple(map(real_path, once_each(directories)))
    begun_at = _now(context)
    keys = WantedKeys(wanted.keys, wanted.prefixes)
    question = Question(
        keys=keys,
        topics=wanted.topics,
        mentions=wanted.mentions,
        limit_bytes=_LIMIT_BYTES,
        describe=_describer(keys, wanted),
    )

    def search() -> Answer:
        return ErasureProof(
            *(context.fs, roots, question),
            clock=context.clock,
            progress=context.progress,
            check_done=context.check_done,
        ).run()

    answer = search()
    for _ in range(_MORE_SEARCHES):
        if not answer.is_only_changed(wanted.mentions):
            break
        begun_at, answer = _now(context), search()
    if answer.result(wanted.mentions) == "proven":
        for root in roots:
            _require_files(root, answer)
    partitions = {each.partition for each in answer.files if each.partition is not None}
    for topic in wanted.topics or ():
        if not any(may_be_of_topic(each, topic) for each in partitions):
            context.warn(f"there is no directory of a partition of the topic {topic}: is that its name?")
    return _certificate(answer, roots, wanted, keys, begun_at, _now(context))


def _require_files(root: Path, answer: Answer) -> None:
    """
    Refuse a directory without a file: a mount point whose disk is missing would be proof that nothing is there.

    Raises:
        UsageError: no file in it was searched.
    """
    above = str(root).rstrip("/")
    if not any(each.path == above or each.path.startswith(f"{above}/") for each in answer.files):
        raise UsageError(f"{root}: no file in it to search; is its disk mounted?")


def _describer(keys: WantedKeys, wanted: Wanted) -> Callable[[int], tuple[bool, str | None, int | None]]:
    lines: dict[bytes, int] = {}

    def describe(number: int) -> tuple[bool, str | None, int | None]:
        text = keys.texts[number]
        if not lines:
            for line, key in enumerate(wanted.keys, start=1):
                lines.setdefault(key, line)
        digest = None if wanted.salt is None else key_digest(wanted.salt, text)
        return number >= keys.first_prefix, digest, lines.get(text)

    return describe


def _certificate(
    answer: Answer, roots: Sequence[Path], wanted: Wanted, keys: WantedKeys, begun_at: str, ended_at: str
) -> Certificate:
    salt = wanted.salt
    return Certificate(
        result=answer.result(wanted.mentions),
        program=_version("kafka-log-cleaner"),
        libraries=_versions(),
        begun_at=begun_at,
        ended_at=ended_at,
        directories=tuple(map(str, roots)),
        topics=None if wanted.topics is None else tuple(sorted(wanted.topics)),
        mentions=wanted.mentions,
        keys=len(set(wanted.keys)),
        prefixes=len(set(wanted.prefixes)),
        short_keys=sum(len(text) < SHORTEST_RAW for text in keys.texts),
        key_digests=key_digests(salt, wanted.keys),
        prefix_digests=key_digests(salt, wanted.prefixes),
        salt_sha256=None if salt is None else hashlib.sha256(salt).hexdigest(),
        total_files=len(answer.files),
        total_bytes=sum(each.size for each in answer.files),
        total_batches=sum(each.batches for each in answer.files),
        total_records=sum(each.records for each in answer.files),
        found_records=answer.counts[Level.RECORD],
        found_raw=answer.counts[Level.RAW],
        found_mentions=answer.counts[Level.MENTION],
        found_keys=len(answer.found_numbers),
        found=tuple(answer.found),
        total_not_searched=answer.total_not_searched,
        not_searched=tuple(answer.not_searched),
        files=tuple(answer.files),
        limits=LIMITS,
        not_covered=NOT_COVERED,
    )


def _now(context: CallContext) -> str:
    moment = datetime.fromtimestamp(context.clock.now_ms() / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}}


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return undisturbed(lambda: version(package))  # it imports more
    except PackageNotFoundError:
        return "unknown"  # from sources that were not installed


@dataclass(frozen=True)
class ChangedFile:
    """A file that is not any more what the certificate says, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class CertificateCheck:
    """
    Whether a certificate still says what is so.

    Attributes:
        is_unaltered: its body has the digest that is written with it.
        result: what it says; None if it is altered.
        ended_at: when its search ended; None if it is altered.
        same_files: how many of its files have the bytes that were searched.
        changed: its other files.
        keys: how many keys were given to be checked.
        uncovered_lines: of these, the ones that it does not cover, by their lines, at most a thousand.
        total_uncovered: how many there are.
        has_same_salt: the salt given is the one it was made with; None without one.
    """

    is_unaltered: bool
    result: str | None = None
    ended_at: str | None = None
    same_files: int = 0
    changed: tuple[ChangedFile, ...] = ()
    keys: int = 0
    uncovered_lines: tuple[int, ...] = ()
    total_uncovered: int = 0
    has_same_salt: bool | None = None

    JSON_PROPERTIES = ("holds",)

    @property
    def holds(self) -> bool:
        """Tell whether it proves that the keys are erased, and its files are as they were."""
        is_covered = not self.total_uncovered and self.has_same_salt is not False
        return self.is_unaltered and self.result == "proven" and not self.changed and is_covered


_MOST_UNCOVERED = 1000


def check_certificate(
    document: JsonValue, context: CallContext, *, salt: bytes | None = None, keys: Sequence[bytes] = ()
) -> CertificateCheck:
    """
    Check a certificate: whether it was altered, its files were, and keys are covered by it.

    Args:
        document: the parsed file.
        context: the caller's file system, progress and stop check.
        salt: it was made with; needed for keys.
        keys: that it should cover.
    Raises:
        UsageError: it is no certificate; or keys are given, and no salt, or it names no key.
    """
    if not isinstance(document, dict) or document.get("format") != f"cleaner-{FORMAT}" or "body" not in document:
        raise UsageError("not a certificate of `cleaner prove-erased`")
    if document.get("format_version") != 1:
        raise UsageError(f"a certificate of format version {document.get('format_version')}; this release reads 1")
    body = document["body"]
    if body_digest(body) != document.get("body_sha256"):
        return CertificateCheck(is_unaltered=False)
    try:
        certificate = from_json(Certificate, body)
    except (WrongValueError, TypeError) as error:
        raise UsageError(f"not a certificate of `cleaner prove-erased`: {error}") from error
    if keys and salt is None:
        raise UsageError("keys can be checked only with the salt: --salt FILE")
    if keys and certificate.key_digests is None:
        raise UsageError("the certificate was made without a salt and names no key")
    changed = _changed_files(certificate, context)
    has_same_salt = None if salt is None else hashlib.sha256(salt).hexdigest() == certificate.salt_sha256
    uncovered = _uncovered(certificate, salt, keys) if salt is not None else []
    return CertificateCheck(
        is_unaltered=True,
        result=certificate.result,
        ended_at=certificate.ended_at,
        same_files=len(certificate.files) - len(changed),
        changed=tuple(changed),
        keys=len(keys),
        uncovered_lines=tuple(uncovered[:_MOST_UNCOVERED]),
        total_uncovered=len(uncovered),
        has_same_salt=has_same_salt,
    )


def _changed_files(certificate: Certificate, context: CallContext) -> list[ChangedFile]:
    changed, done = [], 0
    for each in certificate.files:
        path = any_path(each.path)
        context.check_done()
        context.progress(path.name, done, certificate.total_bytes)
        try:
            with context.fs.open(path) as file:
                size = file.size()
                if size != each.size:
                    changed.append(ChangedFile(each.path, f"it has {size} bytes, and had {each.size}"))
                elif HashedFile(file, size).finish() != each.sha256:
                    changed.append(ChangedFile(each.path, "it has other bytes"))
        except FileNotFoundError:
            changed.append(ChangedFile(each.path, "it is gone"))
        except CleaningAborted:
            raise
        except CleanerError as error:
            changed.append(ChangedFile(each.path, str(error)))
        done += each.size
    return changed


def _uncovered(certificate: Certificate, salt: bytes, keys: Sequence[bytes]) -> list[int]:
    """Return the lines of the keys that a certificate does not name, by themselves or by a prefix."""
    whole, prefixes = set(certificate.key_digests or ()), set(certificate.prefix_digests or ())

    def is_covered(key: bytes) -> bool:
        if key_digest(salt, key) in whole:
            return True
        beginnings = range(1, len(key) + 1) if prefixes else ()
        return any(key_digest(salt, key[:size]) in prefixes for size in beginnings)

    return [line for line, key in enumerate(keys, start=1) if not is_covered(key)]
