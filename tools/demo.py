"""
Shows compaction from the first record on, then on logs that others wrote: `make demo`.

First every command of `docs/tutorial.md`, with what it answers. Then three logs, cleaned with the command, before and
after. Two are small logs that a Kafka broker wrote (from tests/golden): product prices, few enough to read record by
record, and a `__consumer_offsets` partition. The third is made here: 1 GB of records with 100 000 keys. All stay in
`.demo`.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.generate import Shape, generate
from cleaner.base.model import TopicPartition
from tests.golden.archive import DATA, unpack
from tests.golden.scenario import Step, steps
from tests.reference.batches import Rec, read_batches, read_records
from tools import tutorial

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
CLEANER = Path(sys.executable).parent / "cleaner"


def say(text: str = "") -> None:
    """Print at once, so that the command's own lines come in their place."""
    print(text, flush=True)


def heading(text: str) -> None:
    """Print a title."""
    say(f"\n{text}\n{'=' * len(text)}")


def cleaner(*arguments: str) -> None:
    """Run the command as a user would, and show how."""
    say(f"\n$ cleaner {shlex.join(arguments)}")
    subprocess.run([str(CLEANER), *arguments], check=True, cwd=ROOT)
    say()


def records(partition: Path) -> list[Rec]:
    """Read every record of a partition but control records."""
    batches = [batch for log in sorted(partition.glob("*.log")) for batch in read_batches(log.read_bytes())]
    return [record for batch in batches if not batch.control for record in read_records(batch)]


def describe(partition: Path) -> str:
    """Count segments and bytes."""
    sizes = [log.stat().st_size for log in partition.glob("*.log")]
    return f"{len(sizes)} segments, {sum(sizes):,} bytes"


def golden(name: str) -> tuple[Step, Path]:
    """Lay out a golden log dir as Kafka left it, with its topic's `cleanup.policy`."""
    step = next(step for step in steps() if step.scenario == name and step.number == 1)
    unpacked = unpack(DATA / f"{name}.tar.xz", HOME / "unpacked" / name)
    log_dir = step.prepare(unpacked, HOME / name)
    topic = TopicPartition.parse(step.partition).topic
    # A plain file a broker never looks at, one of the places where the command finds a topic's settings.
    # Without the small `internal.segment.bytes` that it was filled with: so the round joins segments, too.
    (log_dir / "cleaner-topics.properties").write_text(f"{topic}.cleanup.policy={step.settings['cleanup.policy']}\n")
    return step, log_dir


def show_tutorial() -> None:
    """Run the tutorial in a shell, as a reader would."""
    home = HOME / "tutorial"
    home.mkdir()
    shown = ""
    # The first command compiles the kernels, which took two minutes on a busy machine.
    with tutorial.Shell(home, patience_seconds=1200) as shell:
        for step in tutorial.steps((ROOT / "docs" / "tutorial.md").read_text()):
            if step.heading != shown:
                heading(step.heading)
                shown = step.heading
            say(f"$ {step.command}")
            for line in shell.run(step.command):
                say(line)


def show_prices() -> None:
    """A price log: what is superseded goes, the active segment stays as it is."""
    heading("The same prices, as a broker wrote them: seven records in four segments")
    step, log_dir = golden("latest-product-price")
    partition = log_dir / step.partition
    before = records(partition)
    cleaner("plan", str(log_dir.relative_to(ROOT)), "--now", str(step.now_ms))
    cleaner("clean", str(log_dir.relative_to(ROOT)), step.partition, "--now", str(step.now_ms))
    left = {record.offset for record in records(partition)}
    say("offset  key  price")
    for record in before:
        fate = "" if record.offset in left else "   superseded"
        say(f"{record.offset:6}  {(record.key or b'').decode():3}  {(record.value or b'').decode():>5}{fate}")
    say("Offset 6 is in the active segment: it is never cleaned, and does not supersede offset 5 yet.")


def show_consumer_offsets() -> None:
    """A partition that every Kafka cluster has: hundreds of commits, few of them current."""
    heading("__consumer_offsets: what groups committed")
    step, log_dir = golden("consumer-offsets")
    partition = log_dir / step.partition
    sizes = describe(partition)
    before = Counter(record.key for record in records(partition))
    cleaner("clean", str(log_dir.relative_to(ROOT)), step.partition, "--now", str(step.now_ms))
    after = Counter(record.key for record in records(partition))
    say(f"before: {sizes}, {before.total()} records of {len(before)} keys (markers not counted)")
    say(f"after:  {describe(partition)}, {after.total()} records of {len(after)} keys")


def show_large_log() -> None:
    """A log of 1 GB."""
    heading("1 GB of records with 100 000 keys")
    log_dir = HOME / "one-gigabyte"
    partition = TopicPartition("measurements", 0)
    began = time.monotonic()
    count = generate(log_dir, partition, Shape(size_bytes=10**9, keys=100_000))
    say(f"written in {time.monotonic() - began:.1f} s: {count:,} records")
    before = describe(log_dir / str(partition))
    arguments = ("clean", str(log_dir.relative_to(ROOT)), str(partition), "--set", "cleanup.policy=compact")
    began = time.monotonic()
    cleaner(*arguments)
    say(f"before: {before}")
    say(f"after:  {describe(log_dir / str(partition))}, {time.monotonic() - began:.1f} s later (with starting Python)")


def main() -> None:
    """Show all of it."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    show_tutorial()
    say("\ndocs/tutorial.md says what was to be seen there. And three logs that others wrote:")
    show_prices()
    show_consumer_offsets()
    show_large_log()
    say(f"\nThe cleaned log dirs are in {HOME.relative_to(ROOT)}: look at them, or run `cleaner plan` on them.")


if __name__ == "__main__":
    try:
        main()
    except tutorial.CommandFailed as error:
        sys.exit(f"make demo: this command failed:\n{error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"make demo: {error}")
