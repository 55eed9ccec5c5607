"""
Key views: which keys are the same key, though their bytes differ (`cleaner.key.view`, docs/key-views.md).

Kafka compares the bytes of keys. A view maps a key to its canonical bytes, and keys with the same canonical bytes are
one key. A view that cannot be sure returns the key itself: what is not surely the same key is never merged.

Views are code of this installation: built in, registered by a program, or an entry point of a package. No view is ever
loaded from data.
"""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from typing import Any, Protocol

NO_VIEW = "none"
ENTRY_POINTS = "cleaner.key_views"
"""The group of entry points: each names an object that is a view, under the view's name."""

_MOST_BYTES = 1 << 16
_MOST_OPENED = 64  # brackets and braces, so that nesting is no deeper


class KeyView(Protocol):
    """What makes two keys the same."""

    @property
    def name(self) -> str:
        """The value of `cleaner.key.view` that selects it."""

    def canonical(self, key: bytes) -> bytes:
        """
        Return the bytes that all keys have which are the same as this one.

        It depends on nothing but the key, is called by several threads at once, and raises nothing.
        """


class SchemaRegistryKeys:
    """
    Keys of a Schema Registry's topic: JSON objects, in which the order of fields and the writing of texts do not count.

    Everything else keeps its own bytes: what is not one JSON object in UTF-8, repeats a name, has a number with a
    fraction or an exponent (`1.0` may be another version than `1`), `-0`, NaN, half of a surrogate pair, more than
    64 KiB or more than 64 brackets. A field that is null is not a field that is missing, and `1` is not `true`.
    """

    name = "schema-registry"

    def canonical(self, key: bytes) -> bytes:
        """Return the object with its fields in order, without spaces and without needless escapes."""
        if len(key) > _MOST_BYTES or key.count(b"{") + key.count(b"[") > _MOST_OPENED:
            return key
        try:
            value = json.loads(
                key.decode("utf-8"),
                object_pairs_hook=_object,
                parse_int=_integer,
                parse_float=_refuse,
                parse_constant=_refuse,
            )
            if not isinstance(value, dict):
                return key
            return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
        except ValueError:  # includes those of JSON and of UTF-8
            return key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name that occurs twice")
    return found


def _integer(text: str) -> int:
    if text == "-0":
        raise ValueError("a zero with a sign")
    return int(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text}, which may be written in other ways")


_VIEWS: dict[str, KeyView] = {SchemaRegistryKeys.name: SchemaRegistryKeys()}


def register_key_view(view: KeyView) -> None:
    """
    Make a view known under its name, for this process.

    Raises:
        TypeError: it is no view.
        ValueError: the name is empty, or taken by another view.
    """
    _require_view(view)
    if view.name in ("", NO_VIEW) or _VIEWS.setdefault(view.name, view) is not view:
        raise ValueError(f"the name {view.name!r} of a key view is taken")


def key_view_of(name: str) -> KeyView | None:
    """
    Return the view of a name; None for `none`.

    Raises:
        LookupError: no such view is built in, registered or installed; or the installed one cannot be loaded. The
            message says which names there are.
    """
    if name == NO_VIEW:
        return None
    if name not in _VIEWS:
        for found in entry_points(group=ENTRY_POINTS, name=name):
            try:
                view = found.load()
                _require_view(view)
            except Exception as error:
                raise LookupError(f"the package that has this key view cannot be used: {error}") from error
            _VIEWS[name] = view
    if name not in _VIEWS:
        raise LookupError(f"must be one of {', '.join((NO_VIEW, *key_view_names()))}")
    return _VIEWS[name]


def key_view_names() -> tuple[str, ...]:
    """Return the names of all views, sorted."""
    return tuple(sorted({*_VIEWS, *(found.name for found in entry_points(group=ENTRY_POINTS))}))


def _require_view(view: object) -> None:
    if not (isinstance(getattr(view, "name", None), str) and callable(getattr(view, "canonical", None))):
        raise TypeError("a key view has a name and a function canonical(key)")
