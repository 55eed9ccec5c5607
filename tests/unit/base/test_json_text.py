"""JSON of state files: no value can end a line, reach a terminal, or fail to be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.json_values import NotJsonError, format_json, parse_json


@given(st.dictionaries(st.text(st.characters(categories=None)), st.text(st.characters(categories=None))))
def test_any_text_is_one_printable_line_and_read_back(values: dict[str, str]) -> None:
    """Control characters, line separators, lone surrogates: all printable ASCII, and equal after reading."""
    text = format_json(values)
    assert all(" " <= character <= "~" for character in text)
    assert parse_json(text.encode("ascii")) == values


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {1, 2}, object(), b"bytes"])
def test_value_without_a_json_form_is_refused(value: object) -> None:
    """It is not written in a form that cannot be read back."""
    with pytest.raises((TypeError, ValueError)):
        format_json({"value": value})


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="torn"),
        pytest.param(b"[]", id="no-object"),
        pytest.param(b'{"a": NaN}', id="not-a-number"),
        pytest.param(b'{"a": "\xff"}', id="not-utf-8"),
        pytest.param(b'{"a": ' + b"[" * 1_000_000, id="deep"),
        pytest.param(b'{"a": ' + b"9" * 1_000_000 + b"}", id="endless-number"),
        pytest.param(b'{"a": 1}\x00', id="zeros-behind"),
    ],
)
def test_text_that_is_no_object_is_refused(data: bytes) -> None:
    """With one error, whatever is wrong."""
    with pytest.raises(NotJsonError):
        parse_json(data)
