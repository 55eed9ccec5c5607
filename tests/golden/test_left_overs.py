"""What a stop in the middle of a swap has left: settled and cleaned as Kafka's loader and cleaner did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.golden.archive import unpack
from tests.kafka.left_overs import SAME, State, compare

LEFT_OVERS = Path(__file__).parent / "left_overs.tar.xz"


def test_left_overs_are_settled_as_kafka_settled_them(tmp_path: Path) -> None:
    """R-630 to R-642, R-652: with a marker or without, whatever transactions there are; by the slow twins, too."""
    logs = unpack(LEFT_OVERS, tmp_path)
    unlike = []
    states = json.loads((logs / "states.json").read_text())
    for number, (fields, got) in enumerate(states):
        before, theirs, ours = (logs / str(number) / who for who in ("in", "kafka", "ours"))
        shutil.copytree(before, ours)
        found = compare(State(*fields), before, theirs, ours, got)
        if found.kind != SAME:
            unlike.append(f"{number} {fields}: {found}")
    assert unlike == []
    assert len(states) > 60
