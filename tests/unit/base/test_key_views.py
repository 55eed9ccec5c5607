"""Key views: what is one key and what is not, and where views come from."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from cleaner.base import key_views
from cleaner.base.key_views import NO_VIEW, SchemaRegistryKeys, key_view_names, key_view_of, register_key_view
from cleaner.config.values import TopicConfig
from cleaner.errors import ConfigError

VIEW = SchemaRegistryKeys()
PLAIN = b'{"keytype":"SCHEMA","magic":1,"subject":"caf\xc3\xa9","version":12}'


@pytest.fixture(autouse=True)
def _views_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_views, "_VIEWS", dict(key_views._VIEWS))


@pytest.mark.parametrize(
    "other",
    [
        b'{"version":12,"subject":"caf\xc3\xa9","magic":1,"keytype":"SCHEMA"}',
        b' {\n"keytype" : "SCHEMA",\t"magic": 1, "subject":"caf\xc3\xa9", "version":12 }\r\n',
        b'{"keytype":"SCHEM\\u0041","magic":1,"subject":"caf\\u00e9","version":12}',
        b'{"keyty\\u0070e":"SCHEMA","magic":1,"subject":"caf\xc3\xa9","version":12}',
    ],
)
def test_other_writing_of_an_object_is_the_same_key(other: bytes) -> None:
    """Order of fields, blanks and escapes do not count."""
    assert VIEW.canonical(other) == VIEW.canonical(PLAIN) == PLAIN


def test_order_within_nested_objects_does_not_count_and_that_of_lists_does() -> None:
    """An object is its fields, a list its order."""
    assert VIEW.canonical(b'{"a":[{"y":1,"x":2}]}') == VIEW.canonical(b'{"a":[{"x":2,"y":1}]}')
    assert VIEW.canonical(b'{"a":[1,2]}') != VIEW.canonical(b'{"a":[2,1]}')


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"k1",
        b" 1",
        b"[ 1]",
        b'"a" ',
        b"null ",
        b'{"a":1',
        b'{"a":1} {}',
        b'{"a":1.0, "b":1}',
        b'{"a":1e2, "b":1}',
        b'{"a":-0, "b":1}',
        b'{"a":NaN, "b":1}',
        b'{"a":Infinity, "b":1}',
        b'{"a":01, "b":1}',
        b'{"a":1, "a":1}',
        b'{"a":1, "\\u0061":1}',
        b'{"a":{"b":1, "b":2}}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": "\xc0\xaf"}',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": "\n"}',
        b"{'a': 1}",
        b'{ "a":' * 100_000,
        b'{"a":' + b"[" * 65 + b"]" * 65 + b" }",
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "' + b"x" * 70_000 + b'"}',
    ],
)
def test_what_is_not_surely_the_same_keeps_its_bytes(key: bytes) -> None:
    """Nothing is merged by a guess, and hostile keys cost little."""
    assert VIEW.canonical(key) == key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":1}', b'{"a":true}'),
        (b'{"a":0}', b'{"a":false}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":9007199254740993}', b'{"a":9007199254740992}'),
        (b'{"a":"\xc3\xa9"}', b'{"a":"e\xcc\x81"}'),
        (b'{"a":"/"}', b'{"a":"\\\\/"}'),
        (b'{"a":1}', b'{"A":1}'),
    ],
)
def test_different_objects_are_different_keys(one: bytes, other: bytes) -> None:
    """Types, missing fields, large numbers and unicode forms count."""
    assert VIEW.canonical(one) != VIEW.canonical(other)


def test_canonical_key_is_its_own_and_never_longer() -> None:
    """A key that looks like another's canonical form is that key."""
    for key in (PLAIN, b'{"b":"\\/\\u000a\\"","a":[true,null,-7]}', b'{"\\ud83d\\ude00":1}'):
        canonical = VIEW.canonical(key)
        assert VIEW.canonical(canonical) == canonical
        assert len(canonical) <= len(key)


class Lowered:
    """A view of another's."""

    name = "lowered"

    def canonical(self, key: bytes) -> bytes:
        """Return the key in lower case."""
        return key.lower()


@pytest.fixture(autouse=True)
def _only_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests of this process have registered."""
    monkeypatch.setattr(key_views, "_VIEWS", {SchemaRegistryKeys.name: SchemaRegistryKeys()})


def test_registered_view_is_found_and_its_name_is_its_own() -> None:
    """A topic may name it from then on; another view cannot take the name."""
    with pytest.raises(ConfigError, match=r"cleaner\.key\.view.*none, schema-registry"):
        TopicConfig.from_mapping({"cleaner.key.view": "lowered"})
    view = Lowered()
    register_key_view(view)
    register_key_view(view)
    assert key_view_of("lowered") is view
    assert TopicConfig.from_mapping({"cleaner.key.view": "lowered"}).key_view == "lowered"
    with pytest.raises(ValueError, match="taken"):
        register_key_view(Lowered())
    with pytest.raises(TypeError, match="canonical"):
        register_key_view(object())  # type: ignore[arg-type]


def test_view_of_an_installed_package_is_loaded_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point is loaded when a topic names it; one that cannot be loaded is a bad setting."""
    group = key_views.ENTRY_POINTS
    points = [
        EntryPoint("lowered", "tests.unit.base.test_key_views:INSTALLED", group),
        EntryPoint("broken", "tests.no_such_module:VIEW", group),
    ]

    def entry_points(*, group: str, name: str | None = None) -> Iterator[EntryPoint]:
        return (point for point in points if point.group == group and name in (None, point.name))

    monkeypatch.setattr(key_views, "entry_points", entry_points)
    assert key_view_names() == ("broken", "lowered", "schema-registry")
    assert key_view_of("lowered") is not None
    assert key_view_of(NO_VIEW) is None
    with pytest.raises(LookupError, match="cannot be used"):
        key_view_of("broken")


INSTALLED = Lowered()
