"""`cleaner --version`."""

from __future__ import annotations

import importlib.metadata

import pytest

import cleaner
from cleaner.cli.main import main


def test_version_names_the_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    """A report of trouble can say with which releases it came."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0
    assert lines[0] == f"cleaner {cleaner.__version__}"
    assert f"numba {importlib.metadata.version('numba')}" in lines


def test_version_shows_a_missing_library(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the `spark` extra the answer says so."""

    def nothing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert "pyspark not installed" in capsys.readouterr().out.splitlines()
