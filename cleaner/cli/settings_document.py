"""The reference of all settings, printed by `cleaner config docs` and kept as `docs/settings.md`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cleaner.cli.fitting import fold
from cleaner.config.bulk_settings import BulkSettings
from cleaner.config.daemon_settings import DaemonSettings
from cleaner.config.definition import Setting
from cleaner.config.process_settings import ProcessSettings
from cleaner.config.table import TOPIC_SETTINGS, UNUSED_TOPIC_KEYS, rows_of
from cleaner.config.writer_settings import WriterSettings

_ITEM = re.compile(r"[0-9]+\. ")
_HEAD = """\
# Settings

<!-- Printed by `cleaner config docs`; the rows are those of cleaner/config. -->

The cleaner has Kafka's settings under Kafka's names, so a broker's `server.properties` may be given as `--config`.
Names that begin with `cleaner.` are its own. Types, defaults and bounds are those of Kafka 4.4.0; where Kafka bounds a
setting but not the files it describes, a value out of bounds only draws a warning. Files are read as Java's
`Properties` reads them; one that begins with a byte-order mark is refused, because the mark would be part of its first
key. [config/cleaner.properties](../config/cleaner.properties) is a sample with every setting.

`cleaner config check` names every mistake at once, one a line, and ends with 78 when there is one; `cleaner config
show` lists what is in force and where it comes from, with `--topic` for one topic, and with `--changed-only` without
the defaults.

## Where the settings of the process come from

The first of these that has the setting gives its value:

1. `--set key=value`;
2. the environment;
3. the dynamic settings of brokers in the cluster's metadata, for commands that clean one log dir; a daemon's threads
   and buffers belong to no broker;
4. the `--config` file;
5. the default.

A setting whose type says `bytes` may be written as a size: `128M`, `1.5G`, `128 MiB`, with K, M, G or T for powers of
1024, here, with `--set` and in every option that takes bytes. Sizes are shown the same way everywhere (`128.0 MiB`).
Brokers read plain numbers only: keep to them in a file that a broker reads too. `cleaner topics create` and `alter`
write them so, whatever was typed. A rate below 1 MiB/s (`50` for `50M`) draws a warning.

A variable of the environment is called `CLEANER_` and the setting's name in capitals, with `_` for `.` and `-`; the
`cleaner.` of our own names is not said twice: `CLEANER_LOG_CLEANER_THREADS`, `CLEANER_HTTP_LISTEN`. Settings of topics
have variables too and mean every topic (`CLEANER_MIN_CLEANABLE_DIRTY_RATIO`); for single topics there are none. A
`CLEANER_` variable that is no setting is an error that names the nearest one, except those that Kubernetes sets for a
service called `cleaner` or `cleaner-...` (`CLEANER_SERVICE_HOST`, `CLEANER_PORT_9404_TCP`, ...).

## When a change counts

The daemon reads its settings again on SIGHUP, `cleaner reload`, or when the file changes (`cleaner.config.watch=true`):
all of them are sound and taken over, or nothing changes and the mistakes are named. Settings marked *restart* below
keep their value until the next start, and are named as waiting for it. Environment and command line are those of the
start.

Settings of topics (`<topic>.properties`, `cleaner-topics.properties`, the metadata log) are followed as they change,
without a reload. A file counts once it has stayed the same for a second; what is wrong in it leaves the topic's
settings as they were and is shown as its warning.

## Where a topic's settings come from

The first of these that has the setting gives its value:

1. `--set TOPIC:key=value`, then `--set key=value` (for every topic);
2. `<topic>.properties` in `--topics-dir`, or else in `cleaner.topics.dir`;
3. `cleaner-topics.properties` in the log dir: lines `topic.key=value`; brokers do not look at the file;
4. topic settings under their own names in the environment, then in `--config`;
5. the cluster's metadata (`__cluster_metadata-0` in `--metadata-dir`, in `metadata.log.dir`, in the log dir or in the
   first of `log.dirs`): the topic's settings, when its id there is that of the partition's `partition.metadata`; then
   broker settings in the environment; the broker's dynamic settings, then those of all brokers;
6. broker settings in `--config`; `offsets.topic.segment.bytes`, `transaction.state.log.segment.bytes` and
   `share.coordinator.state.topic.segment.bytes`, which mean one topic, before the general ones;
7. Kafka's own settings for `__consumer_offsets`, `__transaction_state` and `__share_group_state`;
8. Kafka's defaults.

Broker names of topic settings (`log.segment.bytes`, `log.retention.hours`) are understood for topics too, with a note.
Of several broker names in one place the first one in the table counts.
An unknown name very like a known one is an error, any other draws a warning; a bad value is an error everywhere.

## When a cleanup policy is trusted

A log dir does not say which topics are compacted, and compacting one that is not destroys it. So a policy counts as
known only when it was said of this very topic: in 1 with the topic, in 2, 3, 5 or 7, or when the metadata knows the
topic and leaves its policy to the broker's settings. A topic whose policy comes from elsewhere is cleaned only when a
partition of it is named, or with `--trust-default-policy` (`cleaner.trust.default.policy=true`); a `--set
cleanup.policy` without a topic does not even then make `--all` clean it. A topic without `compact` is never compacted.
"""


def document(width: int | None = None) -> str:
    """Return the text of `docs/settings.md`; with a width, folded for a terminal that wide."""
    unused = ", ".join(f"`{key}`" for key in sorted(UNUSED_TOPIC_KEYS))
    parts = [
        _HEAD,
        "\n## Topic settings\n\n",
        *_rows(TOPIC_SETTINGS.values(), with_synonyms=True),
        f"\nAccepted and without meaning for a cleaner: {unused}.\n",
        "\n## Settings of the process\n\n",
        *_rows(rows_of(ProcessSettings), with_synonyms=False),
        "\n## Settings of a process that writes logs\n\nFor `cleaner.LogManager` and the commands built on it; others "
        "pass them over.\n\n",
        *_rows(rows_of(WriterSettings), with_synonyms=False),
        "\n## Settings of bulk cleaning\n\nFor `cleaner bulk`, and for the daemon's large logs. Beside them every "
        "setting that begins with `spark.` is passed on to Spark as it is, `spark.master` first of all; it counts for "
        "the next session. [spark.md](spark.md) says which ones matter.\n\n",
        *_rows(rows_of(BulkSettings), with_synonyms=False),
        "\n## Settings of the daemon\n\nOther commands pass them over.\n\n",
        *_rows(rows_of(DaemonSettings), with_synonyms=False),
    ]
    text = "".join(parts)
    return text if width is None else "".join(f"{line}\n" for line in _for_terminal(text, width))


def _for_terminal(text: str, width: int) -> Iterable[str]:
    """Yield lines of a width: paragraphs refolded, and each row of a table as a paragraph."""
    paragraph: list[str] = []
    headings: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_continued = bool(line) and not line.startswith(("|", "#", "<!--")) and not _ITEM.match(line)
        if not is_continued and paragraph:
            hang = "   " if _ITEM.match(paragraph[0]) else ""
            yield from fold(" ".join(map(str.strip, paragraph)), width, hang)
            paragraph.clear()
        if is_continued or _ITEM.match(line):
            paragraph.append(line)
        elif not line.startswith("|"):
            headings.clear()
            yield from fold(line, width)
        else:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not headings:
                headings.extend(cells)
            elif cells[0] != "---":
                yield cells[0].strip("`")
                for heading, cell in zip(headings[1:], cells[1:], strict=True):
                    if cell:
                        yield from fold(f"    {heading.lower()}: {cell}", width, "        ")


def _rows(settings: Iterable[Setting], with_synonyms: bool) -> Iterable[str]:
    last = "Broker's names" if with_synonyms else "Counts after"
    columns = ["Setting", "Type", "Default", "Bound", "Meaning", last]
    yield _row(columns)
    yield _row(["---"] * len(columns))
    for setting in settings:
        kind = f"{setting.kind}, bytes" if setting.in_bytes else setting.kind
        default = f"`{setting.default}`" if setting.default else ""
        cells = [f"`{setting.name}`", kind, default, setting.bound(), setting.doc]
        if with_synonyms:
            cells.append(", ".join(f"`{synonym.name}`" for synonym in setting.synonyms))
        else:
            cells.append("reload" if setting.dynamic else "restart")
        yield _row(cells)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
