"""
Write the manual pages and the shells' completions from the table of commands: `python -m tools.manuals`.

A test keeps them in step with it. shtab, which makes the completions, is needed here only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import shtab

from cleaner import __version__
from cleaner.cli.main import make_parser
from tools.man_page import man_page, page_name
from tools.settings_page import settings_page

_DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
_COMPLETIONS = {"bash": "cleaner.bash", "zsh": "_cleaner", "fish": "cleaner.fish"}
_SUMMARY = "cleans Kafka log directories outside a broker"


def documents() -> dict[Path, str]:
    """Return every file with the text it should have."""
    parser = make_parser()
    return {**_man_pages(parser), **_completions(parser)}


def _man_pages(parser: argparse.ArgumentParser) -> dict[Path, str]:
    pages = {f"{name}.1": text for name, text in _pages(parser, _SUMMARY, ())}
    pages["cleaner.properties.5"] = settings_page(__version__)
    return {_DEPLOY / "man" / file: text for file, text in pages.items()}


def _pages(parser: argparse.ArgumentParser, summary: str, above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the page of a command and those of its own commands, each with its name."""
    commands = _commands_of(parser)
    below = tuple(page_name(command) for command, _ in commands)
    yield page_name(parser), man_page(parser, summary, __version__, above + below)
    for command, help_ in commands:
        yield from _pages(command, help_, (page_name(parser),))


def _completions(parser: argparse.ArgumentParser) -> dict[Path, str]:
    for action in _actions(parser):
        kind = _kind_of_path(action)
        if kind:
            action.complete = kind  # type: ignore[attr-defined]  # where shtab looks for it
    return {_DEPLOY / "completion" / file: shtab.complete(parser, shell) for shell, file in _COMPLETIONS.items()}


def _kind_of_path(action: argparse.Action) -> Mapping[str, object] | None:
    """Return how a path is completed: metavars that name a directory say so; None for other values."""
    if action.type is not Path:
        return None
    return shtab.DIRECTORY if "DIR" in str(action.metavar) else shtab.FILE


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def _commands_of(parser: argparse.ArgumentParser) -> list[tuple[argparse.ArgumentParser, str]]:
    """Return the commands below one, each with what it does."""
    return [
        (action.choices[choice.dest], choice.help or "")
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    ]


def main() -> None:
    """Write them."""
    for path, text in documents().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
