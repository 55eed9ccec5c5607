"""Parses settings with their own syntax: addresses, rates of single log dirs, codecs with a level."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from cleaner.base import arguments
from cleaner.base.sizes import parse_size
from cleaner.errors import ConfigError, UsageError, shortened

LISTEN_KEY = "cleaner.http.listen"
LOG_DIR_RATES_KEY = "cleaner.log.dir.io.max.bytes.per.second"
OTEL_ENDPOINT_KEY = "cleaner.otel.endpoint"

RECOMPRESS_KEY = "cleaner.recompress"
SURVIVOR_KEY = "cleaner.survivor"
OFFSET_SURVIVES, TIMESTAMP_SURVIVES, HEADER_SURVIVES = "offset", "timestamp", "header:"

_HIGHEST_LEVEL = 19  # above, frames need windows of up to 128 MiB from every reader
_RECOMPRESSION = re.compile(r"(none|lz4|zstd)(?::([0-9]{1,3}))?\Z", re.ASCII)
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s:\[\]]+)):([0-9]{1,5})\Z", re.ASCII)
_ENDPOINT = re.compile(r"(https?://(?:\[[0-9a-fA-F:.]+\]|[^\s:@/?#\[\]]+)(?::[0-9]{1,5})?)(/[^\s@?#]*|)\Z", re.ASCII)
_RATE = re.compile(r"[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?\Z", re.ASCII)


def parse_address(text: str) -> tuple[str, int] | None:
    """
    Parse `HOST:PORT`; returns host (an IPv6 address without its brackets) and port, None for an empty text.

    Port 0 means any free port.

    Raises:
        ConfigError: another syntax, or an invalid port.
    """
    if not text:
        return None
    match = _ADDRESS.match(text)
    if match is None or int(match.group(3)) > 65535:
        raise ConfigError(LISTEN_KEY, text, "must be HOST:PORT, port 0 to 65535, such as 127.0.0.1:9404; or empty")
    return match.group(1) or match.group(2), int(match.group(3))


def checked_otel_endpoint(text: str) -> str:
    """
    Return the URL that spans are sent to: `http://HOST:4318` gets OTLP's own path; empty stays empty.

    Raises:
        ConfigError: not an address, or one with a password, which would be shown with the settings.
    """
    match = _ENDPOINT.match(text)
    if text and match is None:
        reason = "must be http://HOST:PORT or https://HOST:PORT, with a path or without; a user belongs into a header"
        raise ConfigError(OTEL_ENDPOINT_KEY, "" if "@" in text else text, reason)
    return f"{match.group(1)}/v1/traces" if match and match.group(2) in ("", "/") else text


def parse_log_dir_rates(words: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """
    Parse words `path=rate`; returns paths and bytes a second.

    Raises:
        ConfigError: another syntax, a relative path, a path named twice, or a rate that is not above 0.
    """
    rates: dict[str, float] = {}
    for word in words:
        path, _, rate = (part.strip() for part in word.rpartition("="))
        try:
            found = float(rate) if _RATE.match(rate) else float(parse_size(rate))
        except ValueError:
            found = None
        if not path.startswith("/") or found is None:
            reason = "must be path=rate, an absolute path and bytes a second, such as /data/kafka=50M"
            raise ConfigError(LOG_DIR_RATES_KEY, word, reason)
        if not 0 < found < math.inf:
            raise ConfigError(LOG_DIR_RATES_KEY, word, "must be a rate above 0")
        if path in rates:
            raise ConfigError(LOG_DIR_RATES_KEY, word, f"{path} has a rate already")
        rates[path] = found
    return tuple(rates.items())


class Recompression(NamedTuple):
    """
    How rounds pack the batches that stay (`cleaner.recompress`).

    Attributes:
        codec: NONE, LZ4 or ZSTD.
        level: of zstd; None: Kafka's default, and batches of that codec are not packed again.
    """

    codec: int
    level: int | None = None

    def __str__(self) -> str:
        from cleaner.kernels.codec_table import CODEC_NAMES  # loads numpy, which `--help` does without

        name = CODEC_NAMES[self.codec]
        return name if self.level is None else f"{name}:{self.level}"


def parse_recompression(text: str | None) -> Recompression | None:
    """
    Parse `zstd`, `zstd:LEVEL`, `lz4` or `none`; None for `off`, or no text.

    Raises:
        ConfigError: anything else.
    """
    if text is None or text in ("", "off"):
        return None
    from cleaner.kernels.codec_table import LZ4, NONE, ZSTD  # as above

    match = _RECOMPRESSION.match(text)
    codec = {"none": NONE, "lz4": LZ4, "zstd": ZSTD}[match.group(1)] if match else NONE
    level = int(match.group(2)) if match and match.group(2) else None
    if match is None or (level is not None and (codec != ZSTD or not 1 <= level <= _HIGHEST_LEVEL)):
        raise ConfigError(RECOMPRESS_KEY, text, f"must be zstd, zstd:1 to zstd:{_HIGHEST_LEVEL}, lz4, none or off")
    return Recompression(codec, level)


def checked_recompression(text: str) -> str:
    """Return the text if `parse_recompression` takes it. Raises ConfigError."""
    parse_recompression(text)
    return text


def checked_survivor(text: str) -> str:
    """Return `offset`, `timestamp` or `header:NAME`. Raises ConfigError for anything else."""
    is_header = text.startswith(HEADER_SURVIVES) and text != HEADER_SURVIVES
    if text not in (OFFSET_SURVIVES, TIMESTAMP_SURVIVES) and not is_header:
        raise ConfigError(SURVIVOR_KEY, text, "must be offset, timestamp or header:NAME, such as header:version")
    return text


def given_survivor(survivor: object) -> str:
    """Return a caller's argument of this name, if it is such a text. Raises UsageError."""
    text = arguments.text("survivor", survivor)
    try:
        return checked_survivor(text)
    except ConfigError as error:
        raise UsageError(f"survivor is {shortened(text)}: {error.reason}") from error
