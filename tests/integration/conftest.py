"""What tests of several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.cli.main import main
from tests.integration.log_dirs import Run


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command: exit code, output and errors."""

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return command
