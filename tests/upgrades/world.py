"""
What a release leaves on disk, made and read by running that release: `python -m tests.upgrades.world TREE ARCHIVE`.

    logs/     prices-0 cleaned by the daemon, damaged-0 in its quarantine, kept-0 cleaned by `clean --keep-old`
    kept/     what that replaced
    state/    the daemon's state: journal, quarantine, and what else it keeps
    before/   kept-0 as it was

Stored as an archive, with ROOT for the directory it was made in. A release is a directory with a `cleaner` package.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.cleaner_run import settings_text, wait_until
from tests.golden.archive import pack, unpack
from tests.integration.daemons import settings_for
from tests.integration.log_dirs import contents, flip_bit, keyed_log
from tests.support.log_builder import write_log_dir

ROOT = "/ROOT/OF/THE/WORLD"
COMPACT = ("--set", "kept:cleanup.policy=compact")
_STARTS_SECONDS = 180  # another release has to compile its kernels


class Release:
    """A release whose commands are run."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
        self._command = [sys.executable, "-m", "cleaner"]

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Run a command to its end; returns exit code, output and errors."""
        done = subprocess.run(
            [*self._command, *map(str, arguments)],
            cwd=self._tree,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_STARTS_SECONDS,
        )
        return done.returncode, done.stdout, done.stderr

    def start(self, config: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start the daemon."""
        with log.open("wb") as stream:
            command = [*self._command, "run", "--as-root", "--config", str(config)]
            return subprocess.Popen(
                command,
                cwd=self._tree,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    def serve(self, root: Path) -> dict[str, Any]:
        """Run the daemon until nothing is left to do; returns its last snapshot."""
        config = _write_config(root)
        process = self.start(config, root / "daemon.log")
        last: dict[str, Any] = {}

        def is_settled() -> bool:
            assert process.poll() is None, (root / "daemon.log").read_text()
            _, out, _ = self.run("status", "--config", config, "--format", "json")
            if out:  # nothing before the daemon answers; then exit code 1, for the quarantine
                last.update(json.loads(out))
            counts = last.get("counts", {})
            return bool(last.get("quarantine")) and counts["waiting"] == counts["in_progress"] == 0

        try:
            wait_until(is_settled, "nothing is left to do", _STARTS_SECONDS)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(_STARTS_SECONDS)
        assert code == 0, (root / "daemon.log").read_text()
        return last


def _write_config(root: Path) -> Path:
    config = root / "cleaner.properties"
    settings = settings_for(root / "logs", state_dir=root / "state")
    config.write_text(settings_text({**settings, "cleaner.http.listen": "127.0.0.1:0", "log.cleaner.threads": "1"}))
    return config


def make(release: Release, root: Path) -> None:
    """Have a release work on three logs, in an empty directory."""
    (root / "logs").mkdir(parents=True)
    (root / "state").mkdir(mode=0o750)
    write_log_dir(root / "logs", *map(keyed_log, ("prices-0", "damaged-0", "kept-0")))
    flip_bit(root / "logs/damaged-0/00000000000000000000.log", 200)
    shutil.copytree(root / "logs/kept-0", root / "before")
    code, _, err = release.run("clean", root / "logs", "kept-0", "--keep-old", root / "kept", *COMPACT)
    assert code == 0, err
    release.serve(root)
    for path in [root / "cleaner.properties", root / "daemon.log", *root.rglob("test.properties")]:
        path.unlink(missing_ok=True)


def store(root: Path, archive: Path) -> None:
    """Pack a world that was made."""
    _replace(root, str(root), ROOT)
    for path in root.rglob("*"):
        if path.is_socket():
            path.unlink()
    pack(root, archive)


def restore(archive: Path, root: Path) -> Path:
    """Unpack a world into a directory that does not exist; returns it."""
    unpack(archive, root)
    _replace(root, ROOT, str(root))
    (root / "state").chmod(0o750)
    return root


def _replace(root: Path, old: str, new: str) -> None:
    for path in root.rglob("*.json*"):
        path.write_text(path.read_text().replace(old, new))


def facts(release: Release, root: Path) -> dict[str, Any]:
    """Return what a release makes of a world, changing nothing: what it knows, whatever words it has for more."""
    state = ("--state-dir", root / "state", "--format", "json")
    code, history, err = release.run("history", "--last", "all", *state)
    assert code == 0, err
    rounds = [json.loads(line) for line in history.splitlines()]
    code, quarantine, err = release.run("quarantine", *state)
    assert code == 1, err
    held = [json.loads(line) for line in quarantine.splitlines()]
    code, plan, err = release.run("plan", release_logs(root), "--format", "json", *COMPACT, *_others())
    assert code in (0, 1), err
    logs = {log["partition"]: log for log in map(json.loads, plan.splitlines()) if "partition" in log}
    return {
        "rounds": sorted({entry["partition"] for entry in rounds if entry["kind"] == "round"}),
        "held": [(entry["partition"], Path(entry["file"]).name) for entry in held],
        "dirty": {name: logs[name]["dirty_bytes"] for name in ("prices-0", "kept-0")},
    }


def release_logs(root: Path) -> Path:
    """Return the log dir of a world."""
    return root / "logs"


def _others() -> tuple[str, ...]:
    return ("--set", "prices:cleanup.policy=compact", "--set", "damaged:cleanup.policy=compact")


def undoes(release: Release, root: Path) -> None:
    """Have a release put back what was kept; raises AssertionError if that is not what was there before."""
    code, _, err = release.run("undo", root / "kept")
    assert code == 0, err
    assert contents(root / "logs/kept-0") == contents(root / "before")


def main(tree: str, archive: str) -> None:
    """Make a world with a release, and store it."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "world"
        make(Release(Path(tree)), root)
        store(root, Path(archive))


if __name__ == "__main__":
    main(*sys.argv[1:])
