"""What a world came to."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field

from tests.simulation.plan import Plan
from tests.simulation.scheduler import Step


@dataclass
class Report:
    """What a seed came to: the failure if any, and figures; `met`: at what kinds of steps accidents came."""

    seed: int | str
    plan: Plan
    failure: str = ""
    steps: int = 0
    lives: int = 0
    operations: int = 0
    accidents: list[str] = field(default_factory=list)
    met: set[tuple[str, str]] = field(default_factory=set)
    outcomes: dict[str, int] = field(default_factory=dict)
    trace: list[Step] = field(default_factory=list)

    def fail(self, error: BaseException, where: str = "") -> None:
        """Note the failure, unless an earlier one is known; `where`: in which thread."""
        if not self.failure:
            steps = "".join(traceback.format_tb(error.__traceback__)[-6:])
            self.failure = f"{where}{type(error).__name__}: {error}\n{steps}"
