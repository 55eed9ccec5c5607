"""Where the checkers are; a test whose checker is missing skips, loudly."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


def python_tool(command: str, package: str) -> str:
    """Return the path of a program that the extra `test` installs."""
    found = shutil.which(command, path=str(Path(sys.executable).parent)) or shutil.which(command)
    if found is None:
        pytest.skip(f"checks by {command} NOT RUN: pip install {package}")
    return found


def system_tool(command: str, package: str) -> str:
    """Return the path of a program that Debian packages."""
    found = shutil.which(command, path=":".join((str(Path(sys.executable).parent), "/usr/sbin:/usr/bin:/sbin:/bin")))
    found = found or shutil.which(command)
    if found is None:
        pytest.skip(f"checks by {command} NOT RUN: apt-get install {package}")
    return found
