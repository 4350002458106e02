"""The table of a tree's life is whole, and names who decides."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

import pytest

from sparkbolt.api.tree_life import ENDS, TRANSITIONS, Transition, TreeState, may_become

ENDED = {TreeState.ACKED, TreeState.VOID, TreeState.RETRIED, TreeState.GIVEN_UP, TreeState.RETURNED}


def test_every_state_is_reachable_from_the_first_and_leads_to_an_end() -> None:
    reached: set[TreeState | None] = {None}
    while True:
        more = {step.after for step in TRANSITIONS if step.before in reached}
        if more <= reached:
            break
        reached |= more
    assert reached == {None, *TreeState} - {TreeState.UNKNOWN}
    assert ENDS - {TreeState.UNKNOWN} == ENDED
    assert not any(step.before in ENDED for step in TRANSITIONS)


@pytest.mark.parametrize("step", TRANSITIONS, ids=lambda step: f"{step.before}-{step.after}")
def test_a_step_names_existing_code(step: Transition) -> None:
    parts = step.where.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            module = import_module(f"sparkbolt.{'.'.join(parts[:cut])}")
        except ModuleNotFoundError:
            continue
        assert callable(attrgetter(".".join(parts[cut:]))(module))
        return
    raise AssertionError(step.where)


def test_ended_tree_stays_ended() -> None:
    for end in ENDED:
        assert not any(may_become(end, state) for state in TreeState if state != end)
    assert not may_become(TreeState.BEGUN, TreeState.FAILED), "it has failed before it was failing"
