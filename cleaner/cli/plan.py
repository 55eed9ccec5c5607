"""`cleaner plan`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import add_common, add_high_watermark, add_sampling, sampling_of, settings_given, sources

SUMMARY = "list the partitions of a log dir: policy, sizes, due or not"

DESCRIPTION = """\
Lists every partition of a log dir: its cleanup policy and where that comes from, its segments, how much of it is
clean, dirty and uncleanable, the dirty ratio, and whether `cleaner clean --all` would take it, with the reason.

With --estimate it also says what cleaning would do: bytes freed, extra disk, rounds and seconds, from a sample.
A small log is read whole, and the number is exact; of a large one keys that the sample does not meet are
estimated, and a range says how far that may be off.

Takes no lock and writes nothing, so it may run beside a broker; what it shows of a log that is being written is
then a moment in the past."""

EXAMPLES = """\
examples:
  cleaner plan /var/lib/kafka --config /etc/kafka/server.properties
  cleaner plan /var/lib/kafka --estimate --sample 10G
  cleaner plan /var/lib/kafka --format json | jq -r 'select(.is_due) | .partition'

exit status:
  0  listed      1  some partition could not be looked at      2  usage      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_common(parser)
    add_high_watermark(parser)
    add_sampling(parser)
    parser.add_argument(
        "--trust-default-policy",
        action="store_true",
        help="judge as clean --all --trust-default-policy would",
    )


def run(arguments: argparse.Namespace) -> int:
    """List the partitions; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.options import CallContext
    from cleaner.app.plan_log_dir import plan_log_dir
    from cleaner.cli.compiling import announce_compiling
    from cleaner.cli.identity import take_identity
    from cleaner.cli.logs import log_warning
    from cleaner.cli.output import print_error
    from cleaner.cli.show_plan import show_plan

    sampling = sampling_of(arguments)
    if sampling is not None:
        announce_compiling(print_error)
    take_identity(arguments.log_dir, stay_root=arguments.as_root, needs_kernels=sampling is not None)
    lent = CallContext.of(now_ms=arguments.now, warn=log_warning)
    high_watermark = arguments.high_watermark
    entries = plan_log_dir(arguments.log_dir, settings, lent, high_watermark=high_watermark, sampling=sampling)
    return show_plan(entries, arguments.format, arguments.log_dir, settings_given(arguments))
