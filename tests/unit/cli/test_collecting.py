"""When the cyclic collector works in a command."""

from __future__ import annotations

import subprocess
import sys

_AS_USUAL = "gc.get_threshold() == usual and gc.get_freeze_count() > 0 and not gc.callbacks"
_HELD_BACK = (
    "import gc; usual = gc.get_threshold(); from cleaner.cli import collecting; collecting.hold_back_while_loading()"
)


def _holds(script: str, claim: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{_HELD_BACK}\n{script}\nassert {claim}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_collector_held_back_does_not_look_while_libraries_are_loaded() -> None:
    """There are fewer new objects than it waits for."""
    looks = "gc.get_stats()[0]['collections']"
    _holds(f"before = {looks}; import cleaner.cleaning.round.round, cleaner.log.manager", f"{looks} == before")


def test_collector_held_back_begins_once_a_command_has_loaded_what_it_needs() -> None:
    """And passes over what was loaded."""
    _holds("collecting.begin_collecting()", _AS_USUAL)


def test_collector_passes_over_what_a_daemon_made_while_it_worked_seldom() -> None:
    """What is known of thousands of logs is made once, and lasts."""
    kept = "collecting.begin_collecting(); collecting.collect_seldom(); before = gc.get_stats()[0]['collections']"
    made = "many = [[] for _ in range(100_000)]; assert gc.get_stats()[0]['collections'] == before"
    _holds(f"{kept}; {made}; collecting.set_aside()", f"{_AS_USUAL} and gc.get_freeze_count() > 100_000")


def test_collector_held_back_begins_by_itself_after_many_objects() -> None:
    """A command that stays and says nothing is not left without it."""
    _holds("many = [[] for _ in range(200_000)]", _AS_USUAL)
