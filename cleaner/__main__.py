"""`python -m cleaner`."""

from __future__ import annotations

from cleaner.cli.main import run

if __name__ == "__main__":
    run()
