"""Protocols for what the settings need of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class SetLike(Protocol):
    """One `--set`; `topic` is None for every topic and for settings of the process."""

    @property
    def topic(self) -> str | None:
        """The topic it is for."""

    @property
    def key(self) -> str:
        """The setting."""

    @property
    def value(self) -> str:
        """Its value as text."""


class SourcesLike(Protocol):
    """Where settings come from, besides the log dir."""

    @property
    def config(self) -> Mapping[str, str]:
        """The keys of `--config`."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The keys in the environment; they win over those of `--config`."""

    @property
    def sets(self) -> Sequence[SetLike]:
        """The `--set` options; of two for one setting the last counts."""

    @property
    def topics_dir(self) -> Path | None:
        """A directory of `<topic>.properties` files."""

    @property
    def metadata_dir(self) -> Path | None:
        """The directory of a metadata log, or the directory that contains it."""
