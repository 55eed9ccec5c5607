"""Writes requirements.lock: what pip resolves from pyproject.toml in a fresh environment, with setuptools."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Exact versions of everything the product and its tests run with; made for Python 3.11, the same on 3.12 and 3.13.
# `make lock` writes it anew from pyproject.toml.
"""


def wanted() -> list[str]:
    """Return the requirements of the package and of its extras, and what builds it."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = about["project"]["optional-dependencies"]
    chosen = [requirement for name in ("spark", "remote", "otel", "test", "dev") for requirement in extras[name]]
    ours = [*about["project"]["dependencies"], *chosen, *about["build-system"]["requires"]]
    return [requirement for requirement in ours if not requirement.startswith(f"{about['project']['name']}[")]


def main() -> None:
    """Resolve in an environment of its own, so that nothing left over from earlier is locked."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "venv", scratch], check=True)
        python = str(Path(scratch) / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted()], check=True)
        freeze = [python, "-m", "pip", "freeze", "--all", "--exclude", "pip"]
        frozen = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
    lines = sorted(line.lower().replace("_", "-") for line in frozen.splitlines())
    (ROOT / "requirements.lock").write_text(HEAD + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
