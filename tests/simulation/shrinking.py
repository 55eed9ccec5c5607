"""
Makes a failing world smaller: fewer accidents, rounds, clients and operations, as long as it fails in the same way.

A plan with fewer operations meets other schedules, so each is tried with some seeds. The result, a seed and a plan, is
a line of JSON each for settings, accidents and operations; `python -m tests.simulation --plan FILE` replays it, and
in `plans/` it is a regression test.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from tests.simulation.plan import Accident, Operation, Plan, Rest
from tests.simulation.run import run_seed

SECONDS = 60.0
_SEEDS = 2
_MOST_WORLDS = 1000


class World(NamedTuple):
    """What a world follows from."""

    seed: int | str
    plan: Plan

    def size(self) -> tuple[int, int, int]:
        """Return the numbers of accidents, rounds and operations."""
        return len(self.plan.accidents), len(self.plan.rounds), len(self.plan.operations)

    def to_json(self) -> str:
        """Return it as text, without what is as by default."""
        fields = {each.name: _plain(getattr(self.plan, each.name)) for each in dataclasses.fields(Plan)}
        lines = [f'"seed": {json.dumps(self.seed)}']
        for name, value in fields.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
                lines.append(f'"{name}": [\n{rows}\n]')
            else:
                lines.append(f'"{name}": {json.dumps(value)}')
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def from_json(text: str) -> World:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        seed = fields.pop("seed")
        fields = {name: _tuples(value) for name, value in fields.items()}
        fields["operations"] = tuple(Operation(**row) for row in fields["operations"])
        fields["accidents"] = tuple(Accident(**row) for row in fields["accidents"])
        fields["rests"] = tuple(Rest(**row) for row in fields.get("rests", ()))
        return World(seed, Plan(**fields))


def _plain(value: Any) -> Any:
    """Turn tuples into lists, and rows into what is not as by default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = [(each, getattr(value, each.name)) for each in dataclasses.fields(value)]
        return {each.name: _plain(content) for each, content in pairs if content != each.default}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def kind_of(failure: str) -> str:
    """
    Return what two failures of the same kind have in common: the error and its first words, without names.

    Damaged files have the error alone in common: where the damage is met first says little.
    """
    line = failure.partition("\n")[0]
    line = re.sub(r"^\w+/[^:]*: ", "", line)  # which thread met it
    if line.startswith("Corrupt"):
        return line.partition(":")[0]
    line = re.sub(r"\([^)]*\)|/\S+|b?'[^']*'|\[[^]]*\]|\{[^}]*\}", "", line)
    return re.sub(r"\d+", "N", line).partition(", ")[0].strip()


def shrink(world: World, failure: str, *, seconds: float = SECONDS, worlds: int = _MOST_WORLDS) -> World:
    """
    Return the smallest world found that fails as this one does.

    Args:
        world: fails.
        failure: how.
        seconds: how long to look.
        worlds: how many worlds to try.
    """
    kind, until, tries = kind_of(failure), time.monotonic() + seconds, itertools.count()

    def fails(plan: Plan) -> World | None:
        for seed in [world.seed, *(f"{world.seed}.{number}" for number in range(1, _SEEDS))]:
            if time.monotonic() > until or next(tries) >= worlds:
                return None
            report = run_seed(seed, plan)
            if report.failure and kind_of(report.failure) == kind:
                return World(seed, plan)
        return None

    before = None
    while before is not world and time.monotonic() < until:
        before = world
        for smaller in (_fewer_parts, _fewer_operations):
            world = smaller(world, fails)
    return world


def _fewer_parts(world: World, fails: Callable[[Plan], World | None]) -> World:
    """Leave out the daemon, clients, what operators do, rounds and accidents, one at a time."""
    number = 0
    while number < len(plans := _without_one(world.plan)):
        found = fails(plans[number])
        if found is None:
            number += 1
        else:
            world = found  # the part after the one that is gone has its number now
    return world


def _without_one(plan: Plan) -> list[Plan]:
    """Return the plan without each of its parts, those first without which the most goes."""
    plans = [replace(plan, has_daemon=False, has_retention=False)] if plan.has_daemon else []
    clients = {operation.client for operation in plan.operations}
    for client in clients if len(clients) > 1 else ():
        plans.append(_only(plan, [place for place, each in enumerate(plan.operations) if each.client != client]))
    plans += [replace(plan, rests=rest) for rest in _each_left_out(plan.rests)]
    plans += [replace(plan, rounds=rounds) for rounds in _each_left_out(plan.rounds)]
    plans += [replace(plan, accidents=accidents) for accidents in _each_left_out(plan.accidents)]
    return [*plans, replace(plan, stops_clock=False)] if plan.stops_clock else plans


def _each_left_out(items: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [items[:number] + items[number + 1 :] for number in range(len(items))]


def _fewer_operations(world: World, fails: Callable[[Plan], World | None]) -> World:
    """Leave out ranges of operations: halves, then quarters, down to one by one."""
    size = len(world.plan.operations) // 2
    while size:
        at = len(world.plan.operations)
        while at > 0:
            at -= size
            places = [place for place in range(len(world.plan.operations)) if not at <= place < at + size]
            found = fails(_only(world.plan, places)) if places else None
            if found is not None:
                world = found
        size //= 2
    return world


def _only(plan: Plan, places: list[int]) -> Plan:
    """Return the plan with these operations alone; what came with another one comes with the next that is left."""
    new = {old: number for number, old in enumerate(places)}
    last = max(0, len(places) - 1)

    def moved(old: int) -> int:
        return next((number for place, number in new.items() if place >= old), last)

    return replace(
        plan,
        operations=tuple(plan.operations[place] for place in places),
        accidents=tuple(replace(each, after_operation=moved(each.after_operation)) for each in plan.accidents),
        rounds=tuple(moved(place) for place in plan.rounds),
    )
