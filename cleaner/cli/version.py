"""`cleaner --version`: the release, and those of the libraries its results depend on."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from typing import NoReturn

from cleaner import __version__

# Libraries whose release may change bytes, speed or output; those of the `spark` extra may be missing.
_LIBRARIES = (
    "numpy",
    "numba",
    "llvmlite",
    "mmh3",
    "cramjam",
    "isal",
    "zstandard",
    "structlog",
    "prometheus-client",
    "pyspark",
    "pyarrow",
    "pandas",
)


class VersionAction(argparse.Action):
    """Prints the versions and ends; looks them up only then."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        """Answer `--version`."""
        print(version_text())
        parser.exit()


def version_text() -> str:
    """Return the versions, one per line, the cleaner's first."""
    lines = [f"cleaner {__version__}", f"rules of Apache Kafka 4.3.1, python {platform.python_version()}"]
    lines += [f"{name} {_release(name)}" for name in _LIBRARIES]
    return "\n".join(lines)


def _release(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"
