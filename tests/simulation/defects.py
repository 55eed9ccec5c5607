"""All planted defects, by name: `DEFECTS`."""

from __future__ import annotations

from tests.simulation import (  # noqa: F401 - they register theirs
    accounting_defects,
    comparing_defects,
    disk_defects,
    erasing_defects,
    exporting_defects,
    fetching_defects,
    index_defects,
    lookups_defects,
    operator_defects,
    packing_defects,
    proving_defects,
    quiet_defects,
    replaying_defects,
    round_defects,
    rule_defects,
    serving_defects,
    topic_defects,
    view_defects,
    who_defects,
    writer_defects,
)
from tests.simulation.planting import DEFECTS, Found, found_by, likely_seeds

__all__ = ["DEFECTS", "Found", "found_by", "likely_seeds"]
