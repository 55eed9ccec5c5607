"""
Old or new: the judgement on the state after a crash, group by group (rule C-1).

The verdict is a word a group: `old`, `new`, or `new+superseded` where whole old segments are after the end of the new
one (R-633). Anything else is an AssertionError: the crash did harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleaner.storage.segment.names import (
    LOG,
    SEGMENT_SUFFIXES,
    TEMPORARY_SUFFIXES,
    segment_file_name,
    snapshot_file_name,
)
from tests.crash.loader_model import Files, next_offset


@dataclass(frozen=True)
class Group:
    """Old segments by base offset, and the files of the one that replaces them."""

    bases: tuple[int, ...]
    new: Files

    @property
    def base(self) -> int:
        """The base offset of the first, and of the new one."""
        return self.bases[0]


def judge(before: Mapping[str, bytes], groups: Sequence[Group], files: Files) -> list[str]:
    """
    Judge a partition directory after recovery.

    Groups are swapped in order, so the words before `old` are `new`; segments of no group are untouched, and so are
    their snapshots; the snapshot at the log end is written anew by every load.

    Args:
        before: the files as they were before the round.
        groups: those of the round, in order.
        files: the files found.
    """
    words = [_verdict(before, group, files) for group in groups]
    assert "old" not in words or set(words[words.index("old") :]) == {"old"}, f"swapped out of order: {words}"
    log_end = max((int(name[:20]) for name in before if name.endswith(".snapshot")), default=-1)
    in_groups = {base for group in groups for base in group.bases}
    for name, data in before.items():
        if name.endswith((*SEGMENT_SUFFIXES, ".snapshot")) and int(name[:20]) not in {*in_groups, log_end}:
            assert files.get(name) == data, f"{name} is in no group but was changed"
    left = [name for name in files if name.endswith((*TEMPORARY_SUFFIXES, ".tmp"))]
    assert not left, f"temporary files are left: {left}"
    return words


def _verdict(before: Mapping[str, bytes], group: Group, files: Files) -> str:
    held = {base: segment(files, base) for base in group.bases}
    old = {base: segment(before, base) for base in group.bases}
    new = segment(group.new, group.base)
    if held == old:
        snapshots = [snapshot_file_name(base) for base in group.bases]
        lost = [name for name in snapshots if files.get(name) != before.get(name)]
        assert not lost, f"group {group.base} is old but for {lost}"
        return "old"
    end = next_offset(group.base, group.new[segment_file_name(group.base, LOG)])
    first = dict(held[group.base])
    if end == group.base and first.get(".txnindex") == old[group.base].get(".txnindex"):
        # The loader leaves the old transaction index beside an empty segment.
        first.pop(".txnindex", None)
    assert first == new, f"group {group.base} is neither old nor new: {_sizes(held)}"
    rest = [base for base in group.bases[1:] if held[base]]
    for base in rest:
        assert held[base] == old[base], f"old segment {base} came back in parts: {_sizes(held)}"
        assert base >= end, f"old segment {base} came back inside of the new one"
    return "new+superseded" if rest else "new"


def segment(files: Mapping[str, bytes], base: int) -> Files:
    """Return the files of one segment by suffix."""
    return {suffix: files[name] for suffix in SEGMENT_SUFFIXES if (name := segment_file_name(base, suffix)) in files}


def _sizes(held: Mapping[int, Files]) -> dict[int, dict[str, int]]:
    return {base: {suffix: len(data) for suffix, data in files.items()} for base, files in held.items()}
