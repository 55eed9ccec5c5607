"""
Mutations of the files in a place, each drawn from a number of its own.

A case is a list of such numbers: any part of it is a case too, so one that fails is made shorter by leaving some out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.fuzz.change_bytes import Rng, change_bytes
from tests.fuzz.change_names import REGULAR, add_stray, change_file
from tests.fuzz.change_records import ENTRY_BYTES, change_entries, change_log
from tests.fuzz.change_texts import change_json, change_text
from tests.fuzz.places import TARGET

_BINARY = (".cleaner-generations", ".cleaner-high-watermarks")
_METADATA = "metadata/__cluster_metadata-0"


def mutate(place: Path, numbers: Iterable[int]) -> list[str]:
    """Change a place once for each number; returns what."""
    return [_mutate_once(random.Random(number), place) for number in numbers]


def mutate_partition(directory: Path, number: int) -> str:
    """Change a partition, or its log dir's small files, once; only plain files come of it."""
    rng = random.Random(number)
    area = rng.random()
    if area < 0.5:
        return _log_of(rng, directory)
    if area < 0.7:
        return _entries_of(rng, directory)
    if area < 0.85:
        return _text_of(rng, [*_small_files(directory), *_small_files(directory.parent)])
    change = change_file if area < 0.93 else add_stray
    return change(rng, directory, REGULAR)


def _mutate_once(rng: Rng, place: Path) -> str:
    target = place / rng.choice(("logs", "logs", "logs", "logs", "logs", "cleaned")) / TARGET
    area = rng.random()
    if area < 0.40:
        return _log_of(rng, target)
    if area < 0.52:
        return _entries_of(rng, target)
    if area < 0.63:
        return add_stray(rng, target)
    if area < 0.76:
        files = [*_small_files(target), *_small_files(target.parent), *_small_files(place / "topics")]
        return _text_of(rng, [*files, *_small_files(place)])
    if area < 0.86:
        return _state_of(rng, place, target)
    if area < 0.88:
        return _change_any(rng, [target.parent / name for name in _BINARY], change_bytes)
    if area < 0.91:
        return _change_any(rng, (place / "metadata").rglob("*"), change_log)
    elsewhere = [place / name for name in ("topics", "state", "kept", "work", f"kept/{TARGET}", _METADATA)]
    home = rng.choice([target, target, target, *elsewhere])
    return change_file(rng, home) if rng.random() < 0.8 else add_stray(rng, home)


def _change_any(rng: Rng, paths: Iterable[Path], change: Callable[[Rng, Path], str]) -> str:
    """Change one of these files, if an earlier mutation has left any."""
    files = sorted(path for path in paths if path.is_file())
    return change(rng, rng.choice(files)) if files else "nothing"


def _log_of(rng: Rng, directory: Path) -> str:
    files = sorted(path for path in directory.glob("*.log") if path.is_file())
    return change_log(rng, rng.choice(files)) if files else "no log left"


def _entries_of(rng: Rng, directory: Path) -> str:
    files = sorted(path for path in directory.iterdir() if path.suffix in ENTRY_BYTES and path.is_file())
    return change_entries(rng, rng.choice(files)) if files else "no index left"


def _text_of(rng: Rng, files: Iterable[Path]) -> str:
    return _change_any(rng, files, change_text)


def _state_of(rng: Rng, place: Path, target: Path) -> str:
    """Change what the cleaner keeps for itself: journal, quarantine, kept segments, ids, and a bulk job's files."""
    files = [path for home in ("state", "kept", "work") for path in (place / home).rglob("*")]

    def change(rng: Rng, path: Path) -> str:
        is_json = path.suffix.startswith(".json") or path.parent == target
        return change_json(rng, path) if is_json else change_bytes(rng, path)

    return _change_any(rng, [*files, target / "cleaner-transactional-ids"], change)


def _small_files(directory: Path) -> list[Path]:
    suffixes = ("", ".properties", ".metadata", ".yml")
    return sorted(p for p in directory.iterdir() if p.suffix in suffixes and p.is_file())
