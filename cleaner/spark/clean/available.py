"""Checks whether Spark and everything it needs are installed, without loading any of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

_PACKAGES = ("pyspark", "pyarrow", "pandas")


def why_not_available() -> str:
    """Return what is missing, and what to do about it; empty if nothing is missing."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        return f"{', '.join(missing)} {are} not installed here: pip install 'kafka-log-cleaner[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else shutil.which(str(Path(home) / "bin" / "java"))
    if java is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME ({home})"
        return f"there is no java {where}: Spark needs Java 17 or later"
    return ""
