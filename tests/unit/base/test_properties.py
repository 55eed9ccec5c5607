"""Properties files mean to us what they mean to Java."""

from __future__ import annotations

import random
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.properties import format_properties, parse_properties
from cleaner.config.values import TopicConfig
from cleaner.errors import ConfigError

LOAD_PROPERTIES = Path(__file__).parents[1] / "java" / "LoadProperties.java"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"a=b\n", {"a": "b"}, id="equals"),
        pytest.param(b"a:b\n", {"a": "b"}, id="colon"),
        pytest.param(b"a b\n", {"a": "b"}, id="blank"),
        pytest.param(b"  a \t = \f b ", {"a": "b "}, id="blanks-around-but-not-behind"),
        pytest.param(b"a = = b", {"a": "= b"}, id="second-separator-is-value"),
        pytest.param(b"a", {"a": ""}, id="key-alone"),
        pytest.param(b"=b", {"": "b"}, id="empty-key"),
        pytest.param(b"a=1\na=2\n", {"a": "2"}, id="last-of-two"),
        pytest.param(b"# a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}, id="comments-and-blank-lines"),
        pytest.param(b"a=1#2!3", {"a": "1#2!3"}, id="comment-sign-in-value"),
        pytest.param(b"# a \\\nb=1", {"b": "1"}, id="comment-is-not-continued"),
        pytest.param(b"a=1,\\\n   2,\\\r\n\t3\rb=4", {"a": "1,2,3", "b": "4"}, id="continued-lines-all-ends"),
        pytest.param(b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}, id="two-backslashes-do-not-continue"),
        pytest.param(b"a=1\\\n# b", {"a": "1# b"}, id="comment-sign-on-continued-line"),
        pytest.param(b"a=1\\\n\nb=2", {"a": "1", "b": "2"}, id="continued-by-blank-line"),
        pytest.param(b"a=1\\", {"a": "1"}, id="backslash-at-end-of-file"),
        pytest.param(b"\\\n# a\nb=1", {"b": "1"}, id="comment-behind-lone-backslash"),
        pytest.param(b"\\", {"": ""}, id="lone-backslash-at-end-of-file"),
        pytest.param(b"\\\r\n", {}, id="lone-backslash-before-cr-lf"),
        pytest.param(b"a\\ b\\=c\\:d=1", {"a b=c:d": "1"}, id="escaped-separators"),
        pytest.param(b"a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}, id="escapes"),
        pytest.param(b"a=\\u0041\\uD83D\\uDE00", {"a": "A\U0001f600"}, id="unicode-escapes"),
        pytest.param(b"a=\xe9", {"a": "\xe9"}, id="latin-1"),
    ],
)
def test_parse_properties_reads_what_java_reads(text: bytes, expected: dict[str, str]) -> None:
    """Keys and values are those of `java.util.Properties.load`."""
    assert expected == parse_properties(text, "x.properties")


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\u12g4", b"\\uzzzz=1", b"a=\\u 123"])
def test_parse_properties_with_malformed_escape_is_refused(text: bytes) -> None:
    """A broken unicode escape refuses the file by name, as Java refuses it."""
    with pytest.raises(ConfigError, match=r"x\.properties.*four hexadecimal digits"):
        parse_properties(text, "x.properties")


@given(st.dictionaries(st.text(), st.text()))
def test_format_properties_is_read_back_as_written(values: dict[str, str]) -> None:
    """Whatever keys and values are written, the same are read."""
    assert values == parse_properties(format_properties(values), "x")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a=b\n\nsecret=" + b"secret" * 200_000, 3),
        (b"a=b\n" + b"secret" * 200_000, 2),
        (b"a=b\nsecret=" + b"secret\\\n" * 200_000, 2),
        (b"#" + b"secret" * 200_000, 1),
    ],
    ids=["value", "key", "joined", "comment"],
)
def test_line_that_is_too_long_is_refused_by_its_number(text: bytes, line: int) -> None:
    """Nothing of it is repeated, and it takes memory in proportion to the file."""
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as caught:
            parse_properties(text, "/etc/x.properties")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    reason = "longer than 1048576 characters: this is not a configuration"
    assert str(caught.value) == f"/etc/x.properties: line {line}: {reason}"
    assert peak_bytes < 10 * len(text)


def test_more_settings_than_any_configuration_has_are_refused() -> None:
    """A dictionary of millions of them would take too much memory."""
    text = b"".join(b"%x\n" % number for number in range(300_000))
    with pytest.raises(ConfigError, match=r"x: line 200001: more than 200000 settings"):
        parse_properties(text, "x")


@pytest.mark.parametrize("value", ["x" * 5_000_000, "hunter2" * 30], ids=["long", "longer than a line"])
def test_error_about_a_long_value_shows_only_its_ends(value: str) -> None:
    """A typo in a name shows nothing of the value."""
    with pytest.raises(ConfigError) as caught:
        TopicConfig.from_mapping({"segment.ms": value, "cleanup.polcy": "secret"})
    assert all(len(line) < 200 for line in str(caught.value).splitlines())
    assert "secret" not in str(caught.value)


def _random_file(rng: random.Random) -> bytes:
    pieces = [
        b"a",
        b"key",
        b"=",
        b":",
        b" ",
        b"\t",
        b"\f",
        b"\n",
        b"\r",
        b"\r\n",
        b"\\",
        b"\\\n",
        b"\\\r\n",
        b"#",
        b"!",
    ]
    pieces += [b"\\u00e9", b"\\u12", b"\\n", b"\\q", b"\xe9", b"\x00", b"1", b"\n", b"\\\\"]
    return b"".join(rng.choice(pieces) for _ in range(rng.randrange(30)))


def _as_java_prints(text: bytes) -> str:
    try:
        values = parse_properties(text, "x")
    except ConfigError:
        return "refused"
    pairs = {
        k.encode("utf-16-be", "surrogatepass").hex(): v.encode("utf-16-be", "surrogatepass").hex()
        for k, v in values.items()
    }
    return "".join(f"{key}={pairs[key]} " for key in sorted(pairs))


@pytest.mark.kafka
def test_parse_properties_on_random_files_agrees_with_java() -> None:
    """Twenty thousand files of separators, escapes and line ends mean the same to `java.util.Properties`."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("NOT CHECKED: no java to compare properties files with")
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    files = [_random_file(rng) for _ in range(20_000)]
    files += [format_properties({text.decode("iso-8859-1"): text.decode("iso-8859-1")}) for text in files[:1000]]
    command = [java, "-Xmx200m", "-XX:TieredStopAtLevel=1", str(LOAD_PROPERTIES)]
    hexes = "".join(text.hex() + "\n" for text in files)
    answer = subprocess.run(command, input=hexes, capture_output=True, text=True, check=True, timeout=120)
    theirs = answer.stdout.split("\n")[:-1]
    different = [text for text, line in zip(files, theirs, strict=True) if _as_java_prints(text) != line]
    assert different == []


@pytest.mark.parametrize(("encoding", "word"), [("utf-8-sig", "byte-order mark"), ("utf-16", "UTF-16")])
def test_mark_before_the_first_key_is_refused_and_not_read_as_part_of_it(encoding: str, word: str) -> None:
    """Java would read another key, which nobody knows; the setting would be lost without a word."""
    with pytest.raises(ConfigError, match=f"^x: line 1: .*{word}"):
        parse_properties("a=1\nb=2\n".encode(encoding), "x")


@pytest.mark.parametrize("head", ["# settings\n", "\n", ""])
def test_mark_before_a_comment_or_a_blank_line_is_passed_over(head: str) -> None:
    """It changes no key there, and a broker reads such a file."""
    text = f"{head}a=1\n" if head else ""
    assert parse_properties(text.encode("utf-8-sig"), "x") == ({"a": "1"} if head else {})
