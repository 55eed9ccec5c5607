"""
TLS and users, in the form that Prometheus's exporters share (exporter-toolkit's `web.config.file`).

    tls_server_config:
      cert_file: cleaner.crt          # relative to this file
      key_file: cleaner.key
      min_version: TLS13              # TLS12 when left out
      client_auth_type: RequireAndVerifyClientCert
      client_ca_file: ca.crt
    basic_auth_users:
      prometheus: $2y$10$...          # bcrypt, as `htpasswd -nBC 10 prometheus` prints it

The file is read again when it changes, or a certificate it names does. An error in it is then reported once, and the
last valid version stays in force; at the start it is an error. An unknown key is an error too: its author believes that
it protects something.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cleaner.errors import CleanerError, ConfigError, shortened
from cleaner.present.http.passwords import MAX_COST, Passwords, cost_of
from cleaner.storage.fs.file_system import FileSystem, real_path

WEB_CONFIG_KEY = "cleaner.http.web.config.file"
MAX_BYTES = 128 << 10
"""Enough for a thousand users; the parser needs a second for it."""

_MAX_DEPTH = 8  # of nested lists and mappings; the form above has two

_TLS_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_NULLS = ("", "~", "null", "Null", "NULL")  # YAML's words for no value
_SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users")
_TLS_KEYS = ("cert_file", "key_file", "min_version", "max_version", "client_auth_type", "client_ca_file")

_Choice = TypeVar("_Choice")
_ATTEMPTS = 5
_Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class WebConfig:
    """
    The content of the file.

    Attributes:
        tls: for the server's side of a handshake; None: plain HTTP.
        users: bcrypt hashes by name.
        files: all files read for it.
        passwords: tells whether a request's `Authorization` is that of a user.
    """

    tls: ssl.SSLContext | None
    users: Mapping[str, str]
    files: tuple[Path, ...]
    passwords: Passwords

    @property
    def has_users(self) -> bool:
        """Tell whether a password, or a client's certificate, is asked for."""
        return bool(self.users) or (self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED)


class WebConfigFile:
    """
    The file, read again when it changes. For one thread at a time: the server uses it in its event loop.

    Args:
        fs: the file system.
        path: the file.
        warn: called once for each version that cannot be used.
    Raises:
        ConfigError: it cannot be used now.
    """

    def __init__(self, fs: FileSystem, path: Path, warn: Callable[[str], None]) -> None:
        self._fs, self._path, self._warn = fs, path, warn
        self._config, self._signature = self._read()

    def current(self) -> WebConfig:
        """Return the version in force: one that cannot be used is reported once, and the one before stays."""
        signature = self._sign(self._config)
        if signature != self._signature:
            self._signature = signature
            try:
                config, signature = self._read()
                # Overwriting a file empties it first; until it is written no request is allowed without a password.
                if self._config.has_users and signature[0] is not None and signature[0][1] == 0:
                    raise ConfigError(WEB_CONFIG_KEY, self._path, "it is empty now")
                self._config, self._signature = config, signature
            except ConfigError as error:
                self._warn(f"{error}; what was read before stays in force")
        return self._config

    def _read(self) -> tuple[WebConfig, _Signature]:
        """Read until the files did not change during the read; a half-written file may lack users."""
        config = load(self._fs, self._path)
        for _ in range(_ATTEMPTS):
            signature = self._sign(config)
            config = load(self._fs, self._path)
            if self._sign(config) == signature:
                break
        return (
            config,
            signature,
        )  # if it keeps changing: the signature from before, so that the next request looks again

    def _sign(self, config: WebConfig) -> _Signature:
        return tuple(self._sign_one(path) for path in config.files)

    def _sign_one(self, path: Path) -> tuple[int, int, int] | None:
        try:
            stat = self._fs.stat(real_path(path))  # a mounted secret is a link that changes
        except (CleanerError, OSError):
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns


def load(fs: FileSystem, path: Path) -> WebConfig:
    """
    Read the file and all files that it names.

    Raises:
        ConfigError: it cannot be read or used; says why.
    """
    import yaml  # not needed by most daemons

    try:
        data = fs.read_bytes(real_path(path), MAX_BYTES)
    except (CleanerError, OSError) as error:
        raise ConfigError(WEB_CONFIG_KEY, path, str(error)) from error
    try:
        _check_yaml(path, data)
        # All values stay text: finding out what a text means in YAML (a number to base 60) can take long.
        content = yaml.load(data, yaml.BaseLoader)  # noqa: S506 - makes only texts, lists and mappings
    except (yaml.YAMLError, ValueError) as error:
        # The error's own message quotes the line, which may contain a hash.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(WEB_CONFIG_KEY, path, f"not YAML{line}") from error
    sections = _mapping(path, "the file", {} if content is None or content in _NULLS else content, _SECTIONS)
    _mapping(path, "http_server_config", sections.get("http_server_config") or {}, ("http2",))
    users = _users(path, sections.get("basic_auth_users") or {})
    tls, files = _tls(path, sections.get("tls_server_config") or {})
    return WebConfig(tls, users, (path, *files), Passwords(users))


def _check_yaml(path: Path, data: bytes) -> None:
    """
    Scan the file's events without building values.

    Raises:
        ConfigError: it is nested too deeply, or has aliases, by which a few bytes can expand without limit, or tags,
            which name a type; no valid file needs these.
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    depth = 0
    for event in yaml.parse(data, yaml.BaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) or depth > _MAX_DEPTH:
            line = f", line {event.start_mark.line + 1}" if event.start_mark else ""
            raise ConfigError(WEB_CONFIG_KEY, path, f"not YAML of names and values alone{line}")


def _mapping(path: Path, what: str, value: object, known: tuple[str, ...] | None = None) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(WEB_CONFIG_KEY, path, f"{what} must be names and values")
    unknown = sorted(set(value) - set(known)) if known is not None else []
    if unknown:
        raise ConfigError(
            WEB_CONFIG_KEY, path, f"{what}: {', '.join(unknown)} unknown here; known: {', '.join(known or ())}"
        )
    return {name: None if inner in _NULLS else inner for name, inner in value.items()}


def _users(path: Path, section: object) -> dict[str, str]:
    users = {}
    for name, hashed in _mapping(path, "basic_auth_users", section).items():
        shown = shortened(repr(name))
        if not name or ":" in name:
            raise ConfigError(WEB_CONFIG_KEY, path, "basic_auth_users: a name is empty or has a colon")
        cost = cost_of(hashed) if isinstance(hashed, str) else None
        if not isinstance(hashed, str) or cost is None:
            raise ConfigError(WEB_CONFIG_KEY, path, f"basic_auth_users: the value of {shown} is no bcrypt hash")
        if cost > MAX_COST:
            reason = f"the hash of {shown} has cost {cost}; above {MAX_COST} a guess takes too long"
            raise ConfigError(WEB_CONFIG_KEY, path, f"basic_auth_users: {reason}")
        users[name] = hashed
    return users


def _tls(path: Path, section: object) -> tuple[ssl.SSLContext | None, tuple[Path, ...]]:
    said = _mapping(path, "tls_server_config", section, _TLS_KEYS)
    if not said:
        return None, ()
    texts = {key: value for key, value in said.items() if isinstance(value, str) and value}
    for key in ("cert_file", "key_file"):
        if key not in texts:
            raise ConfigError(WEB_CONFIG_KEY, path, f"tls_server_config: {key} is missing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _choice(path, said, "min_version", _TLS_VERSIONS, ssl.TLSVersion.TLSv1_2)
    context.maximum_version = _choice(path, said, "max_version", _TLS_VERSIONS, ssl.TLSVersion.TLSv1_3)
    verify = _choice(path, said, "client_auth_type", _CLIENT_AUTH, ssl.CERT_NONE)
    if verify is not ssl.CERT_NONE and "client_ca_file" not in texts:
        raise ConfigError(WEB_CONFIG_KEY, path, "tls_server_config: client_auth_type needs client_ca_file")
    files = {key: path.parent / texts[key] for key in ("cert_file", "key_file", "client_ca_file") if key in texts}
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ValueError) as error:  # ssl.SSLError is one
        raise ConfigError(WEB_CONFIG_KEY, path, f"tls_server_config: {error}") from error
    context.verify_mode = verify
    return context, tuple(files.values())


def _choice(
    path: Path, said: Mapping[str, object], key: str, choices: Mapping[str, _Choice], default: _Choice
) -> _Choice:
    value = said.get(key)
    if value is None or value == "":
        return default
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(WEB_CONFIG_KEY, path, f"tls_server_config: {key} must be one of {', '.join(choices)}")
    return choices[value]
