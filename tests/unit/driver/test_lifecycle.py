"""The states of a topology, and what changes them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import sparkbolt
from sparkbolt.driver.lifecycle import TRANSITIONS, Lifecycle, LifecycleEvent, TopologyState

STATES = [state for state in TopologyState if state is not TopologyState.DEAD]
DOCS = Path(sparkbolt.__path__[0]).parent / "docs" / "operating.md"


def after(*events: LifecycleEvent) -> TopologyState:
    lifecycle = Lifecycle()
    for event in events:
        lifecycle.on(event)
    return lifecycle.state


def test_each_state_but_that_of_a_dead_process_can_be_reached() -> None:
    reached = {after(*events) for events in itertools.product(LifecycleEvent, repeat=2)}
    assert reached == set(STATES)


def test_each_state_is_in_the_table_and_on_the_page_for_operators() -> None:
    page = DOCS.read_text()
    assert set(TRANSITIONS) == set(TopologyState)
    assert [state for state in TopologyState if f"| `{state}` |" not in page] == []


@pytest.mark.parametrize("state", [TopologyState.ENDED, TopologyState.FAILED, TopologyState.DEAD])
def test_what_has_ended_does_not_run_again(state: TopologyState) -> None:
    assert not state.runs
    assert set(TRANSITIONS[state].values()) <= {state}


@pytest.mark.parametrize("state", [state for state in STATES if state.runs])
def test_whatever_runs_can_be_killed_fail_and_end(state: TopologyState) -> None:
    ends = {
        event: TRANSITIONS[state][event] for event in (LifecycleEvent.KILL, LifecycleEvent.FAIL, LifecycleEvent.END)
    }
    assert list(ends.values()) == [TopologyState.KILLED, TopologyState.FAILED, TopologyState.ENDED]


@pytest.mark.parametrize("state", [TopologyState.DRAINING, TopologyState.KILLED])
def test_what_is_ending_neither_emits_again_nor_restarts_on_order_and_its_query_may_fail(state: TopologyState) -> None:
    assert LifecycleEvent.ACTIVATE not in TRANSITIONS[state]
    assert LifecycleEvent.RESTART not in TRANSITIONS[state]
    assert TRANSITIONS[state][LifecycleEvent.QUERY_FAILS] is state


def test_a_restart_keeps_the_reason_and_the_life_that_ended() -> None:
    lifecycle, life = Lifecycle(), object()
    assert lifecycle.on_restart(life, "restarted by alice", asked=True)
    assert (lifecycle.state, lifecycle.restarted, lifecycle.asked_to_restart) == (TopologyState.RESTARTING, life, True)
    assert lifecycle.on_restart(life, "ValueError: a query may end", asked=False)
    assert (lifecycle.why_restarted, lifecycle.asked_to_restart) == ("ValueError: a query may end", False)
    assert after(LifecycleEvent.RESTART, LifecycleEvent.WORKS) is TopologyState.ACTIVE


def test_the_first_failure_and_the_first_kill_stay_and_a_later_kill_may_only_shorten_the_time() -> None:
    lifecycle = Lifecycle()
    assert lifecycle.on_kill("killed by alice", 100.0)
    for until_s in (200.0, 50.0):
        assert not lifecycle.on_kill("killed by bob", until_s)
    assert lifecycle.kill is not None
    assert (lifecycle.kill.why, lifecycle.kill.until_s) == ("killed by alice", 50.0)
    for why in ("the disk is full", "the session is gone"):
        lifecycle.on_failure(why)
    lifecycle.on(LifecycleEvent.END)
    assert (lifecycle.state, lifecycle.failure) == (TopologyState.FAILED, "the disk is full")
    assert not Lifecycle.on_kill(lifecycle, "killed by carol", 1.0)
