"""The files of `prove-erased`: the certificate, which never replaces another, and the salt, which is its owner's."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from cleaner.base.json_values import JsonValue, NotJsonError, format_json, parse_json
from cleaner.errors import LogDirOfflineError, UsageError
from cleaner.storage.fs.file_system import UNFINISHED, FileSystem
from cleaner.verification.proof.erased.certificate import SALT_BYTES, Certificate

_PRIVATE = 0o600
_MOST_VALUES = 200_000_000  # a million digests, and ten million files with their fields
_MOST_BYTES = 16 << 30


def certificate_text(certificate: Certificate, indent: int | None = 1) -> bytes:
    """Return a certificate as it is written: a line a value, so that two can be compared; None: on one line."""
    return format_json(certificate.document(), indent=indent).encode("ascii") + b"\n"


def require_new(fs: FileSystem, path: Path) -> None:
    """
    Refuse a place where a certificate cannot be written, before hours of reading.

    Raises:
        UsageError: something has this name, or its directory does not exist.
    """
    if fs.exists(path):
        raise UsageError(f"{path}: exists; a certificate never replaces a file, give another name")
    if not fs.exists(path.parent):
        raise UsageError(f"{path}: there is no directory {path.parent}")


def write_certificate(fs: FileSystem, path: Path, certificate: Certificate) -> None:
    """
    Write a certificate to a new file, whole and durable, or not at all.

    Raises:
        UsageError: something has this name by now.
        LogDirOfflineError, NoSpaceError: the disk refuses.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with fs.create(temporary, like=None) as file:
            file.write(certificate_text(certificate), 0)
            file.fsync()
        try:
            is_linked = fs.link(temporary, path)  # refuses a name that is taken, as a rename does not
        except LogDirOfflineError as error:
            if error.cause.errno != errno.EEXIST:
                raise
            raise UsageError(f"{path}: exists by now; give another name") from error
        if not is_linked:
            require_new(fs, path)
            fs.rename(temporary, path)
    finally:
        fs.remove(temporary)
    fs.fsync_dir(path.parent)


def read_certificate(fs: FileSystem, path: Path) -> JsonValue:
    """
    Read the document of a certificate.

    Raises:
        UsageError: no such file, or not JSON.
    """
    try:
        return parse_json(fs.read_bytes(path, _MOST_BYTES), max_values=_MOST_VALUES)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except NotJsonError as error:
        raise UsageError(f"{path}: not a certificate: {error}") from error


def read_salt(fs: FileSystem, path: Path) -> bytes:
    """
    Read a salt.

    Raises:
        UsageError: no such file, or not a salt.
    """
    try:
        text = fs.read_bytes(path, 1 << 16)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    try:
        salt = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        salt = b""
    if len(salt) < SALT_BYTES // 2:
        raise UsageError(f"{path}: not a salt: hexadecimal digits of at least {SALT_BYTES // 2} bytes are expected")
    return salt


def read_or_make_salt(fs: FileSystem, path: Path) -> bytes:
    """
    Read a salt; make it, for its owner alone, if there is no such file.

    Raises:
        UsageError: the file is no salt.
        LogDirOfflineError, NoSpaceError: the disk refuses.
    """
    if fs.exists(path):
        return read_salt(fs, path)
    salt = os.urandom(SALT_BYTES)
    with fs.create(path, like=None) as file:
        fs.set_mode(path, _PRIVATE)  # before it has content
        file.write(salt.hex().encode("ascii") + b"\n", 0)
        file.fsync()
    fs.fsync_dir(path.parent)
    return salt
