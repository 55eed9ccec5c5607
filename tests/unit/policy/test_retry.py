"""When a log that failed is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.policy.retry import Retry, RetryDelays, after_failure

DELAYS = RetryDelays(first_ms=15_000, limit_ms=100_000)


@pytest.mark.parametrize(
    ("failures", "delay_ms"),
    [(1, 15_000), (2, 30_000), (3, 60_000), (4, 100_000), (5, 100_000), (10**9, 100_000)],
)
def test_delay_doubles_with_each_failure_up_to_the_limit(failures: int, delay_ms: int) -> None:
    """The same count always gives the same delay."""
    assert DELAYS.after(failures) == delay_ms


def test_failures_in_a_row_count_and_a_success_forgets_them() -> None:
    """What is passed as previous is None after a success."""
    first = after_failure(None, 1_000, "no room", DELAYS)
    assert first == Retry(1, 1_000, 16_000, "no room")
    second = after_failure(first, 20_000, "I/O error", DELAYS)
    assert second == Retry(2, 20_000, 50_000, "I/O error")
    assert after_failure(None, 90_000, "no room", DELAYS).failures == 1


@pytest.mark.parametrize(
    ("now_ms", "remaining_ms"),
    [
        pytest.param(1_000, 15_000, id="at-the-failure"),
        pytest.param(15_999, 1, id="a-moment-before"),
        pytest.param(16_000, 0, id="at-the-end"),
        pytest.param(50_000, 0, id="long-after"),
        pytest.param(999, 0, id="clock-set-back"),
    ],
)
def test_retry_waits_until_its_moment(now_ms: int, remaining_ms: int) -> None:
    """A clock set back to before the failure does not prolong the wait."""
    assert after_failure(None, 1_000, "no room", DELAYS).remaining_ms(now_ms) == remaining_ms


@pytest.mark.parametrize(("first_ms", "limit_ms"), [(0, 10), (-1, 10), (11, 10)])
def test_delays_out_of_order_are_refused(first_ms: int, limit_ms: int) -> None:
    """A delay of nothing would be a busy loop."""
    with pytest.raises(ValueError, match=f"delays of {first_ms} to {limit_ms} ms"):
        RetryDelays(first_ms, limit_ms)


def test_delay_without_a_failure_is_refused() -> None:
    """There is nothing to wait for."""
    with pytest.raises(ValueError, match="0 failures"):
        DELAYS.after(0)


@given(
    first_ms=st.integers(1, 10**9), more_ms=st.integers(0, 10**18), failures=st.lists(st.integers(1, 200), min_size=2)
)
def test_delays_never_shrink_and_stay_within_their_bounds(first_ms: int, more_ms: int, failures: list[int]) -> None:
    """However many failures there were."""
    delays = RetryDelays(first_ms, first_ms + more_ms)
    found = [delays.after(count) for count in sorted(failures)]
    assert found == sorted(found)
    assert all(first_ms <= delay <= first_ms + more_ms for delay in found)
