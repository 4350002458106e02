"""The policy of retries: how often, and after which waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt import RetryPolicy
from sparkbolt.api.retry import at_once
from sparkbolt.base.codec import decode, encode
from sparkbolt.errors import ConfigError

MS = timedelta(milliseconds=1)


def test_waits_double_from_the_first_failure_up_to_the_longest() -> None:
    policy = RetryPolicy(min_backoff=50 * MS, max_backoff=350 * MS, jitter=0)
    assert [policy.delay_ms(failures, 7) for failures in range(1, 7)] == [50, 100, 200, 350, 350, 350]


@pytest.mark.parametrize("failures", [1, 62, 63, 64, 65, 10_000])
def test_a_wait_stays_bounded_after_any_number_of_failures(failures: int) -> None:
    assert RetryPolicy(jitter=0).delay_ms(failures, 7) <= 30_000
    assert at_once(3).delay_ms(failures, 7) == 0


@given(
    failures=st.integers(1, 100), key=st.integers(0, 2**64 - 1), jitter=st.floats(0, 1), least=st.integers(0, 10_000)
)
def test_chance_takes_at_most_its_share_and_is_drawn_from_the_tree(
    failures: int, key: int, jitter: float, least: int
) -> None:
    policy = RetryPolicy(min_backoff=least * MS, max_backoff=60_000 * MS, jitter=jitter)
    whole = RetryPolicy(min_backoff=least * MS, max_backoff=60_000 * MS, jitter=0).delay_ms(failures, key)
    delay = policy.delay_ms(failures, key)
    assert whole * (1 - jitter) - 1 <= delay <= whole
    assert delay == decode(RetryPolicy, encode(policy)).delay_ms(failures, key)


def test_messages_that_failed_together_are_not_retried_together() -> None:
    policy = RetryPolicy(min_backoff=1000 * MS, jitter=0.5)
    delays = [policy.delay_ms(1, key) for key in range(1000)]
    assert len(set(delays)) > 300
    assert 700 < sum(delays) / len(delays) < 800
    assert [policy.delay_ms(1, key) for key in range(1000)] == delays


def test_a_message_is_retried_as_often_as_the_policy_allows() -> None:
    assert [RetryPolicy(max_retries=2).allows(failures) for failures in (1, 2, 3)] == [True, True, False]
    assert not RetryPolicy(max_retries=0).allows(1)
    assert RetryPolicy().allows(10**9)
    assert [at_once(2).allows(failures) for failures in (1, 2)] == [True, False]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"max_retries": -1}, "max_retries=-1: expected a whole number of at least 0, or None"),
        ({"min_backoff": 2 * MS, "max_backoff": MS}, "expected at least min_backoff"),
        ({"jitter": "0.5"}, "jitter='0.5': expected a share from 0 to 1"),
    ],
)
def test_a_nonsensical_policy_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        RetryPolicy(**wrong)
