"""Which log is next, and what is said of the others: R-410, R-420 to R-422, R-433, R-452."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.model import TopicPartition
from cleaner.config.table import LONG_MAX
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.cleaning_status import CleaningStatus
from cleaner.policy.reasons import Reason
from cleaner.policy.retry import Retry
from cleaner.policy.selection import Order, Survey, deletable, survey
from cleaner.policy.selection_context import DirCondition, LogDirFacts, LogFacts, SelectionContext
from cleaner.policy.states import PartitionState, Phase
from cleaner.policy.unread import NO_HORIZON

NOW = 1_000_000
FREE = SelectionContext(NOW)
PAUSED = PartitionState(Phase.PAUSED, 2)
IN_PROGRESS = PartitionState(Phase.IN_PROGRESS, holder="worker 1")
ABORTED = PartitionState(Phase.ABORTED, holder="worker 1")


def log(
    number: int = 0,
    *,
    dirty: int = 60,
    total: int = 100,
    overdue_ms: int | None = None,
    log_dir: str = "/a",
    last_round_ms: int | None = None,
) -> LogFacts:
    """A log with a share of dirty bytes, over its maximum lag of 1000 ms by some time (None: it has none)."""
    return LogFacts(
        TopicPartition("t", number),
        log_dir,
        Cleanable(0, 10, total - dirty, dirty, 5, False, "active segment"),
        earliest_dirty_timestamp_ms=None if overdue_ms is None else NOW - 1_000 - overdue_ms,
        min_cleanable_dirty_ratio=0.5,
        max_compaction_lag_ms=1_000,
        last_round_ms=last_round_ms,
    )


def queue(logs: list[LogFacts], order: Order, context: SelectionContext = FREE) -> list[int]:
    """Return the numbers of the logs in the order they would be cleaned in."""
    return [facts.partition.partition for facts in survey(logs, context, order).queue]


@pytest.mark.parametrize(
    ("logs", "kafka", "deadline"),
    [
        pytest.param([log(0, dirty=60), log(1, dirty=90), log(2, dirty=70)], [1, 2, 0], [1, 2, 0], id="dirtiest-first"),
        pytest.param([log(0, dirty=50), log(1, dirty=51)], [1], [1], id="strictly-over-the-ratio"),
        pytest.param([log(0), log(1), log(2)], [0, 1, 2], [0, 1, 2], id="of-equals-the-one-given-first"),
        pytest.param(
            [log(0, dirty=90), log(1, dirty=10, overdue_ms=1)], [0, 1], [1, 0], id="overdue-log-may-wait-in-kafka-order"
        ),
        pytest.param([log(0, dirty=10, overdue_ms=0)], [], [], id="exactly-at-its-lag"),
        pytest.param([log(0, dirty=0, overdue_ms=500)], [], [], id="overdue-with-nothing-to-clean"),
        pytest.param([log(0, dirty=0, total=0)], [], [], id="empty"),
        pytest.param(
            [log(0, overdue_ms=5), log(1, dirty=10, overdue_ms=9), log(2, dirty=90, overdue_ms=7)],
            [2, 0, 1],
            [1, 2, 0],
            id="longest-overdue-first",
        ),
        pytest.param(
            [log(0, dirty=60, overdue_ms=5), log(1, dirty=70, overdue_ms=5)], [1, 0], [1, 0], id="equally-overdue"
        ),
        pytest.param(
            [log(0, overdue_ms=10**9, last_round_ms=NOW - 20), log(1, dirty=10, overdue_ms=30)],
            [0, 1],
            [1, 0],
            id="fed-with-old-records-and-just-cleaned",
        ),
        pytest.param(
            [log(0, overdue_ms=10**9, last_round_ms=NOW + 50), log(1, dirty=10, overdue_ms=30)],
            [0, 1],
            [1, 0],
            id="clock-set-back-since-its-last-round",
        ),
        pytest.param(
            [log(0, dirty=90, overdue_ms=9, last_round_ms=NOW + 60), log(1, overdue_ms=9, last_round_ms=NOW + 50)],
            [0, 1],
            [1, 0],
            id="clock-set-back-before-the-last-rounds-of-both",
        ),
        pytest.param(
            [log(0, overdue_ms=40, last_round_ms=NOW - 500), log(1, overdue_ms=30)],
            [0, 1],
            [0, 1],
            id="last-round-before-its-deadline",
        ),
    ],
)
def test_queue_follows_the_configured_order(logs: list[LogFacts], kafka: list[int], deadline: list[int]) -> None:
    """R-421, R-422: testGrabFilthiestCompactedLogReturnsLogWithDirtiestRatio, and our own order."""
    assert queue(logs, Order.KAFKA) == kafka
    assert queue(logs, Order.DEADLINE) == deadline


@pytest.mark.parametrize("order", Order)
def test_requested_logs_come_first_in_the_order_of_their_requests(order: Order) -> None:
    """Neither ratio, window nor retry delay holds them; only having nothing to clean."""
    logs = [log(0, dirty=99, overdue_ms=5), log(1, dirty=1), log(2, dirty=2), log(3, dirty=0)]
    requested = {log(number).partition: 10 - number for number in (1, 2, 3)}
    assert queue(logs, order, replace(FREE, requested=requested)) == [2, 1, 0]
    retries = {log(1).partition: Retry(1, NOW, NOW + 5, "no room")}
    closed = replace(FREE, requested=requested, opens_at_ms=NOW + 5, retries=retries)
    assert queue(logs, order, closed) == [2, 1]


HELD = [
    pytest.param(
        replace(FREE, states={log().partition: IN_PROGRESS}), Reason.IN_PROGRESS, "in progress: worker 1", id="busy"
    ),
    pytest.param(
        replace(FREE, states={log().partition: ABORTED}), Reason.ABORTED, "asked to stop: worker 1", id="aborted"
    ),
    pytest.param(
        replace(FREE, quarantined={log().partition: "at byte 7: wrong CRC"}),
        Reason.QUARANTINED,
        "quarantined: at byte 7: wrong CRC",
        id="quarantined",
    ),
    pytest.param(
        replace(FREE, log_dirs={"/a": LogDirFacts(DirCondition.OFFLINE, "Input/output error")}),
        Reason.LOG_DIR_OFFLINE,
        "its log dir is offline: Input/output error",
        id="offline",
    ),
    pytest.param(
        replace(FREE, log_dirs={"/a": LogDirFacts(DirCondition.NEEDS_RECOVERY, "no clean-shutdown marker")}),
        Reason.LOG_DIR_NEEDS_RECOVERY,
        "its log dir needs recovery: no clean-shutdown marker",
        id="needs-recovery",
    ),
    pytest.param(
        replace(FREE, states={log().partition: PAUSED}), Reason.PAUSED, "paused, pauses outstanding: 2", id="paused"
    ),
    pytest.param(replace(FREE, is_paused=True), Reason.ALL_PAUSED, "the cleaner is paused", id="all-paused"),
    pytest.param(replace(FREE, is_enabled=False), Reason.DISABLED, "log.cleaner.enable is false", id="disabled"),
    pytest.param(
        replace(FREE, opens_at_ms=NOW + 90),
        Reason.WINDOW_CLOSED,
        "outside cleaner.windows, for 90 ms more",
        id="window-closed",
    ),
    pytest.param(
        replace(FREE, retries={log().partition: Retry(3, NOW - 10, NOW + 50, "no room")}),
        Reason.RETRY_LATER,
        "failed, times in a row: 3: no room; not tried, for 50 ms more",
        id="retry-later",
    ),
    pytest.param(
        replace(FREE, log_dirs={"/a": LogDirFacts(DirCondition.LOCKED, not_before_ms=NOW + 15)}),
        Reason.LOG_DIR_LOCKED,
        "its log dir is in use by another process; not tried, for 15 ms more",
        id="locked",
    ),
    pytest.param(
        replace(FREE, log_dirs={"/a": LogDirFacts(workers=2, max_workers=2)}),
        Reason.LOG_DIR_BUSY,
        "its log dir is busy, workers there: 2",
        id="log-dir-busy",
    ),
]


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize(("context", "reason", "words"), HELD)
def test_obstacle_holds_only_its_log_and_is_reported(
    context: SelectionContext, reason: Reason, words: str, order: Order
) -> None:
    """R-420, R-452: the obstacle with its numbers; logs on other disks go on, unless all are held."""
    found = survey([log(0, dirty=90), log(1, log_dir="/b")], context, order)
    assert found.verdicts[0].reason is reason
    assert found.verdicts[0].words() == f"{words}; ratio 0.900 above 0.5"
    holds_all = reason in (Reason.ALL_PAUSED, Reason.DISABLED, Reason.WINDOW_CLOSED)
    assert [facts.partition.partition for facts in found.queue] == ([] if holds_all else [1])


@pytest.mark.parametrize(
    ("context", "place"),
    [
        pytest.param(replace(FREE, retries={log().partition: Retry(3, NOW - 10, NOW, "")}), 1, id="retry-is-due"),
        pytest.param(replace(FREE, retries={log().partition: Retry(3, NOW + 1, NOW + 9, "")}), 1, id="clock-set-back"),
        pytest.param(
            replace(FREE, log_dirs={"/a": LogDirFacts(DirCondition.LOCKED, not_before_ms=NOW)}), 1, id="try-the-lock"
        ),
        pytest.param(replace(FREE, log_dirs={"/a": LogDirFacts(workers=1, max_workers=2)}), 1, id="room-for-a-worker"),
        pytest.param(replace(FREE, log_dirs={"/a": LogDirFacts(workers=9)}), 1, id="no-limit-of-workers"),
        pytest.param(replace(FREE, log_dirs={"/b": LogDirFacts(DirCondition.OFFLINE)}), 1, id="other-disk-offline"),
    ],
)
def test_obstacle_that_has_passed_holds_nothing(context: SelectionContext, place: int) -> None:
    """A locked log dir is tried again when its time has come."""
    assert survey([log()], context, Order.KAFKA).verdicts[0].place == place


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (log(dirty=90), "next: ratio 0.900 above 0.5"),
        (log(dirty=10, overdue_ms=7), "next: over max.compaction.lag.ms by 7 ms"),
        (log(dirty=0), "nothing to clean: the range ends at the active segment"),
        (log(dirty=50), "ratio 0.500 not above 0.5"),
        (log(dirty=50, overdue_ms=-7), "ratio 0.500 not above 0.5; over max.compaction.lag.ms in 8 ms"),
        (replace(log(dirty=50, overdue_ms=-7), max_compaction_lag_ms=LONG_MAX), "ratio 0.500 not above 0.5"),
        (replace(log(dirty=90), is_compacted=False), "cleanup.policy has no compact; ratio 0.900 above 0.5"),
    ],
)
def test_status_words_have_the_numbers(facts: LogFacts, words: str) -> None:
    """R-421: the words `due` has for them, and when the lag will force a round."""
    assert survey([facts], FREE, Order.KAFKA).verdicts[0].words() == words


def test_status_has_the_place_in_the_queue() -> None:
    """First, second, and a requested one."""
    logs = [log(0, dirty=60), log(1, dirty=90), log(2, dirty=10), log(3, dirty=20)]
    found = survey(logs, replace(FREE, requested={logs[3].partition: 1}), Order.KAFKA)
    assert [verdict.place for verdict in found.verdicts] == [3, 2, None, 1]
    assert found.queue[0] is logs[3]
    assert found.verdicts[3].words() == "next: asked for, ratio 0.200 not above 0.5"
    assert found.verdicts[0].words() == "number 3 in the queue: ratio 0.600 above 0.5"


def test_numbers_decide_before_passing_obstacles_do() -> None:
    """A log that is not due is not said to wait for a window."""
    closed = replace(FREE, opens_at_ms=NOW + 90)
    assert survey([log(dirty=10)], closed, Order.KAFKA).verdicts[0].reason is Reason.UNDER_RATIO


def test_unfinished_swap_is_work_for_a_worker() -> None:
    """R-630 to R-632: Kafka settles it when it starts; here the load of a round does."""
    facts = replace(log(dirty=0), unfinished_swap="a swap")
    found = survey([facts, replace(log(1), unfinished_swap="a swap")], FREE, Order.KAFKA)
    assert [verdict.reason for verdict in found.verdicts] == [Reason.UNFINISHED_SWAP, Reason.OVER_RATIO]
    assert found.queue[-1] is facts
    assert found.verdicts[0].words().startswith("number 2 in the queue: a swap; nothing to clean")


@pytest.mark.parametrize(
    ("next_ms", "reason", "words"),
    [
        pytest.param(None, Reason.NOTHING_TO_CLEAN, "", id="not-asked-for"),
        pytest.param(NO_HORIZON, Reason.NOTHING_TO_CLEAN, "", id="no-horizon"),
        pytest.param(NOW + 1, Reason.NOTHING_TO_CLEAN, "; a delete horizon passes in 1 ms", id="not-passed"),
        pytest.param(NOW, Reason.HORIZON_PASSED, "number 2 in the queue: nothing dirty; tombstones", id="passed"),
        pytest.param(0, Reason.HORIZON_PASSED, "number 2 in the queue: nothing dirty; tombstones", id="unknown"),
    ],
)
def test_horizon_that_has_passed_is_work_although_nothing_is_dirty(
    next_ms: int | None, reason: Reason, words: str
) -> None:
    """After all logs that are dirty; the survey is kept until the first horizon passes, and not longer."""
    facts = replace(log(dirty=0), next_horizon_ms=next_ms)
    found = survey([facts, log(1)], FREE, Order.KAFKA)
    assert found.verdicts[0].reason is reason
    assert words in found.verdicts[0].words()
    assert (found.queue[-1] is facts) == (reason is Reason.HORIZON_PASSED)
    later = survey([facts, log(1)], replace(FREE, now_ms=NOW + 1), Order.KAFKA, found).verdicts[0].reason
    assert later is (Reason.HORIZON_PASSED if next_ms == NOW + 1 else reason)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param(log(dirty=0, total=0), Reason.CHECKPOINT_RESET, id="empty"),
        pytest.param(log(dirty=10), Reason.CHECKPOINT_RESET, id="under-ratio"),
        pytest.param(log(), Reason.OVER_RATIO, id="due"),
    ],
)
def test_checkpoint_outside_the_log_is_work_for_a_worker(facts: LogFacts, reason: Reason) -> None:
    """R-405, R-420: Kafka's cleaner sets it right at its next turn, whatever there is to clean."""
    reset = replace(facts, cleanable=replace(facts.cleanable, force_checkpoint=True))
    found = survey([reset, log(1, dirty=51)], FREE, Order.KAFKA)
    assert found.verdicts[0].reason is reason
    assert len(found.queue) == 2
    assert (found.queue[0] is reset) == (reason is Reason.OVER_RATIO)
    assert survey([reset], replace(FREE, opens_at_ms=NOW + 90), Order.KAFKA).queue == ()


@pytest.mark.parametrize(
    ("context", "is_taken"),
    [
        pytest.param(FREE, True, id="free"),
        pytest.param(replace(FREE, is_enabled=False, opens_at_ms=NOW + 9), True, id="no-time-for-rounds"),
        pytest.param(replace(FREE, log_dirs={"/a": LogDirFacts(workers=1, max_workers=1)}), True, id="busy-workers"),
        pytest.param(replace(FREE, retries={log().partition: Retry(1, NOW, NOW + 9, "no room")}), True, id="no-room"),
        pytest.param(replace(FREE, states={log().partition: IN_PROGRESS}), False, id="in-progress"),
        pytest.param(replace(FREE, states={log().partition: PAUSED}), False, id="paused"),
        pytest.param(replace(FREE, quarantined={log().partition: "damaged"}), False, id="quarantined"),
        pytest.param(replace(FREE, log_dirs={"/a": LogDirFacts(DirCondition.OFFLINE)}), False, id="offline"),
        pytest.param(
            replace(FREE, log_dirs={"/a": LogDirFacts(DirCondition.LOCKED, not_before_ms=NOW + 1)}), False, id="locked"
        ),
        pytest.param(replace(FREE, is_paused=True), False, id="all-paused"),
    ],
)
def test_retention_takes_logs_without_a_worker(context: SelectionContext, is_taken: bool) -> None:
    """R-433, R-452; unlike R-712 it does not wait for a worker or a window."""
    old = replace(log(), has_segments_to_delete=True)
    assert deletable([log(1), old], context) == ([old] if is_taken else [])


def test_retention_also_takes_logs_that_are_not_compacted() -> None:
    """R-433: they only must not have any state."""
    old = replace(log(), has_segments_to_delete=True, is_compacted=False)
    assert deletable([old], FREE) == [old]


facts_by_lot = st.builds(
    log,
    number=st.integers(0, 5),
    dirty=st.integers(0, 100),
    overdue_ms=st.none() | st.integers(-20, 20),
    log_dir=st.sampled_from(["/a", "/b"]),
    last_round_ms=st.none() | st.integers(NOW - 40, NOW + 5),
)
partitions_by_lot = st.builds(TopicPartition, st.just("t"), st.integers(0, 5))
circumstances_by_lot = st.builds(
    SelectionContext,
    now_ms=st.just(NOW),
    states=st.dictionaries(partitions_by_lot, st.sampled_from([PAUSED, IN_PROGRESS, ABORTED])),
    log_dirs=st.dictionaries(
        st.sampled_from(["/a", "/b"]),
        st.builds(
            LogDirFacts,
            condition=st.sampled_from(DirCondition),
            not_before_ms=st.integers(NOW - 5, NOW + 5),
            workers=st.integers(0, 2),
            max_workers=st.none() | st.integers(0, 2),
        ),
    ),
    quarantined=st.dictionaries(partitions_by_lot, st.just("damaged")),
    retries=st.dictionaries(partitions_by_lot, st.just(Retry(1, NOW - 5, NOW + 5, "no room"))),
    requested=st.dictionaries(partitions_by_lot, st.integers(1, 9)),
    is_enabled=st.booleans(),
    opens_at_ms=st.none() | st.just(NOW + 9),
)


@given(
    logs=st.lists(facts_by_lot, unique_by=lambda facts: facts.partition),
    context=circumstances_by_lot,
    order=st.sampled_from(Order),
)
def test_survey_never_queues_a_log_that_is_held(logs: list[LogFacts], context: SelectionContext, order: Order) -> None:
    """Each log has one verdict that can be said; the queue holds free logs with something to clean, places in order."""
    found = survey(logs, context, order)
    assert [verdict.partition for verdict in found.verdicts] == [facts.partition for facts in logs]
    assert all(verdict.words() for verdict in found.verdicts)
    placed = sorted((v for v in found.verdicts if v.place is not None), key=lambda verdict: verdict.place or 0)
    assert [v.partition for v in placed] == [facts.partition for facts in found.queue]
    assert [v.place for v in placed] == list(range(1, len(placed) + 1))
    for verdict, facts in zip(placed, found.queue, strict=True):
        assert facts.partition not in context.states
        assert facts.partition not in context.quarantined
        assert context.is_enabled
        assert facts.cleanable.cleanable_bytes > 0
        assert verdict.dueness is not Reason.UNDER_RATIO or facts.partition in context.requested


def as_of(now_ms: int, found: Survey) -> list[CleaningStatus]:
    """Return the verdicts as if all had been judged at a moment."""
    return [replace(verdict.at(now_ms), as_of_ms=now_ms) for verdict in found.verdicts]


@given(
    logs=st.lists(facts_by_lot, unique_by=lambda facts: facts.partition),
    others=st.lists(facts_by_lot, unique_by=lambda facts: facts.partition),
    changed=st.sets(st.integers(0, 5)),
    begin=circumstances_by_lot,
    end=circumstances_by_lot,
    is_all_else=st.booleans(),
    later_ms=st.sampled_from([0, 1, 6, 30]),
    order=st.sampled_from(Order),
)
def test_survey_with_an_earlier_one_equals_a_plain_survey(
    logs: list[LogFacts],
    others: list[LogFacts],
    changed: set[int],
    begin: SelectionContext,
    end: SelectionContext,
    is_all_else: bool,
    later_ms: int,
    order: Order,
) -> None:
    """After any changes: of logs, their obstacles, the time, or none."""
    first = survey(logs, begin, order)
    seen = [facts for facts in logs if facts.partition.partition not in changed]
    there = {facts.partition for facts in seen}
    seen += [facts for facts in others if facts.partition not in there]
    at = replace(end if is_all_else else begin, now_ms=NOW + later_ms)
    again, plain = survey(seen, at, order, first), survey(seen, at, order)
    assert (again.queue, as_of(at.now_ms, again)) == (plain.queue, list(plain.verdicts))
    third, plain = survey(seen, end, order, again), survey(seen, end, order)
    assert (third.queue, as_of(end.now_ms, third)) == (plain.queue, list(plain.verdicts))


def test_survey_judges_only_what_has_changed() -> None:
    """Of thousands of logs a turn finds a few: the others keep the very verdicts they had."""
    logs = [log(number, dirty=10) for number in range(5)]
    first = survey(logs, FREE, Order.DEADLINE)
    logs[1] = log(1, dirty=20)
    at = replace(FREE, now_ms=NOW + 60_000, states={logs[3].partition: PAUSED})
    again = survey(logs, at, Order.DEADLINE, first)
    assert [now is then for now, then in zip(again.verdicts, first.verdicts, strict=True)] == [
        *(True, False, True, False, True)
    ]


@pytest.mark.parametrize("overdue_ms", [7, -60_001])
def test_survey_of_logs_with_a_maximum_lag_is_kept_while_nothing_happens(overdue_ms: int) -> None:
    """Twenty thousand overdue logs are not judged again each turn for being a minute later."""
    logs = [log(number, dirty=10, overdue_ms=overdue_ms) for number in range(5)]
    first = survey(logs, FREE, Order.DEADLINE)
    assert survey(logs, replace(FREE, now_ms=NOW + 60_000), Order.DEADLINE, first) is first


@pytest.mark.parametrize(
    ("facts", "context", "words"),
    [
        pytest.param(log(overdue_ms=7), FREE, "next: over max.compaction.lag.ms by 12 ms", id="overdue"),
        pytest.param(
            log(dirty=10, overdue_ms=-7),
            FREE,
            "ratio 0.100 not above 0.5; over max.compaction.lag.ms in 3 ms",
            id="soon-overdue",
        ),
        pytest.param(
            log(dirty=90),
            replace(FREE, opens_at_ms=NOW + 90),
            "outside cleaner.windows, for 85 ms more; ratio 0.900 above 0.5",
            id="window-closed",
        ),
    ],
)
def test_kept_verdict_counts_its_times_from_the_moment_it_is_shown(
    facts: LogFacts, context: SelectionContext, words: str
) -> None:
    """Five ms later; nothing else of it changes."""
    (verdict,) = survey([facts], context, Order.DEADLINE).verdicts
    assert verdict.at(NOW + 5).words() == words


@given(
    logs=st.lists(facts_by_lot, unique_by=lambda facts: facts.partition),
    order=st.sampled_from(Order),
    held=st.sampled_from([DirCondition.OFFLINE, DirCondition.NEEDS_RECOVERY]),
)
def test_held_log_dir_does_not_affect_the_others(logs: list[LogFacts], order: Order, held: DirCondition) -> None:
    """The queue is that without its logs."""
    without = queue([facts for facts in logs if facts.log_dir != "/a"], order)
    assert queue(logs, order, replace(FREE, log_dirs={"/a": LogDirFacts(held)})) == without


@given(data=st.data(), logs=st.integers(2, 6), rounds=st.integers(1, 30))
def test_overdue_log_waits_for_one_round_of_each_other_at_most(data: st.DataObject, logs: int, rounds: int) -> None:
    """
    In `deadline` order nothing starves that has a deadline.

    Logs are fed without end, with records of any age; each round makes its log overdue again at once, or never mind.
    """
    now_ms = 10_000
    earliest = [data.draw(st.integers(1, now_ms)) for _ in range(logs)]
    last_round: list[int | None] = [None] * logs
    overdue_picks = [0] * logs
    for _ in range(rounds):
        facts = [
            replace(log(n), earliest_dirty_timestamp_ms=earliest[n], last_round_ms=last_round[n]) for n in range(logs)
        ]
        found = survey(facts, SelectionContext(now_ms), Order.DEADLINE)
        for number, verdict in enumerate(found.verdicts):
            overdue_picks[number] += verdict.reason is Reason.OVERDUE
        picked = found.queue[0].partition.partition
        overdue_picks[picked] = 0
        assert max(overdue_picks) < logs
        now_ms += data.draw(st.integers(1, 2_000))
        last_round[picked] = now_ms
        earliest[picked] = data.draw(st.integers(1, now_ms))
