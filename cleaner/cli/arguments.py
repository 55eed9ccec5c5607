"""Options that many commands take, and the parsing of their values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cleaner.base.mistakes import Mistakes
from cleaner.base.model import name_without_place
from cleaner.base.remote_path import any_path
from cleaner.base.sizes import parse_size
from cleaner.config.process_settings import KAFKA_VERSION_KEY, KAFKA_VERSION_NAMES
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.app.configuration import Loaded
    from cleaner.app.options import HighWatermark, Rounds, Sampling
    from cleaner.settings.sources import SetOption, Sources


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the log dir, the sources of settings, the moment and the format."""
    parser.add_argument("log_dir", metavar="LOG_DIR", type=any_path, help="one entry of a broker's log.dirs")
    add_way_of_looking(parser)


def add_way_of_looking(parser: argparse.ArgumentParser, whose: str = "the log dir's") -> None:
    """Add the sources of settings, the moment, the format, and `--as-root`."""
    add_settings(parser)
    parser.add_argument(
        "--now", metavar="MS", type=parse_now, help="the time to use as now, in ms since 1970 (default: the clock's)"
    )
    add_format(parser)
    add_as_root(parser, whose)


def add_as_root(parser: argparse.ArgumentParser, whose: str = "the log dir's") -> None:
    """Add `--as-root`; `whose` owner the command becomes without it."""
    parser.add_argument(
        "--as-root", action="store_true", help=f"started as root, stay root instead of becoming {whose} owner"
    )


def add_format(parser: argparse.ArgumentParser, what: str = "one object a line") -> None:
    """Add `--format`; `what` describes its JSON."""
    parser.add_argument("--format", choices=("table", "json"), default="table", help=f"json: {what} (default: table)")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where settings come from."""
    settings = parser.add_argument_group(
        "settings, highest precedence first",
        "Between --topics-dir and --config come cleaner-topics.properties in the log dir and the environment "
        "(CLEANER_LOG_CLEANER_THREADS=2); below --config the KRaft metadata log, if there is one for this cluster.",
    )
    settings.add_argument(
        "--set",
        dest="sets",
        metavar="[TOPIC:]KEY=VALUE",
        action="append",
        default=[],
        help="a setting of one topic, or of the process and all topics; may be repeated",
    )
    settings.add_argument("--topics-dir", metavar="DIR", type=Path, help="a directory of <topic>.properties files")
    settings.add_argument(
        "--config", metavar="FILE", type=Path, help="a server.properties, or a file with a few of its or a topic's keys"
    )
    settings.add_argument(
        "--metadata-dir", metavar="DIR", type=Path, help="where __cluster_metadata-0 is, if not in the log dir"
    )
    add_as_kafka(parser)


def add_as_kafka(parser: argparse.ArgumentParser) -> None:
    """Add `--as-kafka`, short for `--set cleaner.kafka.version=...`."""
    parser.add_argument(
        "--as-kafka",
        choices=("auto", *KAFKA_VERSION_NAMES),
        help="the Kafka release whose rules apply (default: cleaner.kafka.version; auto: by metadata.version)",
    )


def add_high_watermark(parser: argparse.ArgumentParser) -> None:
    """Add `--high-watermark`."""
    parser.add_argument(
        "--high-watermark",
        metavar="checkpoint|end|N",
        type=parse_high_watermark,
        default="checkpoint",
        help="records below it count as replicated and may be cleaned: replication-offset-checkpoint, the log end, "
        "or an offset (default: checkpoint; a partition without a line there is not cleaned)",
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add `--estimate` and how much of a log it reads."""
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="read samples of the dirty section to estimate bytes freed, extra disk, rounds and seconds",
    )
    parser.add_argument(
        "--sample",
        metavar="BYTES",
        type=parse_bytes,
        help="how much of each log is read for this, K, M, G, T (default: a tenth, 256M to 4G)",
    )


def add_recompress(parser: argparse.ArgumentParser) -> None:
    """Add `--recompress`."""
    parser.add_argument(
        "--recompress",
        metavar="zstd[:LEVEL]|lz4|none|off",
        type=parse_recompress,
        help="pack the batches that stay, and join small ones without a producer up to max.message.bytes: the same "
        "records, but not the batches that Kafka would leave (default: cleaner.recompress, or off)",
    )


def sampling_of(arguments: argparse.Namespace) -> Sampling | None:
    """Return how to sample; None without an estimate."""
    from cleaner.app.options import Sampling

    return Sampling(arguments.sample) if arguments.estimate or arguments.sample is not None else None


def sources(arguments: argparse.Namespace) -> Sources:
    """
    Gather where settings come from; the `--config` file is read here, before any change of user.

    Raises:
        ConfigError: the file cannot be read or is not a properties file, or a `CLEANER_` variable is not a setting.
        UsageError: a malformed `--set`.
    """
    from cleaner.settings import read_config_file, read_environment
    from cleaner.settings.sources import Sources

    mistakes = Mistakes()
    config: dict[str, str] = {}
    environment: dict[str, str] = {}
    if arguments.config is not None:
        with mistakes.collected():
            config = read_config_file(FileSystem(), arguments.config)
    with mistakes.collected():
        environment = read_environment(os.environ)
    mistakes.raise_any()
    return Sources(
        config=config,
        sets=set_options(arguments),
        topics_dir=arguments.topics_dir,
        metadata_dir=arguments.metadata_dir,
        trust_default_policy=getattr(arguments, "trust_default_policy", False),
        environment=environment,
    )


def settings_given(arguments: argparse.Namespace) -> str:
    """Return the options that say where settings come from, for the next command."""
    from shlex import quote

    named = {
        "--config": arguments.config,
        "--topics-dir": arguments.topics_dir,
        "--metadata-dir": arguments.metadata_dir,
    }
    words = [f" {option} {quote(str(value))}" for option, value in named.items() if value is not None]
    if arguments.as_kafka is not None:
        words.append(f" --as-kafka {arguments.as_kafka}")
    return "".join([*words, *(f" --set {quote(text)}" for text in arguments.sets)])


def typed_again(arguments: argparse.Namespace, partition: str = "", sets: Iterable[str] = ()) -> str:
    """
    Return the typed command, changed to be typed again.

    Args:
        arguments: those of the command.
        partition: the only named partition to keep; empty: keep all of them.
        sets: `--set` options to append.
    """
    from shlex import join

    others = {name for name in arguments.partitions if partition and name_without_place(name) != partition}
    words = [word for word in arguments.typed if word not in others]
    return join(["cleaner", *words, *(word for text in sets for word in ("--set", text))])


def set_options(arguments: argparse.Namespace) -> tuple[SetOption, ...]:
    """Read the `--set` options, and `--as-kafka`, which is one of them. Raises UsageError: a malformed one."""
    from cleaner.settings.sources import SetOption

    named = [] if arguments.as_kafka is None else [SetOption(None, KAFKA_VERSION_KEY, arguments.as_kafka)]
    return (*(SetOption.parse(text) for text in arguments.sets), *named)


def load_process_settings(arguments: argparse.Namespace) -> Loaded:
    """Load the settings of a daemon with these options and this environment. Raises ConfigError: all mistakes."""
    from cleaner.app.configuration import load_settings

    return load_settings(
        arguments.config,
        set_options(arguments),
        os.environ,
        topics_dir=arguments.topics_dir,
        metadata_dir=arguments.metadata_dir,
        log_dirs=arguments.log_dirs,
    )


def parse_high_watermark(text: str) -> HighWatermark:
    """Read `checkpoint`, `end` or an offset."""
    match text:
        case "checkpoint" | "end":
            return text
    return parse_offset(text)


def parse_rounds(text: str) -> Rounds:
    """Read a number of rounds, or `all`."""
    count = parse_offset_or_all(text)
    if count != "all" and count < 1:
        raise argparse.ArgumentTypeError("at least one round")
    return count


def parse_recompress(text: str) -> str:
    """Read a codec, perhaps with a level."""
    from cleaner.config.forms import checked_recompression
    from cleaner.errors import ConfigError

    try:
        return checked_recompression(text or "nothing")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error.reason}") from error


def parse_now(text: str) -> int:
    """Read milliseconds since 1970."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**62:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of milliseconds since 1970")
    return int(text)


def parse_offset(text: str) -> int:
    """Read a number that is not negative."""
    if not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return int(text)


def parse_offset_or_all(text: str) -> int | Literal["all"]:
    """Read a number that is not negative, or `all`."""
    match text:
        case "all":
            return text
    try:
        return parse_offset(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and not all") from None


def parse_count(text: str) -> int:
    """Read a number above 0."""
    count = parse_offset(text)
    if count < 1:
        raise argparse.ArgumentTypeError("at least one")
    return count


def parse_bytes(text: str) -> int:
    """Read a size (`cleaner/sizes.py`) above 0."""
    try:
        count = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
    if count < 1:
        raise argparse.ArgumentTypeError("at least one byte")
    return count


def parse_seconds(text: str) -> float:
    """Read a duration in seconds."""
    return _above_zero(text, "a number of seconds")


def parse_rate(text: str) -> float:
    """Read a rate per second."""
    return _above_zero(text, "a number a second")


def _above_zero(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} above 0")
    return number
