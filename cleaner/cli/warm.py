"""`cleaner warm`."""

from __future__ import annotations

import argparse

from cleaner.cli.output import print_error, say

SUMMARY = "compile the kernels now, so that later runs start at once"

DESCRIPTION = """\
Compiles the kernels of a cleaning round to machine code, and keeps it where later runs find it: in
`kernels` of the installation (/opt/cleaner/kernels) if somebody made that and it may be written, else in the directory
$NUMBA_CACHE_DIR names, $CACHE_DIRECTORY (systemd's), $XDG_CACHE_HOME/cleaner, $HOME/.cache/cleaner. Run it at
installation, or while an image is built; otherwise the first `cleaner clean` on a machine takes that time.

The code runs on any processor of the last years (x86-64-v2, or armv8-a with crc), so an image serves all machines.
A directory that belongs to root may be read-only. One that belongs to another user, or that others may write to,
is not used, and a warning says so: its files are programs. The same goes for every directory above it, up to
the root; only a sticky one, such as /tmp, may be open to others. For root only root's own directories count."""

EXAMPLES = """\
examples:
  cleaner warm
  NUMBA_CACHE_DIR=/opt/cleaner/kernels cleaner warm
                                  in an image; the variable has to be set when the image runs, too

exit status:
  0  all kernels are ready      1  they could not be kept      2  usage"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no options: the environment chooses the place, as for every other command."""


def run(_arguments: argparse.Namespace) -> int:
    """Compile or load every kernel, print where they are and how long it took; returns the exit code."""
    from cleaner.app.warm_kernels import warm_kernels
    from cleaner.kernels.announce import ABOUT_SECONDS
    from cleaner.kernels.compile import kernel_statistics

    report = warm_kernels(
        lambda kept_in: print_error(f"compiling kernels into {kept_in}: about {ABOUT_SECONDS} seconds for all")
    )
    done = kernel_statistics()

    what = f"{report.compiled} kernels compiled" if report.compiled else "all kernels were compiled already"
    say(f"{what} ({done.cpu_name}, {report.seconds:.1f} s), kept in {done.kept_in or done.directories[0]}")
    return 0
