"""The manual pages and completions: in step with the commands, sound for groff, and understood by the shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.manuals import documents

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
_COMPLETION = _DEPLOY / "completion"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_manuals_are_written_from_the_table_of_commands() -> None:
    """`python -m tools.manuals` would change nothing, and no page is left of a command that is gone."""
    wanted = documents()
    assert {path: path.read_text() for path in wanted if path.exists()} == wanted, "python -m tools.manuals"
    assert {*(_DEPLOY / "man").iterdir(), *_COMPLETION.iterdir()} == set(wanted)


def test_pages_are_sound_roff() -> None:
    """groff has nothing to warn of, and shows an option as it is typed."""
    pages = sorted(map(str, (_DEPLOY / "man").glob("*.[15]")))
    shown = _run("groff", "-ww", "-man", "-Tascii", "-P-cbou", *pages)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--high-watermark checkpoint|end|N" in shown.stdout
    assert "min.cleanable.dirty.ratio = 0.5" in shown.stdout


def test_page_of_a_command_has_its_chapters() -> None:
    """A page says what, how, with what options, shows examples and tells the exit codes."""
    page = documents()[_DEPLOY / "man" / "cleaner-clean.1"].splitlines()
    chapters = [line.removeprefix(".SH ") for line in page if line.startswith(".SH ")]
    assert chapters[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    assert {"OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"} <= set(chapters)


def test_bash_completes_options() -> None:
    """bash offers what begins as typed."""
    script = f"""
        source {_COMPLETION}/cleaner.bash
        COMP_WORDS=(cleaner clean --hi) COMP_CWORD=2
        _shtab_cleaner
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert _run("bash", "--norc", "-c", script).stdout.split() == ["--high-watermark"]


def test_fish_completes_options_and_values() -> None:
    """fish offers what begins as typed, and the words an option allows."""
    script = (
        f'source {_COMPLETION}/cleaner.fish; complete -C "cleaner clean --hi"; complete -C "cleaner plan --format j"'
    )
    offered = [line.split("\t")[0] for line in _run("fish", "--no-config", "-c", script).stdout.splitlines()]
    assert offered == ["--high-watermark", "json"]


def test_zsh_loads_the_completion() -> None:
    """zsh finds the function for the command, and its text is valid."""
    script = f"""
        fpath=({_COMPLETION} $fpath)
        autoload -Uz compinit && compinit -D -u
        print $_comps[cleaner]
        autoload +X _cleaner && whence -w _cleaner
    """
    assert _run("zsh", "-f", "-c", script).stdout.splitlines() == ["_cleaner", "_cleaner: function"]
    assert _run("zsh", "-n", str(_COMPLETION / "_cleaner")).returncode == 0
