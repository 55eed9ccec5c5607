"""
Whatever bytes come from outside, reading them takes time in proportion to their number.

Every regular expression of the package is found by walking its sources, so that one nobody has thought of is tried too,
and so is each reader of such bytes as a whole. The input is doubled until it is long enough to tell: at its last size a
linear reader takes milliseconds and a quadratic one many seconds, so that a busy machine fails no test.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cleaner
from cleaner.base.json_values import NotJsonError, parse_json
from cleaner.base.properties import parse_properties, split_properties
from cleaner.config.forms import parse_address, parse_log_dir_rates
from cleaner.config.read import check_broker_keys
from cleaner.config.values import TopicConfig
from cleaner.daemon.control.verbs import MAX_REQUEST_BYTES, answer
from cleaner.errors import CleanerError
from cleaner.log.transactional_ids import FILE_NAME as TRANSACTIONAL_IDS
from cleaner.log.transactional_ids import TransactionalIds
from cleaner.present.http.message import MAX_HEAD_BYTES, parse_request
from cleaner.present.http.web_config import MAX_BYTES, load
from cleaner.settings import parse_set, read_environment
from cleaner.settings.files import parse_cleaner_topics
from cleaner.settings.windows import read_windows
from cleaner.spark.source.options import size as parse_size
from cleaner.state.journal import JournalEntry
from cleaner.state.kept_manifest import manifest
from cleaner.storage.files.checkpoint import parse_offset_checkpoint
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.files.meta_properties import LIMIT_BYTES as META_BYTES
from cleaner.storage.files.meta_properties import read_meta_properties
from cleaner.storage.files.partition_metadata import LIMIT_BYTES as ID_BYTES
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import offset_of, parse_file_name, parse_partition_dir

FS = FileSystem()
ROOT = Path(cleaner.__file__).parent

MAX_SECONDS = 3.0
"""For one input. Linear readers take a hundredth of it, quadratic ones many times as long at the last doubling."""

NOT_FROM_OUTSIDE = {
    "cli/topics.py:wanted": "the operator's own pattern, over names of at most 249 characters",
    "spark/source/options.py:text": "the pattern of who asks, over names of at most 249 characters",
    "spark/source/options.py:self.topic_pattern": "the same",
    "spark/source/write_options.py:allowed": "the table in the same file, over names of Spark's types",
    "storage/fs/many_files.py:'(\\\\d+)\\\\.(\\\\d+)'": "the running kernel's name of its own release",
    "storage/fs/memory_limits.py:_MEM_TOTAL": "what the running kernel says of the machine's memory",
}
"""Patterns that are not tried, and why."""

# What a pattern may be of two minds about; behind each of the texts below that lead into one.
PUMPS = (
    " ",
    "\t",
    "\n",
    "\r\n",
    "\\",
    "\\\n",
    "a",
    "A",
    "0",
    "a.",
    "a-",
    "a-a.",
    "-",
    ".",
    ",",
    " ,",
    ":",
    "=",
    "_",
    "A_",
    "{",
    "{a",
    "a 0 0\n",
    "_PORT_0",
    "0 ms ",
    "1000 ms",
    "\xed\xa0\x80",
    "\x00",
    "'",
    "/",
)
LEADS = ("", "version: ", "topic_id: ", "0\n9\na 0 ", "0\n9\n", "\\u", "next: ", "GET ", "a:", "1.", "[0", "_PORT_")
ENDS = ("", "!", "\n!")
LAST_OF_PATTERN = 1 << 16


class Use(NamedTuple):
    """A regular expression, and whether it is looked for anywhere in a text."""

    pattern: re.Pattern[Any]
    is_searched: bool


def find_patterns(root: Path, package: str) -> dict[str, Use]:
    """Return the regular expressions of a package by file and name (or text); those not known here are compiled."""
    found: dict[str, Use] = {}
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        if where.startswith("testing/"):
            continue
        tree = ast.parse(path.read_text())
        assert not any(isinstance(node, ast.ImportFrom) and node.module == "re" for node in ast.walk(tree)), where
        named = {
            id(node.value): ast.unparse(node.targets[0]) for node in ast.walk(tree) if isinstance(node, ast.Assign)
        }
        methods = {(ast.unparse(node.value), node.attr) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).startswith("re."):
                continue
            method = ast.unparse(node.func).removeprefix("re.")
            text = node.args[0]
            if method == "compile" and id(node) in named:
                name = f"{where}:{named[id(node)]}"
                uses = {attribute for of, attribute in methods if of == named[id(node)]}
            else:
                name, uses = f"{where}:{ast.unparse(text)}", {method}
            if name in NOT_FROM_OUTSIDE:
                continue
            if method == "compile":
                module = ".".join((package, *path.relative_to(root).with_suffix("").parts))
                pattern = getattr(importlib.import_module(module), named[id(node)])
            else:
                pattern = re.compile(ast.literal_eval(text))
            found[name] = Use(pattern, bool(uses - {"match", "fullmatch"}))
    return found


FOUND = find_patterns(ROOT, "cleaner")


def _slow_input(use: Use, growth: int = 8) -> tuple[str, str, str, int] | None:
    """Return an input, and its length, that a pattern takes too long for."""
    for lead, pump, end in itertools.product(LEADS, PUMPS, ENDS):
        count = 1 << 10
        while count <= LAST_OF_PATTERN:
            text: Any = lead + pump * (count // len(pump)) + end
            if isinstance(use.pattern.pattern, bytes):
                text = text.encode("latin-1")
            begun = time.perf_counter()
            if use.is_searched:
                for _ in itertools.islice(use.pattern.finditer(text), 100):
                    pass
            else:
                use.pattern.match(text)
            if time.perf_counter() - begun > MAX_SECONDS / 3:
                return lead, pump, end, count
            count *= growth
    return None


@pytest.mark.parametrize("name", sorted(FOUND))
def test_pattern_over_outside_bytes_is_linear(name: str) -> None:
    """Whatever is repeated in the text, and however often."""
    assert _slow_input(FOUND[name]) is None


def test_patterns_not_tried_are_still_there() -> None:
    """The list of exceptions names nothing that is gone."""
    assert [name for name in NOT_FROM_OUTSIDE if not (ROOT / name.partition(":")[0]).exists()] == []
    assert len(FOUND) > 30


@pytest.mark.parametrize(
    ("text", "is_searched"),
    [
        (r"([a-z]+):[ \t]*(.*?)[ \t]*\Z", False),
        (r"\\*\Z", True),
        (r"(\S+)-(\S+)\.(\S+)-x\Z", False),
        (r"\s*,\s*", True),
    ],
    ids=["header", "backslashes", "directory", "list"],
)
def test_pattern_that_is_not_linear_is_found(text: str, is_searched: bool) -> None:
    """The inputs above can tell: these patterns stood here once."""
    assert _slow_input(Use(re.compile(text), is_searched), growth=2) is not None


class Reader(NamedTuple):
    """
    Something that reads bytes from outside.

    Attributes:
        read: given the bytes and a directory to put a file in.
        inputs: beginning, what is repeated, and end.
        most: bytes that are read at all.
    """

    read: Callable[[bytes, Path], object]
    inputs: tuple[tuple[str, str, str], ...]
    most: int = 1 << 18


def _file(directory: Path, data: bytes, name: str = "file") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


def _text(data: bytes) -> str:
    return data.decode("latin-1")


NOBODY: Any = None  # nothing here is a request that can be done
CHECKPOINT = (
    ("0\n9\n", "a 0 0\n", "!"),
    ("0\n9\n", "a", " 0 0\n"),
    ("", "0", ""),
    ("", "\r", ""),
    ("0\n9\n", " ", "!"),
    ("0\n9\n", "a ", "\n"),
    ("0\n9\n", "\n", ""),
)
JSON = (
    ("", "[", ""),
    ('{"a":', '{"a":', ""),
    ('{"a":"', "\\u0041", ""),
    ('{"a":', "9", "}"),
    ("{", " ", ""),
    ('{"a":[', "[],", "[]]}"),
    ('{"a":"', "\\", ""),
    ('{"v":1,"do":"', "a", '"}'),
    ('{"a":1e', "9", "}"),
)
SETTINGS = (
    ("a=", "\\", "x\n"),
    ("a=", "\\\n", ""),
    ("a=1", "\\\n ", "x"),
    ("", "a", ""),
    ("", "a\\ ", ""),
    ("", "\n", ""),
    ("", "a.", "=1"),
    ("", "a=b\n", ""),
    ("a", " ", "x"),
    ("a=", "\\u0041", ""),
    ("", "\\u", ""),
    ("#", "\\", ""),
    ("", "\\\r\n", ""),
    ("", "ab\\\n", ""),
)
WORDS = (
    ("", " ", "x"),
    ("", "a ,", "x"),
    ("", "9", "x"),
    ("", "a=", ""),
    ("/", "a=", "1"),
    ("/a=", "9", "x"),
    ("", ":", "1"),
    ("", "[::", "]:1"),
    ("1", " ", "x"),
    ("", "1.", ""),
    ("", "12:00-13:00,", ""),
)
YAML = (
    ("", "a: b\n", ""),
    ("", "[", ""),
    ("a: ", "b ", ""),
    ("", "- ", ""),
    ("", "#", ""),
    ('a: "', "\\n", '"'),
    ("", "? a\n", ""),
    ("a: >\n", " x\n", ""),
    ("basic_auth_users:\n a: 1", ":59", ""),
    ("a: &a [x]\nb: [", "*a,", "]"),
    ("a: [", "b,", ""),
    ("", " ", "x"),
    ("a: 0b", "1", ""),
    ("a: 1", "_1", ".x"),
)
HEAD = "GET / HTTP/1.0\r\n"
HTTP = (
    (HEAD + "a:", " ", "\n\r\n\r\n"),
    (HEAD + "a:x", " ", "y\r\n\r\n"),
    (HEAD, "a:\r\n", "\r\n"),
    ("GET /", "a", " HTTP/1.0"),
    ("GET /", "%4", " HTTP/1.0\r\n\r\n"),
    ("GET /?", "a=&", " HTTP/1.0\r\n\r\n"),
    ("GET /", "../", " HTTP/1.0\r\n\r\n"),
    (HEAD + "host: 127", ".1", "\r\n\r\n"),
    (HEAD + "host: ", "a-", ".localhos\r\n\r\n"),
    (HEAD, "\r\n", ""),
    ("GET /[", "[", " HTTP/1.0\r\n\r\n"),
    (HEAD + "a", "\t", ":\r\n\r\n"),
)
NAMES = (
    ("a-", "a-0.", "-delete"),
    ("", "-", "-delete"),
    ("", "a-a.a", "-future"),
    ("", "0", ".log"),
    ("", "-0.", "log"),
    ("-", "0", ".index"),
    ("", "a-", "0"),
    ("", ".", "-stray"),
    ("a-0.", " ", "-delete"),
)
VARIABLES = (
    ("CLEANER_", "SERVICE_PORT_", "!"),
    ("CLEANER_", "A_", "PORT_0_TC"),
    ("CLEANER_", "PORT_0_TCP_", "x"),
    ("CLEANER_", "_", "HOST!"),
    ("CLEANER_", "LOG_", ""),
)
IDS = (("version: ", " ", "x"), ("version:", "\t", ""), ("version: 0\ntopic_id: ", " ", "\n"), ("version: ", "0", "\n"))

READERS = {
    "HTTP request": Reader(lambda data, _: parse_request(data).is_host_on_loopback, HTTP, MAX_HEAD_BYTES),
    "control request": Reader(lambda data, _: answer(data, NOBODY, 0, pytest.fail), JSON, MAX_REQUEST_BYTES),
    "properties": Reader(lambda data, _: parse_properties(data, "file"), SETTINGS),
    "properties, split": Reader(lambda data, _: list(split_properties(data)), SETTINGS),
    "broker settings": Reader(lambda data, _: check_broker_keys(parse_properties(data, "file")), SETTINGS),
    "cleaner-topics.properties": Reader(
        lambda data, _: parse_cleaner_topics(parse_properties(data, "file"), {"a", "ab"}, []), SETTINGS
    ),
    "meta.properties": Reader(lambda data, to: read_meta_properties(FS, _file(to, data)), SETTINGS, META_BYTES),
    "a topic's list setting": Reader(lambda data, _: TopicConfig.from_mapping({"cleanup.policy": _text(data)}), WORDS),
    "a topic's number setting": Reader(lambda data, _: TopicConfig.from_mapping({"segment.ms": _text(data)}), WORDS),
    "a topic's ratio setting": Reader(
        lambda data, _: TopicConfig.from_mapping({"min.cleanable.dirty.ratio": _text(data)}), WORDS
    ),
    "--set": Reader(lambda data, _: parse_set(_text(data)), WORDS),
    "windows": Reader(lambda data, _: read_windows(_text(data), "UTC"), WORDS),
    "address": Reader(lambda data, _: parse_address(_text(data)), WORDS),
    "rates": Reader(lambda data, _: parse_log_dir_rates(tuple(_text(data).split(","))), WORDS),
    "size": Reader(lambda data, _: parse_size({"a": _text(data)}, "a", 1), WORDS),
    "environment": Reader(lambda data, _: read_environment({_text(data): "1"}), VARIABLES, 128 << 10),
    "web.config": Reader(lambda data, to: load(FS, _file(to, data)), YAML, MAX_BYTES // 8),
    "offset checkpoint": Reader(lambda data, to: parse_offset_checkpoint(data, to), CHECKPOINT),
    "leader epochs": Reader(
        lambda data, to: read_leader_epochs(FS, _file(to, data)), (*CHECKPOINT, ("0\n9\n", "0 0\n", ""))
    ),
    "partition.metadata": Reader(lambda data, to: read_topic_id(FS, _file(to, data)), IDS, ID_BYTES),
    "transactional ids": Reader(
        lambda data, to: TransactionalIds(FS, _file(to, data, TRANSACTIONAL_IDS).parent).begin("a", lambda _: -1, 0),
        JSON,
    ),
    "kept manifest": Reader(lambda data, to: manifest(FS, _file(to, data, "manifest.json").parent).peek(), JSON),
    "journal": Reader(lambda data, _: JournalEntry.from_line(data), JSON),
    "directory name": Reader(lambda data, _: parse_partition_dir(_text(data)), NAMES),
    "file name": Reader(lambda data, _: (parse_file_name(_text(data)), offset_of(_text(data))), NAMES),
}


@pytest.mark.parametrize("name", READERS)
def test_reader_of_outside_bytes_takes_time_in_proportion(name: str, tmp_path: Path) -> None:
    """With each doubling of what is repeated, up to the most that is read; whatever it says of it is no traceback."""
    reader = READERS[name]
    for begin, pump, end in reader.inputs:
        size = min(1 << 12, reader.most)
        while size <= reader.most:
            room = size - len(begin) - len(end)
            data = (begin + pump * (room // len(pump)) + end).encode("latin-1")
            begun = time.perf_counter()
            with contextlib.suppress(CleanerError, ValueError):
                reader.read(data, tmp_path)
            seconds = time.perf_counter() - begun
            assert seconds < MAX_SECONDS, f"{seconds:.1f} s for {begin!r} + {size // len(pump)} x {pump!r} + {end!r}"
            size *= 2


@pytest.mark.parametrize(
    ("read", "data", "error"),
    [
        (parse_offset_checkpoint, b"0\n600000\n" + b"a 0 0\n" * 600_000, "600000 entries are announced"),
        (parse_offset_checkpoint, b"0\n9\n" + b"a 0 0\n" * 600_000, "more than the 9 entries announced"),
        (
            lambda data, path: read_leader_epochs(FS, _file(path, data)),
            b"0\n600000\n" + b"0 0\n" * 600_000,
            "600000 ent",
        ),
        (lambda data, _: parse_json(data), b'{"a":[' + b"[]," * 3_000_000 + b"0]}", "more than 4000000 values"),
        (lambda data, _: parse_json(data), b"{" * 5_000_000, "more than 4000000 values"),
    ],
    ids=["checkpoint", "checkpoint with a wrong count", "leader epochs", "lists", "objects"],
)
def test_small_values_without_end_are_refused_before_they_take_memory(
    read: Callable[[bytes, Path], object], data: bytes, error: str, tmp_path: Path
) -> None:
    """A few bytes in a file are a hundred in memory: there are only so many, whatever the file's limit lets through."""
    tracemalloc.start()
    try:
        with pytest.raises((CleanerError, ValueError), match=error):
            read(data, tmp_path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * len(data)


def test_json_number_beyond_all_bounds_is_refused() -> None:
    """It would be read as infinity, which no JSON can say."""
    with pytest.raises(NotJsonError, match="too large"):
        parse_json(b'{"a": 1e999}')
    assert parse_json(b'{"a": 1e30}') == {"a": 1e30}
