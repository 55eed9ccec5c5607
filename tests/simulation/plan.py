"""
What happens in one world: drawn from its seed before it begins, so that a plan can be printed, cut down and run again.

Swarm testing (Groce et al., ISSTA 2012): each seed leaves out some kinds of operations and accidents, so that those
that hide others do not hide them everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from cleaner.config.process_settings import KAFKA_VERSION_NAMES
from tests.simulation.topics import MAIN, SETTINGS

KEYS = "abcdefgh"
ACCIDENTS = (
    "kill",
    "power",
    "stop",
    "kill cleaner",
    "full",
    "failing",
    "clock",
    "interrupt",
    "kill daemon",
    "descriptors",
    "read only",
    "rot",
)
OF_DAEMONS = ("second daemon", "state lost", "lock lost", "steer", "steer", "freeze")
RESTS = ("wait", "recover", "repair", "undo")
PLACES = ("operation", "change", "change of the writer", "fence", "read", "close", "note", "delete", "error", "noting")
_WEIGHTS = {
    "append": 50,
    "repeat": 8,
    "transact": 14,
    "end": 9,
    "flush": 5,
    "roll": 4,
    "sleep": 3,
    "note": 2,
    "read": 1,
    "retain": 2,
    "remake": 0.6,
}
_TOPIC_SHARE = 0.15  # of the worlds have a topic besides the main one
_DAEMON_SHARE = 0.1  # of the worlds have a daemon: it costs half as much again, with retention twice as much
_REST_SHARE = 0.12  # of the worlds have operators between lives
_INDEX_SHARE = 0.15  # of the worlds have key indexes, and some rounds more
# Kinds that came later, each with its share of the worlds; drawn apart, so that plans stay.
_LATER_RESTS = {
    "quiet": 0.05,
    "prove": 0.05,
    "who": 0.04,
    "erase": 0.05,
    "gaps": 0.04,
    "replicas": 0.04,
    "pack": 0.05,
    "view": 0.05,
    "rule": 0.05,
    "serve": 0.05,
    "export": 0.04,
    "table": 0.04,
}
FOCUSES = ("fence", "topics", "daemon", "index", "fetches", "cut", "error", "stall", *RESTS[1:], *_LATER_RESTS)
"""What all worlds of a seed such as `erase/7` have, and others only now and then."""
_SERVED_SHARE = 0.05  # of the worlds have readers that ask `cleaner serve`
_ERROR_SHARE = 0.1  # of the worlds without operators have power cuts right after calls that failed
_STALL_SHARE = 0.1  # of them have threads that stand still for a while
_WITHIN_SHARE = 0.1  # of them have readers in the writer's process
_CUT_SHARE = 0.25  # of them have clients that cut their logs
_FREEING_SHARE = 0.1  # of the worlds free removed files behind the caller
_SCENE_SHARE = 0.4  # of the worlds have a scene
_MEDIAN_OPERATIONS = 200
_CHANGES_OF_A_ROUND = 80
_IN_ROUNDS = ("power", "power", "kill cleaner", "failing")


@dataclass(frozen=True)
class Operation:
    """
    One operation of a client.

    Attributes:
        client: which one.
        kind: see `clients.py`.
        keys: of the records; upper case: a tombstone.
        is_waited: wait until it is durable.
        is_committed: how a transaction ends.
        number: seconds of a sleep, bytes of padding; of a read, 0: it begins at once; more than 2: it pauses in its
            middle.
    """

    client: int
    kind: str
    keys: str = ""
    is_waited: bool = False
    is_committed: bool = True
    number: int = 0


@dataclass(frozen=True)
class Accident:
    """
    An accident.

    Attributes:
        kind: see `Life`.
        after_operation: it comes some steps after this operation has begun.
        steps: how many.
        number: its size.
        place: instead, so many changes of files or fences after the round of that operation has begun, or so many
            changes of the writer after the operation has, or so many steps after the next read, close, note, deletion
            of a topic or call that fails, or after the next note has begun.
    """

    kind: str
    after_operation: int
    steps: int
    number: int = 0
    place: str = "operation"


@dataclass(frozen=True)
class Rest:
    """
    What happens between two lives of the writer.

    Attributes:
        kind: see `operators.py`.
        number: its size.
        accident: `kill` or `power`: what comes in its middle.
        changes: after so many changes of files.
    """

    kind: str
    number: int = 0
    accident: str = ""
    changes: int = 0


@dataclass(frozen=True)
class Plan:
    """
    A world's operations and accidents.

    Attributes:
        rounds: after which operations a round of `cleaner clean` begins.
        settings: of writer and cleaners.
        stops_clock: it stands still during rounds, in the millisecond before a delete horizon if there is one.
        has_daemon: the daemon runs, from the first writer's start to the end.
        topics: see `topics.py`; each client works on one.
        counts_objects: at the end, opening and closing is tried for leaks.
        rests: between lives, in turn.
        has_retention: the daemon removes what has expired, where the writer does not.
        has_index: rounds have key indexes.
        is_served: readers ask `cleaner serve` (`fetching.py`).
        reads_within: clients read their logs themselves, in the writer's process.
        frees_behind: the blocks of removed files are freed behind the caller, whatever their size.
    """

    operations: tuple[Operation, ...]
    accidents: tuple[Accident, ...]
    rounds: tuple[int, ...]
    settings: tuple[tuple[str, str], ...]
    has_daemon: bool = False
    stops_clock: bool = False
    topics: tuple[str, ...] = (MAIN,)
    counts_objects: bool = False
    rests: tuple[Rest, ...] = ()
    has_retention: bool = False
    has_index: bool = False
    is_served: bool = False
    frees_behind: bool = False
    reads_within: bool = False

    @staticmethod
    def of(seed: int | str) -> Plan:
        """Draw the plan of a seed; of one like `erase/7` such that it has that for sure."""
        rng, focus = Random(f"{seed}/plan"), focus_of(seed)
        count = max(20, min(400, round(rng.gauss(_MEDIAN_OPERATIONS, 60))))
        weights = {kind: weight for kind, weight in _WEIGHTS.items() if kind == "append" or rng.random() < 0.8}
        topics = (
            MAIN,
            *(name for name in SETTINGS if name != MAIN and rng.random() < _share("topics", focus, _TOPIC_SHARE)),
        )
        clients = max(rng.randint(1, 3), len(topics))
        wait_share = rng.choice((0.05, 0.3, 0.6))
        # Small segments become one; few keys leave segments without a record that counts.
        weights["roll"] = weights.get("roll", 0) * rng.choice((1, 1, 4))
        keys = KEYS[: rng.choice((2, 4, len(KEYS)))]
        kinds = rng.choices(list(weights), list(weights.values()), k=count)
        operations = [_operation(rng, kind, clients, wait_share, keys) for kind in kinds]
        chosen = [kind for kind in ACCIDENTS if rng.random() < 0.6] or ["power"]
        rounds = tuple(sorted(rng.randrange(count // 2, count) for _ in range(rng.choice((1, 1, 1, 2)))))
        for place in rounds:
            # So that the round finds something below the active segment and the high watermark that others know.
            client = operations[place].client
            operations[place - 2 : place] = [Operation(client, "roll"), Operation(client, "note")]
            operations[place + 1 : place + 3] = [Operation(client, "read"), Operation(client, "read", number=1)]
            if "remake" in weights and rng.random() < 0.15:
                operations[place + 1] = Operation(client, "remake")
        accidents = [_accident(rng, chosen, operations, rounds) for _ in range(rng.choice((3, 3, 4, 4, 5)))]
        if "power" in chosen and rng.random() < 0.6:
            accidents.append(Accident("power", rng.choice(rounds), rng.randrange(rng.choice((9, 25))), 0, "fence"))
        if "rot" in chosen and rng.random() < 0.3:
            place = rng.randrange(count // 2, count - 2)
            accidents += [Accident("rot", place, rng.randrange(10), rng.randrange(1 << 16)) for _ in range(2)]
            operations[place + 1 : place + 3] = [Operation(operations[place].client, "read")] * 2
        has_daemon = rng.random() < _share("daemon", focus, _DAEMON_SHARE)
        stops_clock = not has_daemon and rng.random() < 0.3
        settings = _settings(rng)
        counts_objects = rng.random() < 0.05
        plan = Plan(
            *(tuple(operations), _in_order(accidents), rounds, settings, has_daemon, stops_clock),
            *(topics, counts_objects),
        )
        plan = _with_operators(Random(f"{seed}/operators"), _with_scene(Random(f"{seed}/scene"), plan))
        plan = replace(plan, has_index=Random(f"{seed}/index").random() < _share("index", focus, _INDEX_SHARE))
        plan = replace(plan, is_served=Random(f"{seed}/served").random() < _share("fetches", focus, _SERVED_SHARE))
        plan = replace(plan, frees_behind=Random(f"{seed}/freeing").random() < _FREEING_SHARE)
        plan = _with_later_rests(seed, plan)
        if focus:
            plan = _focused(Random(f"{seed}/focus"), focus, plan)
        if plan.rests:
            return plan  # the books of some of them know of no cuts
        plan = _with_errors(Random(f"{seed}/errors"), plan, _share("error", focus, _ERROR_SHARE))
        plan = _with_stalls(Random(f"{seed}/stalls"), plan, _share("stall", focus, _STALL_SHARE))
        plan = replace(plan, reads_within=Random(f"{seed}/within").random() < _WITHIN_SHARE)
        return _with_cuts(Random(f"{seed}/cuts"), plan, _share("cut", focus, _CUT_SHARE))


def focus_of(seed: int | str) -> str:
    """Return what all worlds of seeds like this one have: `erase` of `erase/7`; of a number, nothing."""
    focus, has_one, _ = str(seed).partition("/")
    if not has_one:
        return ""
    if focus not in FOCUSES:
        raise ValueError(f"{seed}: known are {', '.join(FOCUSES)}")
    return focus


def _share(kind: str, focus: str, usual: float) -> float:
    return 1 if kind == focus else usual


def _focused(rng: Random, focus: str, plan: Plan) -> Plan:
    """Return a plan that has what it is to have for sure, and nothing that leaves no room for it."""
    if focus in ("error", "stall", "cut"):
        sound = tuple(each for each in plan.accidents if focus != "cut" or each.kind != "rot")
        return replace(plan, rests=(), accidents=sound)
    if focus == "fence":
        return _cut_at_fences(rng, plan)
    if focus not in (*RESTS, *_LATER_RESTS):
        return plan
    sound = tuple(each for each in plan.accidents if each.kind != "rot")
    count = len(plan.operations)
    stops = tuple(Accident("stop", rng.randrange(count // 3, count), 0) for _ in range(2))
    rests = (_rest(rng, focus),) if focus == "serve" else (_rest(rng, focus), _rest(rng, focus))  # it takes seconds
    return replace(plan, has_daemon=False, rests=rests, accidents=_in_order((*sound, *stops)))


def _cut_at_fences(rng: Random, plan: Plan) -> Plan:
    """Return a plan with some rounds, each of which meets a power cut at one of its fences, and few other accidents."""
    operations, count = list(plan.operations), len(plan.operations)
    rounds = tuple(sorted(rng.sample(range(count // 4, count - 3), 4)))
    for place in rounds:
        client = operations[place].client
        operations[place - 2 : place] = [Operation(client, "roll"), Operation(client, "note")]
    cuts = [Accident("power", place, rng.randrange(rng.choice((9, 16, 25))), 0, "fence") for place in rounds]
    accidents = _in_order((*rng.sample(plan.accidents, 1), *cuts))
    return replace(plan, operations=tuple(operations), rounds=rounds, rests=(), accidents=accidents, has_daemon=False)


def _in_order(accidents: Iterable[Accident]) -> tuple[Accident, ...]:
    return tuple(sorted(accidents, key=lambda accident: accident.after_operation))


def _operation(rng: Random, kind: str, clients: int, wait_share: float, some: str) -> Operation:
    client, is_waited = rng.randrange(clients), rng.random() < wait_share
    if kind in ("append", "repeat", "transact"):
        keys = "".join(rng.choice(some) for _ in range(rng.choice((1, 1, 2, 4))))
        if rng.random() < 0.12:
            keys = keys[:-1] + keys[-1].upper()
        return Operation(client, kind, keys, is_waited, number=rng.choice((0, 0, 30, 200)))
    if kind == "end":
        return Operation(client, kind, is_waited=is_waited, is_committed=rng.random() < 0.5)
    return Operation(client, kind, number=rng.choice((0, 1, 1, 2, 6, 65)))


def _accident(rng: Random, kinds: list[str], operations: list[Operation], rounds: tuple[int, ...]) -> Accident:
    """Draw an accident, anywhere or during a round."""
    number, count = rng.randrange(1 << 16), len(operations)
    kind = rng.choice([*kinds, "power"] if "power" in kinds else kinds)
    if kind in ("interrupt", "descriptors"):
        # In the middle of a change of several steps.
        places = [place for place, each in enumerate(operations) if each.kind in ("roll", "transact", "repeat", "end")]
        return Accident(kind, rng.choice(places or [0]), rng.randrange(30), number)
    remakes = [place for place, each in enumerate(operations) if each.kind == "remake"]
    if remakes and "power" in kinds and rng.random() < 0.05:
        return Accident("power", rng.choice(remakes), rng.randrange(8), number, "delete")
    chance = rng.random()
    steps = [place for place, each in enumerate(operations) if each.kind in ("retain", "remake")]
    if steps and rng.random() < 0.12:
        kind = rng.choice([each for each in ("power", "kill", "failing") if each in kinds] or [kind])
        return Accident(kind, rng.choice(steps), rng.randrange(rng.choice((4, 16))), number, "change of the writer")
    if chance < 0.45:
        kind = rng.choice([kind, *(each for each in _IN_ROUNDS if each in kinds)])
        if chance < 0.15:
            return Accident(kind, rng.choice(rounds), rng.randrange(_CHANGES_OF_A_ROUND), number, "change")
        return Accident(kind, rng.choice(rounds), rng.randrange(rng.choice((9, 25))), number, "fence")
    if chance < 0.6 and "power" in kinds:
        place = rng.choice(("read", "close", "note"))
        return Accident("power", rng.randrange(count), rng.randrange(rng.choice((1, 40))), number, place)
    return Accident(kind, rng.randrange(count), int(rng.expovariate(1 / 60)), number)


def _with_operators(rng: Random, plan: Plan) -> Plan:
    """Return a plan in which, in some worlds, operators are at work, on the daemon or between lives."""
    count, accidents = len(plan.operations), list(plan.accidents)
    rests: tuple[Rest, ...] = ()
    if plan.has_daemon:
        for kind in rng.sample(OF_DAEMONS, rng.choice((0, 1, 1, 2, 3))):
            # Steered right before something becomes due: the roll before a round.
            place = max(0, rng.choice(plan.rounds) - 4) if kind == "steer" else rng.randrange(count)
            accidents.append(Accident(kind, place, rng.randrange(60), rng.randrange(1 << 16)))
        if rng.random() < 0.4:
            plan, rests = _with_retention(rng, plan), (_rest(rng, "wait"),)
    has_damage = any(each.kind == "rot" for each in accidents)  # what commands make of it, other tests judge
    if rng.random() < _REST_SHARE and not has_damage:
        rests += tuple(_rest(rng, kind) for kind in rng.sample(RESTS, rng.choice((1, 1, 2))))
    if rests:
        accidents += [Accident("stop", rng.randrange(count), 0) for _ in rests]
    return replace(plan, accidents=_in_order(accidents), rests=rests)


def _with_errors(rng: Random, plan: Plan, share: float) -> Plan:
    """Return a plan in which, in some worlds, calls fail in their middle, and the power is cut soon after."""
    if rng.random() >= share:
        return plan
    accidents, kinds = list(plan.accidents), ("append", "roll", "transact", "end", "retain")
    places = [place for place, each in enumerate(plan.operations) if each.kind in kinds]
    place, steps = rng.choice(places or [0]), rng.randrange(rng.choice((2, 8)))
    kind = rng.choice(("failing", "failing", "failing", "interrupt"))
    # A number that four divides: it is one change that fails.
    accidents.append(Accident(kind, place, steps, 4 * rng.randrange(1 << 14), "change of the writer"))
    accidents.append(Accident("power", place, rng.choice((0, 1, 4, 20)), rng.randrange(1 << 16), "error"))
    return replace(plan, accidents=_in_order(accidents))


def _with_cuts(rng: Random, plan: Plan, share: float) -> Plan:
    """Return a plan in which, in some worlds, each topic has one client, who cuts its log, also beside a reader."""
    if rng.random() >= share or any(each.kind == "rot" for each in plan.accidents):
        return plan
    operations = [replace(each, client=each.client % len(plan.topics)) for each in plan.operations]
    accidents = list(plan.accidents)
    for _ in range(rng.choice((2, 3, 4))):
        place = rng.randrange(len(operations) // 4, len(operations) - 8)
        if rng.random() < 0.3:
            place = max(0, rng.choice(plan.rounds) - rng.randrange(5))  # while the round runs
        client = operations[place].client
        scene = [
            *(Operation(client, "append", rng.choice(KEYS), is_waited=rng.random() < 0.8) for _ in range(2)),
            Operation(client, "read", number=rng.choice((1, 3, 3, 6))),
            *(Operation(client, "append", rng.choice(KEYS), is_waited=True) for _ in range(rng.choice((0, 2)))),
            Operation(client, "cut", number=rng.randrange(1 << 16)),
            *_after_a_cut(rng, client),
            Operation(client, "flush"),
        ]
        at = place + next(number for number, each in enumerate(scene) if each.kind == "cut")
        operations[place : place + len(scene)] = scene
        if rng.random() < 0.4:
            kind, steps = rng.choice(("power", "kill")), rng.randrange(25)
            accidents.append(Accident(kind, at, steps, rng.randrange(1 << 16), "change of the writer"))
    is_served = plan.is_served or rng.random() < 0.5
    operations = operations[: len(plan.operations)]
    return replace(plan, operations=tuple(operations), accidents=_in_order(accidents), is_served=is_served)


def _after_a_cut(rng: Random, client: int) -> list[Operation]:
    """Draw what gets the offsets of what a reader was shown or waits for: it is undecided, or is shown, too."""
    if rng.random() < 0.5:
        return [Operation(client, "transact", rng.choice(KEYS), is_waited=rng.random() < 0.5) for _ in range(2)]
    return [Operation(client, "append", rng.choice(KEYS), is_waited=True) for _ in range(5)]


def _with_stalls(rng: Random, plan: Plan, share: float) -> Plan:
    """Return a plan in which, in some worlds, threads stand still between two steps, and others overtake them."""
    if rng.random() >= share:
        return plan
    operations, accidents = list(plan.operations), list(plan.accidents)
    kinds = ("note", "retain", "read", "roll", "flush", "end", "remake")
    places = [place for place, each in enumerate(operations) if each.kind in kinds] or [0]
    for place in rng.choices(places, k=rng.choice((1, 2, 3))):
        accidents.append(Accident("stall", place, rng.randrange(25), rng.randrange(1 << 16)))
    clients = sorted({each.client for each in operations})
    pairs = [(one, two) for one in clients for two in clients if one != two and (one - two) % len(plan.topics) == 0]
    if pairs and rng.random() < 0.6:
        # A topic is made again while somebody notes how far its log is.
        one, two = rng.choice(pairs)
        place = rng.randrange(len(operations) // 2)
        later = range(place, len(operations))
        for number in [number for number in later if operations[number].client == one][:2]:
            operations[number] = Operation(one, "note")
        for number in [number for number in later if operations[number].client == two][1:6:2]:
            operations[number] = Operation(two, "remake")
        accidents.append(Accident("stall", place, rng.randrange(40), rng.randrange(1 << 16) | 2, "noting"))
        accidents.append(Accident("kill", place, rng.randrange(40), 0, "note"))
    return replace(plan, operations=tuple(operations), accidents=_in_order(accidents))


def _with_later_rests(seed: int | str, plan: Plan) -> Plan:
    """Return a plan in which, in some worlds, operators also do what they came to know later."""
    for kind, share in _LATER_RESTS.items():
        rng = Random(f"{seed}/{kind}")
        if rng.random() < share and not any(each.kind == "rot" for each in plan.accidents):
            stop = Accident("stop", rng.randrange(len(plan.operations)), 0)
            accidents = _in_order((*plan.accidents, stop))
            # First, as most worlds come to one rest.
            plan = replace(plan, rests=(_rest(rng, kind), *plan.rests), accidents=accidents)
    return plan


def _rest(rng: Random, kind: str) -> Rest:
    if kind == "wait":
        return Rest(kind, rng.choice((2, 3, 4, 7)))  # seconds: some of what is there expires, or all
    accident = rng.choice(("", "", "kill", "power"))
    return Rest(kind, rng.randrange(1 << 16), accident, rng.randrange(rng.choice((12, 40))))


def _with_scene(rng: Random, plan: Plan) -> Plan:
    """Return a plan in which, in some worlds, operations come in an order that they seldom have by chance."""
    if rng.random() >= _SCENE_SHARE:
        return plan
    expiring = [number for number, name in enumerate(plan.topics) if name in ("expiring", "bounded")]
    draw = rng.choice((_reader_pauses, _deletion_breaks_off, _round_outlives_its_log, *[_segments_expire] * 2))
    if draw is _segments_expire and not expiring:
        return plan
    count = len(plan.operations)
    place = max(0, plan.rounds[0] if draw is _round_outlives_its_log else rng.randrange(count // 2))
    client = rng.choice(expiring) if draw is _segments_expire else plan.operations[place].client
    scene, accidents = draw(rng, client, place)
    operations = (*plan.operations[:place], *scene, *plan.operations[place + len(scene) :])[:count]
    return replace(plan, operations=operations, accidents=_in_order((*plan.accidents, *accidents)))


Scene = tuple[list[Operation], list[Accident]]


def _reader_pauses(rng: Random, client: int, _: int) -> Scene:
    """A reader pauses at the end of a segment; when it goes on, its log is another one."""
    appends = [_waited(rng, client) for _ in range(5)]
    before = [Operation(client, "remake"), appends[0], Operation(client, "roll"), appends[1]]
    return [*before, Operation(client, "read", number=6), Operation(client, "remake"), *appends[2:]], []


def _deletion_breaks_off(rng: Random, client: int, place: int) -> Scene:
    """An accident comes before a deleted topic's lines are gone from the checkpoints."""
    scene = [_waited(rng, client), Operation(client, "roll"), Operation(client, "note"), Operation(client, "remake")]
    kind, steps = rng.choice(("power", "kill")), rng.randrange(20)
    accident = Accident(kind, place + 3, steps, rng.randrange(1 << 16), "change of the writer")
    return [*scene, _waited(rng, client)], [accident]


def _round_outlives_its_log(rng: Random, client: int, _: int) -> Scene:
    """The log that a round cleans is another one when it ends."""
    return [*(_waited(rng, client) for _ in range(rng.randrange(6))), Operation(client, "remake")], []


def _segments_expire(rng: Random, client: int, place: int) -> Scene:
    """An accident comes among the renames of several segments, or the lock is lost before their files are removed."""
    filled = [each for _ in range(5) for each in (_waited(rng, client, 500), Operation(client, "roll"))]
    scene = [*filled, Operation(client, "sleep", number=6), Operation(client, "retain")]
    number, steps = rng.randrange(1 << 16), 5 + rng.randrange(13)
    if rng.random() < 0.3:
        sleep = Operation(client, "sleep", number=6)
        return [*scene, sleep], [Accident("lock lost", place + len(scene), 0, number)]
    return scene, [Accident("power", place + len(scene) - 1, steps, number, "change of the writer")]


def _waited(rng: Random, client: int, padding: int = 0) -> Operation:
    return Operation(client, "append", "".join(rng.choices(KEYS, k=3)), is_waited=True, number=padding)


def _with_retention(rng: Random, plan: Plan) -> Plan:
    """Return a plan whose daemon has retention, and a topic for it."""
    operations, topics = plan.operations, plan.topics
    if not set(topics) & {"expiring", "bounded"}:
        number = len(topics)
        topics = (*topics, rng.choice(("expiring", "bounded")))
        operations = tuple(
            replace(each, client=number) if rng.random() < 1 / len(topics) else each for each in operations
        )
    return replace(plan, operations=operations, topics=topics, has_retention=True)


def _settings(rng: Random) -> tuple[tuple[str, str], ...]:
    settings = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": rng.choice(("2000", "6000", "12000")),
        "delete.retention.ms": rng.choice(("0", "5000")),
        "file.delete.delay.ms": "1000",
        "index.interval.bytes": rng.choice(("100", "1000")),
        "compression.type": rng.choice(("producer", "producer", "lz4", "zstd")),
        "num.recovery.threads.per.data.dir": "1",
        "cleaner.pipeline.threads": "1",
        "log.cleaner.dedupe.buffer.size": "1048576",
    }
    if rng.random() < 0.3:
        settings["retention.ms"] = "2000"  # of no topic whose policy is not to delete
    if rng.random() < 0.7:
        settings["replica.high.watermark.checkpoint.interval.ms"] = "60000"
    if rng.random() < 0.3:
        settings["flush.messages"] = rng.choice(("1", "7"))
    if rng.random() < 0.3:
        settings["flush.ms"] = rng.choice(("100", "5000"))
    # Not drawn from `rng`: the rest of a seed's plan stays what it was.
    more = Random(repr(settings))
    settings["cleaner.kafka.version"] = more.choice(KAFKA_VERSION_NAMES)
    if more.random() < 0.3:
        settings["preallocate"] = "true"
    return tuple(settings.items())
