"""`cleaner prove-erased`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.remote_path import any_path
from cleaner.base.sizes import counted, human_bytes
from cleaner.cli.arguments import add_format
from cleaner.cli.key_list import add_key_options, given_keys, given_prefixes
from cleaner.cli.output import json_line, say
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import UsageError
from cleaner.present.text import printable
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.remote import RemoteFiles, files_for

if TYPE_CHECKING:
    from cleaner.app.erasure_proof import CertificateCheck
    from cleaner.app.options import CallContext
    from cleaner.cli.progress import ProgressBar
    from cleaner.verification.proof.erased.certificate import Certificate

SUMMARY = "evidence that no file of some directories holds a record of some keys"

DESCRIPTION = """\
Searches every byte of every file below the directories for the keys, and writes a certificate: what was looked for,
what was read, and what was found. It takes every file for record batches as far as it can, whatever its name: logs,
renamed and deleted ones, kept copies, aborted transactions, all codecs. All other bytes are searched as they are.

Nothing is locked and nothing changes. A certificate names a key only by a digest under a salt, which --salt keeps in a
file of its own. What the search does not cover is part of the certificate: free blocks, replicas, backups.

With --check a certificate is checked: that it is unaltered, that its files still have the bytes that were searched,
and, with --salt and --keys, that it covers the keys.

Directories may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner prove-erased --keys erased.txt --salt erased.salt --certificate erased.json /var/lib/kafka /var/kept
  cleaner prove-erased --keys - --topic orders /var/lib/kafka < erased.txt > erased.json
  cleaner prove-erased --key-prefix customer-4711/ --certificate erased.json /var/lib/kafka
  cleaner prove-erased --check erased.json --salt erased.salt --keys erased.txt

exit status:
  0  proven, or the certificate holds      1  found, not proven, or the certificate does not hold      2  usage"""

_MAX_SHOWN = 20
_VERDICTS = {"proven": "PROVEN", "found": "FOUND", "not_proven": "NOT PROVEN"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "directories", metavar="DIR", type=any_path, nargs="*", help="a log dir, a kept copy, a state dir: anything"
    )
    add_key_options(parser)
    parser.add_argument(
        "--topic",
        dest="topics",
        metavar="TOPIC",
        action="append",
        help="only records in partitions of this topic count; may be repeated (default: all)",
    )
    parser.add_argument(
        "--mentions",
        choices=("note", "found", "off"),
        default="note",
        help="keys within values and headers: note them, let them refute, or do not look for them (default: note)",
    )
    parser.add_argument(
        "--certificate", metavar="FILE", type=Path, help="a new file for the certificate (default: standard output)"
    )
    parser.add_argument(
        "--salt",
        metavar="FILE",
        type=Path,
        help="the salt of the keys' digests; made if there is no such file (default: no digests)",
    )
    parser.add_argument("--check", metavar="CERTIFICATE", type=Path, help="check a certificate instead")
    add_format(parser, "one object, see docs/prove-erased.md")


def run(arguments: argparse.Namespace) -> int:
    """Search, or check a certificate; returns the exit code."""
    fs = FileSystem()
    if arguments.check is not None:
        if arguments.directories or arguments.prefixes or arguments.topics or arguments.certificate:
            raise UsageError("--check takes --salt and --keys only: the certificate says what was searched")
        return _check(arguments, fs)
    if not arguments.directories:
        raise UsageError("no directory to search: name log dirs, kept copies, state dirs")
    if arguments.keys is None and not arguments.prefixes:
        raise UsageError("nothing to look for: --keys FILE or --key-prefix PREFIX")
    return _prove(arguments, fs)


def _prove(arguments: argparse.Namespace, fs: FileSystem) -> int:
    from cleaner.app.erasure_proof import Wanted, prove_erased
    from cleaner.app.evidence_files import certificate_text, read_or_make_salt, require_new, write_certificate

    if arguments.certificate is not None:
        require_new(fs, arguments.certificate)
    wanted = Wanted(
        keys=list(given_keys(arguments)),
        prefixes=given_prefixes(arguments),
        topics=arguments.topics,
        mentions=arguments.mentions,
        salt=None if arguments.salt is None else read_or_make_salt(fs, arguments.salt),
    ).checked()
    bar = _bar()

    def work(context: CallContext) -> Certificate:
        return prove_erased(arguments.directories, wanted, context)

    certificate = run_work(work, bar, fs=files_for(None, *arguments.directories))
    bar.clear()
    if arguments.certificate is None:
        indent = None if arguments.format == "json" else 1
        sys.stdout.write(certificate_text(certificate, indent).decode("ascii"))
    else:
        write_certificate(fs, arguments.certificate, certificate)
        _print(certificate, arguments)
    return 0 if certificate.is_proven else 1


def _bar() -> ProgressBar:
    # As the user who has started it, even root: every file must be read, whoever owns it, and nothing is written there.
    return prepare_work(stay_root=True)


def _print(certificate: Certificate, arguments: argparse.Namespace) -> None:
    if arguments.format == "json":
        fields = {
            "result": certificate.result,
            "certificate": str(arguments.certificate),
            "total_files": certificate.total_files,
            "total_bytes": certificate.total_bytes,
            "found_records": certificate.found_records,
            "found_raw": certificate.found_raw,
            "found_mentions": certificate.found_mentions,
            "total_not_searched": certificate.total_not_searched,
        }
        print(json_line("prove-erased", fields))
        return
    say(f"{_VERDICTS[certificate.result]}: {_what(certificate)}")
    say(
        f"  read {certificate.total_files} files, {human_bytes(certificate.total_bytes)}, {certificate.total_batches} "
        f"batches, {certificate.total_records} records"
    )
    for each in certificate.found[:_MAX_SHOWN]:
        where = f"at byte {each.position}" if each.offset is None else f"offset {each.offset}"
        key = "a prefix" if each.is_prefix else f"the key of line {each.key_line}"
        say(f"  {each.level}  {key}: {printable(each.path)}: {where}", hang="    ")
    for doubt in certificate.not_searched[:_MAX_SHOWN]:
        at = "" if doubt.position is None else f" at byte {doubt.position}"
        say(f"  {doubt.kind}  {printable(doubt.path)}{at}: {doubt.reason}", hang="    ")
    more = max(0, len(certificate.found) - _MAX_SHOWN) + max(0, certificate.total_not_searched - _MAX_SHOWN)
    if more:
        say(f"  and {more} more: see the certificate")
    if certificate.short_keys:
        say(f"  note: {certificate.short_keys} keys are too short to be looked for outside of records", hang="    ")
    say(f"  certificate: {printable(str(arguments.certificate))}; it also says what it does not cover", hang="    ")


def _what(certificate: Certificate) -> str:
    sought = counted(certificate.keys, "key") + (
        f", {certificate.prefixes} prefix{'es' if certificate.prefixes != 1 else ''}" if certificate.prefixes else ""
    )
    counts = [
        f"{count} {words}"
        for count, words in (
            (certificate.found_records, "record" if certificate.found_records == 1 else "records"),
            (certificate.found_raw, "times among other bytes"),
            (certificate.found_mentions, "mentions within records of other keys"),
        )
        if count
    ]
    found = ", ".join(counts) if counts else "none of them found"
    if certificate.total_not_searched:
        found += f"; {certificate.total_not_searched} things not surely searched"
    return f"{sought}: {found}"


def _check(arguments: argparse.Namespace, fs: FileSystem) -> int:
    from cleaner.app.erasure_proof import check_certificate
    from cleaner.app.evidence_files import read_certificate, read_salt

    document = read_certificate(fs, arguments.check)
    salt = None if arguments.salt is None else read_salt(fs, arguments.salt)
    keys = list(given_keys(arguments))

    def work(context: CallContext) -> CertificateCheck:
        return check_certificate(document, context, salt=salt, keys=keys)

    bar = _bar()
    found = run_work(work, bar, fs=RemoteFiles())  # the certificate may name files of buckets, too
    bar.clear()
    if arguments.format == "json":
        print(json_line("certificate-check", found))
    else:
        _print_check(found)
    return 0 if found.holds else 1


def _print_check(found: CertificateCheck) -> None:
    if not found.is_unaltered:
        say("ALTERED: the certificate is not as it was written")
        return
    say(f"{'HOLDS' if found.holds else 'DOES NOT HOLD'}: it says {_VERDICTS.get(found.result or '', found.result)}")
    say(f"  {found.same_files} files have the bytes that were searched until {found.ended_at}")
    for each in found.changed[:_MAX_SHOWN]:
        say(f"  changed  {printable(each.path)}: {each.reason}", hang="    ")
    if len(found.changed) > _MAX_SHOWN:
        say(f"  and {len(found.changed) - _MAX_SHOWN} more: --format json has all")
    if found.has_same_salt is False:
        say("  the salt is not the one it was made with")
    elif found.keys:
        say(f"  {found.keys - found.total_uncovered} of {found.keys} keys are covered")
        if found.total_uncovered:
            say(
                f"  not covered: the keys of lines {', '.join(map(str, found.uncovered_lines[:_MAX_SHOWN]))}",
                hang="    ",
            )
