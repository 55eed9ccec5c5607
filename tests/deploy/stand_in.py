"""
A service that takes signals and reports as the daemon does, with the same parts, and stops progressing when told to.

It hangs while the file named by its argument exists: a state that the daemon is built never to be in.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.daemon.notify import Notifier, Watchdog
from cleaner.daemon.signals import Signals


def main() -> None:
    """Serve until SIGTERM."""
    hangs = Path(sys.argv[1])
    reloads = 0
    notifier = Notifier.from_environment(SystemClock())
    watchdog = Watchdog(notifier, lambda: not hangs.exists())
    with Signals() as signals:
        notifier.ready("ready")
        while True:
            watchdog.tick()
            wishes = signals.wait(watchdog.interval_seconds)
            if "reload" in wishes:
                reloads += 1
                notifier.reloading()
                notifier.ready(f"reloaded {reloads}")
            if "stop" in wishes:
                notifier.stopping("stopping")
                return


if __name__ == "__main__":
    main()
