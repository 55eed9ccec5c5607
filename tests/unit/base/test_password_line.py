"""The line of requests whose password must be compared: each address in its turn, and no more than fit."""

from __future__ import annotations

from cleaner.base.password_line import WaitingLine, origin_of

HERE, THERE, ELSEWHERE = (origin_of(f"10.0.0.{number}") for number in (1, 2, 3))


def test_each_origin_has_its_turn() -> None:
    """A request from another address than the crowd waits for one of them; within an address the first goes first."""
    line: WaitingLine[str] = WaitingLine(most=64)
    for number in range(4):
        assert line.join(HERE, f"here {number}") is None
    line.join(THERE, "there 0")
    line.join(ELSEWHERE, "elsewhere 0")
    line.join(THERE, "there 1")
    taken = [line.take() for _ in range(7)]
    assert taken == ["here 0", "there 0", "elsewhere 0", "here 1", "there 1", "here 2", "here 3"]


def test_full_line_is_left_by_the_last_of_the_crowd() -> None:
    """One more of the crowd has no place; one of another place takes it from the crowd."""
    line: WaitingLine[str] = WaitingLine(most=3)
    for number in range(3):
        line.join(HERE, f"here {number}")
    assert line.join(HERE, "here 3") == "here 3"
    assert line.join(THERE, "there 0") == "here 2"
    assert [line.take() for _ in range(3)] == ["here 0", "there 0", "here 1"]
    assert line.join(HERE, "here 4") is None


def test_empty_line_returns_none() -> None:
    """Before anybody came, and after the last was taken."""
    line: WaitingLine[str] = WaitingLine(most=64)
    assert line.take() is None
    line.join(HERE, "first")
    assert [line.take(), line.take()] == ["first", None]


def test_origin_is_an_address_or_a_network() -> None:
    """Who has an IPv6 address has billions; one of IPv4 is the same in both."""
    assert origin_of("2001:db8::1") == origin_of("2001:db8::ffff:2") != origin_of("2001:db8:0:1::1")
    assert origin_of("::ffff:10.0.0.1") == HERE != THERE
    assert origin_of("fe80::1%eth0") == origin_of("fe80::2")
