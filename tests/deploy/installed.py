"""The cleaner as an administrator would install it in a machine of namespaces: at /opt/cleaner, with its units."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"


def kernels_dir() -> Path:
    """Return where this user's compiled kernels are, all of them ready."""
    subprocess.run([sys.executable, "-m", "cleaner", "warm"], check=True, capture_output=True, cwd=ROOT)
    return Path(os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "cleaner")


def install_cleaner() -> str:
    """
    Return the shell script that puts /opt/cleaner and the units into `$R`.

    Python, its packages and the project are bound to places that a service may read, as a home directory is not.
    """
    parts = {
        "python": sys.base_prefix,
        "packages": sysconfig.get_path("purelib"),
        "project": str(ROOT),
        "kernels": str(kernels_dir()),
    }
    lines = [
        f"mkdir -p $R/opt/cleaner/{name}\nmount --bind -o ro '{path}' $R/opt/cleaner/{name}"
        for name, path in parts.items()
    ]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = f"""#!/bin/sh
export LD_LIBRARY_PATH=/opt/cleaner/python/lib PYTHONPATH=/opt/cleaner/project:/opt/cleaner/packages PYTHONNOUSERSITE=1
exec /opt/cleaner/python/bin/{version}"""
    return "\n".join(
        [
            *lines,
            "mkdir -p $R/opt/cleaner/bin",
            f"cat > $R/opt/cleaner/bin/cleaner <<'E'\n{python} -m cleaner \"$@\"\nE",
            f"cat > $R/opt/cleaner/bin/stand-in <<'E'\n{python} -m tests.deploy.stand_in \"$@\"\nE",
            "chmod 755 $R/opt/cleaner/bin/*",
            f"cp -r '{UNITS}'/*.service '{UNITS}'/*.service.d $R/etc/systemd/system/",
            f"chroot $R systemd-sysusers - < '{UNITS}/cleaner.sysusers.conf'",
            "",
        ]
    )
