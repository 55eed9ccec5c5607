"""Users and passwords: who is right, who is remembered, and that a wrong guess tells nothing by its time."""

from __future__ import annotations

import base64

import bcrypt
import pytest

from cleaner.present.http.passwords import Passwords, cost_of


def hashed(password: str, cost: int = 4) -> str:
    """Return a bcrypt hash."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def basic(text: str) -> str:
    """Return an `Authorization` header."""
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the cost of each comparison that bcrypt makes."""
    noted: list[int] = []
    compare = bcrypt.checkpw

    def noting(password: bytes, hashed_password: bytes) -> bool:
        noted.append(cost_of(hashed_password.decode()) or -1)
        return compare(password, hashed_password)

    monkeypatch.setattr(bcrypt, "checkpw", noting)
    return noted


def test_known_user_is_recognized_without_bcrypt(costs: list[int]) -> None:
    """Who was right once, who names no password, and everybody where there are no users."""
    passwords = Passwords({"ann": hashed("one")})
    assert passwords.known(basic("ann:one")) is None
    assert passwords.is_allowed(basic("ann:one"))
    assert len(costs) == 1
    assert passwords.known(basic("ann:one")) is True
    assert passwords.is_allowed(basic("ann:one"))
    assert [passwords.known(text) for text in ("", "Basic", "Basic ???", "Bearer x", "Basic \xe9")] == [False] * 5
    assert Passwords({}).known("") is True
    assert len(costs) == 1


@pytest.mark.parametrize("name", ["ann", "bob", "eve", ""])
def test_wrong_password_costs_the_same_for_every_name(name: str, costs: list[int]) -> None:
    """A user with a cheap hash, one with a costly hash, and an unknown one: as many rounds of bcrypt."""
    passwords = Passwords({"ann": hashed("one", 4), "bob": hashed("two", 7)})
    assert not passwords.is_allowed(basic(f"{name}:wrong"))
    assert sum(1 << cost for cost in costs) == 1 << 7


def test_wrong_guesses_do_not_displace_known_users() -> None:
    """However many there are."""
    passwords = Passwords({"ann": hashed("one")})
    assert passwords.is_allowed(basic("ann:one"))
    assert not any(passwords.is_allowed(basic(f"ann:{number}")) for number in range(100))
    assert passwords.known(basic("ann:one")) is True


@pytest.mark.parametrize(
    "text", ["", "$2b$03$" + "." * 53, "$2b$32$" + "." * 53, "$2b$10$" + "." * 52, "$1$10$" + "." * 53]
)
def test_text_that_is_not_a_bcrypt_hash_has_no_cost(text: str) -> None:
    """bcrypt knows costs from 4 to 31."""
    assert cost_of(text) is None
    assert cost_of("$2y$31$" + "." * 53) == 31
