"""`python -m cleaner`."""

from __future__ import annotations

import sys

from cleaner.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
