"""The jobs of `cleaner now`."""

from __future__ import annotations

from cleaner.base.model import TopicPartition
from cleaner.daemon.jobs import CANCELLED, DONE, FAILED, QUEUED, RUNNING, JobBook

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
UID = 7


def test_job_goes_from_queued_over_running_to_done() -> None:
    """Each with its time, and with what the round said."""
    book = JobBook(kept=5)
    job = book.add(A, UID, 100)
    assert (job.state, book.requested()) == (QUEUED, {A: 1})
    book.begin(A)
    book.advance(A, 0.25)
    running = book.find(1)
    assert running is not None
    assert (running.state, running.progress, book.requested()) == (RUNNING, 0.25, {})
    book.end(A, DONE, "freed 5 bytes", 200)
    done = book.find(1)
    assert done is not None
    assert (done.state, done.ended_ms, done.progress, done.detail) == (DONE, 200, 1.0, "freed 5 bytes")


def test_second_request_for_a_partition_is_the_first_one() -> None:
    """Until that has ended; then it is another job."""
    book = JobBook(kept=5)
    first = book.add(A, UID, 100)
    assert book.add(A, UID + 1, 101) == first
    book.end(A, FAILED, "x", 102)
    assert book.add(A, UID, 103).id == 2


def test_requests_keep_their_order() -> None:
    """The numbers decide who is first."""
    book = JobBook(kept=5)
    book.add(B, UID, 1)
    book.add(A, UID, 1)
    assert book.requested() == {B: 1, A: 2}


def test_round_that_was_done_before_it_noticed_is_done() -> None:
    """A cancelled job whose round ended well is no lie either way."""
    book = JobBook(kept=5)
    book.add(A, UID, 1)
    book.begin(A)
    assert book.cancel(1, 2) is True
    assert book.is_cancelled(A)
    book.end(A, DONE, "", 3)
    found = book.find(1)
    assert found is not None
    assert found.state == DONE


def test_cancelled_round_that_fails_is_cancelled() -> None:
    """What it failed with is kept as the detail."""
    book = JobBook(kept=5)
    book.add(A, UID, 1)
    book.begin(A)
    book.cancel(1, 2)
    book.end(A, FAILED, "cancelled before it began", 3)
    found = book.find(1)
    assert found is not None
    assert (found.state, found.detail) == (CANCELLED, "cancelled before it began")


def test_job_whose_log_dir_was_locked_waits_again() -> None:
    """It says why."""
    book = JobBook(kept=5)
    book.add(A, UID, 1)
    book.begin(A)
    book.requeue(A, "in use")
    found = book.find(1)
    assert found is not None
    assert (found.state, found.detail, found.progress) == (QUEUED, "in use", 0.0)


def test_only_so_many_ended_jobs_are_remembered() -> None:
    """Nothing grows for years; open jobs are never forgotten."""
    book = JobBook(kept=2)
    book.add(B, UID, 0)
    for number in range(5):
        book.add(A, UID, number)
        book.end(A, DONE, "", number)
    assert [view.id for view in book.views()] == [6, 5, 1]
    assert book.find(2) is None


def test_progress_without_a_job_is_ignored() -> None:
    """Most rounds were not asked for."""
    book = JobBook(kept=2)
    book.begin(A)
    book.advance(A, 0.5)
    book.end(A, DONE, "", 1)
    assert book.views() == ()
