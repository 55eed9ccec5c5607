"""
HTML from values: every text is escaped, unless it was made here.

`el("a", name, href=link)` is an element; what is passed as a child or an attribute's value is text, whatever it
contains. Only `Markup` goes in as it is, and only this file and the page's own style and script make it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from cleaner.present.text import plain

_VOID = frozenset({"meta", "link", "input"})
_LEAVES = frozenset({"rect", "line"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(tag: str, /, *children: object, **attributes: object) -> Markup:
    """
    Return an element.

    Args:
        tag: its name.
        children: texts, numbers, `Markup`, iterables of these; None is nothing.
        attributes: an underscore stands for a dash, one at the end for nothing (`class_`); None and False leave it out,
            True gives it no value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    close = "/>" if tag in _LEAVES and not children else f">{join(children)}</{tag}>"
    return Markup(f"<{tag}{written}{close}")


def join(children: Iterable[object]) -> Markup:
    """Return children one after the other."""
    return Markup("".join(_child(child) for child in children))


def _child(child: object) -> str:
    if isinstance(child, Markup):
        return child
    if child is None or child is False:
        return ""
    if isinstance(child, str):
        return html.escape(plain(child))
    if isinstance(child, Iterable):
        return join(child)
    return html.escape(str(child))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(plain(str(value)))}"'
