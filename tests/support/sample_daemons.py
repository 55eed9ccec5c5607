"""
Snapshots of whole daemons for tests of output: at work, with problems, with thousands of logs, hostile.

They are the same every time, so screenshots of them can be compared.
"""

from __future__ import annotations

import random
from dataclasses import replace

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import LogView, ServiceSnapshot
from cleaner.policy.reasons import Reason
from cleaner.policy.selection_context import DirCondition
from tests.support.snapshots import (
    DAY_MS,
    GB,
    HOUR_MS,
    LOG_DIR,
    MB,
    MINUTE_MS,
    NOW_MS,
    config,
    job,
    log,
    log_dir,
    quarantined,
    retry,
    round_of,
    snapshot,
    throttle,
    topic_totals,
    worker,
)

SECOND_DIR = "/mnt/disk2/kafka"
THIRD_DIR = "/mnt/disk3/kafka"

# The worst content of a topic name or an error; no output may contain it unescaped.
HOSTILE_TOPIC = "<script>alert('x')</script>\"'&\n{evil=\"1\"} 9\n# HELP x\x1b[31m"
HOSTILE_WORDS = "</title></svg><img src=x onerror=alert(1)>\r\nSet-Cookie: a=b\x00\x1b]0;x\x07"


def at_work() -> ServiceSnapshot:
    """Three logs: one being cleaned, one due, one with nothing to clean."""
    orders = TopicPartition("orders", 0)
    return snapshot(
        (
            log("clicks", 0, clean_bytes=310 * MB, dirty_bytes=0, active_bytes=48 * MB, policy="compact,delete"),
            log(
                "orders",
                0,
                reason=Reason.IN_PROGRESS,
                verdict_fields={"detail": "cleaner-0"},
                clean_bytes=180 * MB,
                dirty_bytes=620 * MB,
            ),
            log("users", 0, clean_bytes=420 * MB, dirty_bytes=510 * MB, uncleanable_bytes=120 * MB),
        ),
        workers=(worker(0, orders), worker(1)),
        log_dirs=(log_dir(partitions=3, workers=1),),
        throttle=throttle(50e6, waited_seconds=812.4),
        rounds=tuple(
            round_of(
                TopicPartition(topic, 0),
                ended_ms=NOW_MS - ago * MINUTE_MS,
                bytes_read=read * MB,
                bytes_written=written * MB,
                seconds=read / 90,
            )
            for topic, ago, read, written in (
                ("clicks", 3, 790, 310),
                ("orders", 31, 640, 180),
                ("users", 48, 980, 420),
                ("clicks", 95, 610, 290),
                ("orders", 140, 505, 171),
            )
        ),
    )


def with_problems() -> ServiceSnapshot:
    """Ten logs in three log dirs: a failed disk, one in use, two quarantined logs, retries, a pause, a bad reload."""
    ledger = TopicPartition("ledger", 2)
    logs = (
        log("accounts", 0, reason=Reason.OVERDUE, clean_bytes=2 * GB, dirty_bytes=300 * MB),
        log("accounts", 1, reason=Reason.RETRY_LATER, verdict_fields={"count": 3, "detail": retry().cause}),
        log("audit", 0, policy="delete", verdict=None, why="cleanup.policy is delete: retention only"),
        log("clicks", 0, log_dir=SECOND_DIR, reason=Reason.LOG_DIR_OFFLINE, verdict_fields={"detail": "EIO"}),
        log("invoices", 0, reason=Reason.PAUSED, verdict_fields={"count": 1}, dirty_bytes=900 * MB),
        log("ledger", 2, reason=Reason.QUARANTINED, verdict_fields={"detail": quarantined().reason}),
        log("orders", 0, log_dir=THIRD_DIR, reason=Reason.LOG_DIR_LOCKED, dirty_bytes=800 * MB),
        log("orders", 1, reason=Reason.IN_PROGRESS, clean_bytes=180 * MB, dirty_bytes=620 * MB),
        log("payments", 7, reason=Reason.QUARANTINED, verdict_fields={"detail": "segments overlap"}),
        log("sessions", 0, sections=None, verdict=None, why="cannot be read", error="Permission denied"),
    )
    rounds = (
        round_of(TopicPartition("orders", 3), ended_ms=NOW_MS - MINUTE_MS),
        round_of(TopicPartition("accounts", 1), result="retry", detail=retry().cause, bytes_read=0, bytes_written=0),
        round_of(ledger, result="quarantined", detail=quarantined().reason, bytes_read=0, bytes_written=0),
    )
    return snapshot(
        logs,
        workers=(
            worker(0, TopicPartition("orders", 1), phase="map", remaining_seconds=None),
            worker(1, TopicPartition("invoices", 0), is_stopping=True),
        ),
        worker_deaths=1,
        log_dirs=(
            log_dir(partitions=7, workers=2, free_bytes=3 * GB, uncleanable_partitions=2, uncleanable_bytes=5 * GB),
            log_dir(
                SECOND_DIR,
                condition=DirCondition.OFFLINE,
                detail="Input/output error reading cleaner-offset-checkpoint",
                since_ms=NOW_MS - 20 * MINUTE_MS,
                free_bytes=None,
                total_bytes=None,
                looked_at_ms=NOW_MS - 21 * MINUTE_MS,
            ),
            log_dir(THIRD_DIR, condition=DirCondition.LOCKED, detail="held by process 4711", partitions=1),
        ),
        quarantine=(
            quarantined(),
            quarantined(
                TopicPartition("payments", 7),
                reason="segments overlap: 2000 lies below the end of the segment before",
                kind="CorruptLogError",
                position=None,
                file=None,
                since_ms=NOW_MS - 2 * DAY_MS,
            ),
        ),
        retries={TopicPartition("accounts", 1): retry()},
        jobs=(
            job(7, TopicPartition("orders", 1), state="running", progress=0.36),
            job(6, ledger, state="failed", ended_ms=NOW_MS - HOUR_MS, detail="in quarantine"),
            job(5, TopicPartition("accounts", 0), state="done", ended_ms=NOW_MS - 2 * HOUR_MS, progress=1.0),
        ),
        rounds=rounds,
        pauses=("invoices",),
        opens_at_ms=NOW_MS + 3 * HOUR_MS,
        is_progressing=False,
        stuck=("cleaner-1 has moved nothing for 6 minutes (invoices-0)",),
        config=config(
            is_last_reload_good=False,
            errors=("log.cleaner.threads=zero: not a number; allowed: 1 to 64",),
            needs_restart=("log.dirs",),
        ),
        throttle=throttle(20e6, waited_seconds=5000.0, log_dirs={SECOND_DIR: 5e6}),
        waiting_removals=4,
    )


def with_many_logs(count: int = 5000) -> ServiceSnapshot:
    """Return `count` logs of a tenth as many topics in four log dirs, a few of them due."""
    random_ = random.Random(5)
    dirs = (LOG_DIR, SECOND_DIR, THIRD_DIR, "/mnt/disk4/kafka")
    logs = [_some_log(random_, f"topic-{number // 10:04d}", number % 10, dirs[number % 4]) for number in range(count)]
    logs[0] = log("topic-0000", 0, reason=Reason.IN_PROGRESS, clean_bytes=300 * MB, dirty_bytes=700 * MB)
    topics = sorted({view.partition.topic for view in logs})
    return snapshot(
        logs,
        workers=(worker(0, logs[0].partition), worker(1)),
        topics={topic: topic_totals() for topic in topics},
        turn_seconds=0.31,
        open_files=97,
        rounds=tuple(
            round_of(random_.choice(logs).partition, ended_ms=NOW_MS - number * MINUTE_MS) for number in range(1, 60)
        ),
    )


def hostile() -> ServiceSnapshot:
    """Every text contains markup, quotes, line ends, terminal codes and NUL."""
    hostile_partition = TopicPartition(HOSTILE_TOPIC, 0)
    words = HOSTILE_WORDS
    return snapshot(
        (
            log(HOSTILE_TOPIC, 0, log_dir=words, why=words, policy=words, policy_origin=words, warnings=(words,)),
            log(HOSTILE_TOPIC, 1, log_dir=words, sections=None, verdict=None, why=words, error=words),
        ),
        version=words,
        workers=(replace(worker(0, hostile_partition), name=words, phase=words),),
        log_dirs=(log_dir(words, condition=DirCondition.OFFLINE, detail=words),),
        quarantine=(quarantined(hostile_partition, log_dir=words, reason=words, kind=words, file=words),),
        retries={hostile_partition: retry(cause=words)},
        jobs=(job(1, hostile_partition, state=words, detail=words),),
        rounds=(
            round_of(hostile_partition, log_dir=words, result=words, detail=words, worker=words, removed={words: 1}),
        ),
        pauses=(words,),
        is_progressing=False,
        stuck=(words,),
        config=config(file=words, is_last_reload_good=False, errors=(words,), values=((words, words, words),)),
        topics={HOSTILE_TOPIC: topic_totals(rounds={words: 1}, removed={words: 1})},
        state=words,
    )


def _some_log(random_: random.Random, topic: str, number: int, log_dir_path: str) -> LogView:
    clean_bytes = int(random_.lognormvariate(5, 1.2) * MB)
    ratio = random_.random() ** 3
    return log(
        topic,
        number,
        log_dir=log_dir_path,
        clean_bytes=clean_bytes,
        dirty_bytes=int(clean_bytes * ratio / (1.02 - ratio)) if random_.random() < 0.7 else 0,
        uncleanable_bytes=random_.choice((0, 0, 40 * MB)),
        active_bytes=random_.randrange(1, 100) * MB,
    )
