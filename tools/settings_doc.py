"""Write `docs/settings.md` from the table of settings: `python -m tools.settings_doc`; a test keeps the two in step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cleaner.config_def import Setting
from cleaner.config_table import BROKER_SETTINGS, TOPIC_SETTINGS, UNUSED_TOPIC_KEYS

PATH = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

_HEAD = """\
# Settings

<!-- Written by `python -m tools.settings_doc` from cleaner/config_table.py. -->

The cleaner has Kafka's settings under Kafka's names, so a broker's `server.properties` may be given as `--config`.
Names that begin with `cleaner.` are its own. Types, defaults and bounds are those of Kafka 4.3.1; where Kafka bounds a
setting but not the files it describes, a value out of bounds only draws a warning.

## Where a topic's settings come from

The first of these that has the setting gives its value:

1. `--set TOPIC:key=value`, then `--set key=value` (for every topic);
2. `<topic>.properties` in `--topics-dir`;
3. `cleaner-topics.properties` in the log dir: lines `topic.key=value`; brokers do not look at the file;
4. topic settings under their own names in `--config`;
5. the cluster's metadata (`__cluster_metadata-0` in `--metadata-dir`, in `metadata.log.dir`, in the log dir or in the
   first of `log.dirs`): the topic's settings, when its id there is that of the partition's `partition.metadata`; then
   the broker's dynamic settings, then those of all brokers;
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


def document() -> str:
    """Return the text of `docs/settings.md`."""
    unused = ", ".join(f"`{key}`" for key in sorted(UNUSED_TOPIC_KEYS))
    parts = [
        _HEAD,
        "\n## Topic settings\n\n",
        *_rows(TOPIC_SETTINGS.values(), with_synonyms=True),
        f"\nAccepted and without meaning for a cleaner: {unused}.\n",
        "\n## Settings of the process\n\n",
        *_rows(BROKER_SETTINGS.values(), with_synonyms=False),
    ]
    return "".join(parts)


def _rows(settings: Iterable[Setting], with_synonyms: bool) -> Iterable[str]:
    columns = ["Setting", "Type", "Default", "Bound", "Meaning"] + (["Broker's names"] if with_synonyms else [])
    yield _row(columns)
    yield _row(["---"] * len(columns))
    for setting in settings:
        cells = [f"`{setting.name}`", setting.kind, _default(setting), setting.bound(), setting.doc]
        if with_synonyms:
            cells.append(", ".join(f"`{synonym.name}`" for synonym in setting.synonyms))
        yield _row(cells)


def _default(setting: Setting) -> str:
    return "" if setting.default is None else f"`{setting.default}`"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    PATH.write_text(document(), encoding="utf-8")
