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
def test_ended_topology_does_not_run_again(state: TopologyState) -> None:
    assert not state.runs
    assert set(TRANSITIONS[state].values()) <= {state}


@pytest.mark.parametrize("state", [state for state in STATES if state.runs])
def test_every_running_state_can_be_killed_fail_and_end(state: TopologyState) -> None:
    ends = {
        event: TRANSITIONS[state][event] for event in (LifecycleEvent.KILL, LifecycleEvent.FAIL, LifecycleEvent.END)
    }
    assert list(ends.values()) == [TopologyState.KILLED, TopologyState.FAILED, TopologyState.ENDED]


@pytest.mark.parametrize("state", [TopologyState.DRAINING, TopologyState.KILLED])
def test_ending_topology_neither_emits_again_nor_restarts_on_request_and_its_query_may_fail(
    state: TopologyState,
) -> None:
    assert LifecycleEvent.ACTIVATE not in TRANSITIONS[state]
    assert LifecycleEvent.RESTART not in TRANSITIONS[state]
    assert TRANSITIONS[state][LifecycleEvent.QUERY_FAILS] is state


def test_a_restart_keeps_the_reason_and_whether_it_was_ordered() -> None:
    lifecycle = Lifecycle()
    assert lifecycle.restart(3, "restarted by alice", ordered=True)
    assert (lifecycle.state, lifecycle.trouble) == (TopologyState.RESTARTING, None)
    assert lifecycle.restarts_on_order(3)
    assert lifecycle.restart(4, "ValueError: a query may end", ordered=False)
    assert (lifecycle.why_restarted, lifecycle.restarts_on_order(4)) == ("ValueError: a query may end", False)
    assert lifecycle.trouble == "its query failed and is being started again: ValueError: a query may end"
    lifecycle.runs(5)
    assert (lifecycle.has_run, lifecycle.state) == (True, TopologyState.RESTARTING), "the micro-batch may fail again"
    lifecycle.works(5)
    assert (lifecycle.state, lifecycle.trouble) == (TopologyState.ACTIVE, None)


def test_report_of_a_life_after_its_end_changes_nothing() -> None:
    lifecycle = Lifecycle()
    lifecycle.restart(0, "restarted by alice", ordered=True)
    lifecycle.works(0)
    assert (lifecycle.state, lifecycle.has_run) == (TopologyState.RESTARTING, False)


def test_a_topology_works_when_its_spouts_are_open_and_spark_has_run_a_micro_batch() -> None:
    lifecycle = Lifecycle()
    lifecycle.opening.append("a[0]")
    lifecycle.runs(0)
    assert lifecycle.state is TopologyState.STARTING
    lifecycle.opened("a[0]")
    assert lifecycle.state is TopologyState.ACTIVE
    lifecycle.on(LifecycleEvent.DEACTIVATE)
    lifecycle.on(LifecycleEvent.ACTIVATE)
    assert lifecycle.state is TopologyState.ACTIVE, "it still works"


def test_last_command_holds_after_a_restart_and_an_ending_topology_emits_nothing() -> None:
    lifecycle = Lifecycle()
    lifecycle.on(LifecycleEvent.DEACTIVATE)
    lifecycle.restart(0, "ValueError", ordered=False)
    lifecycle.works(1)
    assert (lifecycle.state, lifecycle.emits) == (TopologyState.INACTIVE, False)
    lifecycle.on(LifecycleEvent.ACTIVATE)
    assert lifecycle.emits
    lifecycle.fail("the disk is full")
    lifecycle.on(LifecycleEvent.ACTIVATE)
    assert not lifecycle.emits


def test_first_failure_and_first_kill_persist_and_a_later_kill_can_only_shorten_the_time() -> None:
    lifecycle = Lifecycle()
    assert lifecycle.kill("killed by alice", 100.0)
    for until_s in (200.0, 50.0):
        assert not lifecycle.kill("killed by bob", until_s)
    assert lifecycle.killed is not None
    assert (lifecycle.killed.why, lifecycle.killed.until_s) == ("killed by alice", 50.0)
    for why in ("the disk is full", "the session is gone"):
        lifecycle.fail(why)
    lifecycle.on(LifecycleEvent.END)
    assert (lifecycle.state, lifecycle.failure) == (TopologyState.FAILED, "the disk is full")
    assert not lifecycle.kill("killed by carol", 1.0)
