"""Options of a cleaning are declared once: call and command line have the same ones, with the same defaults."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

import cleaner
from cleaner.app.options import CleanOptions
from cleaner.cli.main import make_parser

INTERNAL = {"clean_round", "side_by_side"}
OF_COMMANDS = {"use_index"}  # in the library it is a setting, `cleaner.index.enabled`


def test_call_has_every_option_of_a_cleaning_with_its_default() -> None:
    """An option that is added cannot be forgotten in the library."""
    parameters = inspect.signature(cleaner.clean).parameters
    given = {
        each.name: parameters[each.name].default
        for each in fields(CleanOptions)
        if each.name not in INTERNAL | OF_COMMANDS
    }
    assert CleanOptions.of(given) == CleanOptions()


@pytest.mark.parametrize("command", ["clean", "bulk"])
def test_command_without_options_cleans_by_the_defaults(command: str) -> None:
    """Each option of the command line is named like the option it is for."""
    typed = vars(make_parser().parse_args([command, "logs", "prices-0"]))
    assert CleanOptions.of(typed) == CleanOptions()
    assert command == "bulk" or set(typed) >= {each.name for each in fields(CleanOptions)} - INTERNAL


def test_command_line_says_what_an_option_is() -> None:
    """Also the one that is named by its opposite."""
    typed = vars(
        make_parser().parse_args(["clean", "logs", "prices-0", "--no-verify", "--rounds", "all", "--retention"])
    )
    assert CleanOptions.of(typed) == CleanOptions(verify=False, rounds="all", retention=True)
