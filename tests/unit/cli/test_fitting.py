"""Text, commands and tables brought to a width."""

from __future__ import annotations

import random
import shlex
import subprocess

import pytest

from cleaner.cli.fitting import columns, fold, fold_command, seen, shortened, table, wide

WORDS = ("a", "of", "/var/lib/kafka/data", "prices-0", "x" * 90, "two words", "it's", "$HOME", "a\\b", "é" * 50, "")


@pytest.mark.parametrize("seed", range(20))
def test_folded_text_has_all_its_words_and_no_line_is_too_long(seed: int) -> None:
    """Whatever its words, the width and what further lines begin with; only words longer than a line are cut."""
    rolls = random.Random(seed)
    text = " " * rolls.randrange(9) + " ".join(rolls.choice(WORDS) for _ in range(rolls.randrange(1, 30)))
    for width in (40, 60, 80, 200):
        lines = fold(text, width, " " * rolls.randrange(8))
        assert max(map(len, lines)) <= width
        assert "".join("".join(lines).split()) == "".join(text.split())
    assert fold(text, None) == [text]


def test_terminal_codes_take_no_room() -> None:
    """A coloured line that fits is not folded."""
    text = "\x1b[31m" + "word " * 7 + "end\x1b[0m"
    assert seen(text) == 38
    assert fold(text, 38) == [text]
    assert len(fold(text, 37)) == 2


def test_command_in_backticks_stays_whole() -> None:
    """Half a command would be pasted else; one that is too long for a line gets lines of its own."""
    text = "the marker is missing, so type `cleaner recover /data/kafka`; a replica may have it all"
    assert any("`cleaner recover /data/kafka`;" in line for line in fold(text, 40))
    long = "then `cleaner check --repair /data/kafka/a-partition-0 --memory 100M --now 12345678` makes them"
    assert fold(long, 50) == [
        "then ",
        "  cleaner check \\",
        "      --repair /data/kafka/a-partition-0 \\",
        "      --memory 100M --now 12345678",
        "  makes them",
    ]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_folded_command_is_the_same_to_a_shell(width: int) -> None:
    """Any words, quoted: what is pasted has the same arguments, and no line is too long."""
    rolls = random.Random(width)
    given = [
        [
            "--set",
            *(rolls.choice(WORDS) for _ in range(rolls.randrange(1, 9))),
            "--all",
            "y" * 300,
            "it's two words " * 20,
        ]
        for _ in range(40)
    ]
    folded = [fold_command(shlex.join(["show", *words]), width, "  ") for words in given]
    assert all(len(line) <= width for lines in folded for line in lines)
    script = "show() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\n" + "\n".join(
        line for each in folded for line in each
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    found = [each.split("\0")[:-1] for each in done.stdout.split("\n\0")[:-1]]
    assert found == given


def test_table_that_is_too_wide_is_folded_shortened_and_at_last_stacked() -> None:
    """Words in its last column first, then names, then words below their row, then a paragraph a row."""
    headings = ("partition", "size", "why")
    rows = [("orders-with-a-long-name-of-a-topic-0", "1.0 GiB", "one two three four five six")]

    def laid_out(most: int | None, why: str = "") -> list[str]:
        given = [(*row[:2], why or row[2]) for row in rows]
        return table(headings, given, left=(0, 2), most=most).split("\n")

    assert laid_out(None) == laid_out(200)
    assert laid_out(70)[1:] == [
        "orders-with-a-long-name-of-a-topic-0  1.0 GiB  one two three four five",
        " " * 47 + "six",
    ]
    assert laid_out(50)[1].startswith("orders-wi…a-topic-0  1.0 GiB  one two three four")
    assert laid_out(50, "word " * 30)[1:4] == [
        "    why",
        "orders-with-a-long-name-of-a-topic-0  1.0 GiB",
        "    word word word word word word word word word",
    ]
    stacked = table(("partition", *"abcdefg"), [("orders-0", *["1234567"] * 7)], most=40).split("\n")
    assert stacked == [
        "orders-0",
        "  a 1234567, b 1234567, c 1234567,",
        "  d 1234567, e 1234567, f 1234567,",
        "  g 1234567",
    ]


@pytest.mark.parametrize("seed", range(20))
def test_any_table_fits(seed: int) -> None:
    """Whatever is in it."""
    rolls = random.Random(seed)
    count = rolls.randrange(1, 9)
    rows = [
        [" ".join(rolls.choice(WORDS) for _ in range(rolls.randrange(5))) for _ in range(count)]
        for _ in range(rolls.randrange(1, 5))
    ]
    left = frozenset(column for column in range(count) if rolls.random() < 0.6)
    for width in (40, 60, 80):
        text = table([f"column {n}" for n in range(count)], rows, left=left, most=width)
        assert max(map(len, text.split("\n"))) <= width


def test_shortened_name_keeps_both_ends() -> None:
    """The topic's beginning and the partition's number."""
    assert shortened("a-long-name-of-a-topic-17", 12) == "a-long…ic-17"


def test_width_is_that_of_columns_unless_everything_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no number, or too small to be one of a terminal, is none."""
    for text, width in (("80", 80), ("7", 40), ("0", None), ("x", None), ("", None), ("٨٠", None)):
        monkeypatch.setenv("COLUMNS", text)
        assert columns() == width
    monkeypatch.setenv("COLUMNS", "80")
    with wide(chosen=True):
        assert columns() is None
    assert columns() == 80


def test_terminal_codes_are_never_cut() -> None:
    """A word longer than a line ends where its cells do, wherever its colours begin."""
    coloured = "\x1b[35m" + "n" * 50 + "\x1b[0m"
    for shift in range(12):
        lines = fold("x" * shift + coloured, 20)
        assert all(seen(line) <= 20 for line in lines)
        assert "".join(line.lstrip() for line in lines) == "x" * shift + coloured
