"""All planted defects, by name: `DEFECTS`."""

from __future__ import annotations

from tests.simulation import round_defects, topic_defects, writer_defects  # noqa: F401 - they register theirs
from tests.simulation.planting import DEFECTS, Found, found_by

__all__ = ["DEFECTS", "Found", "found_by"]
