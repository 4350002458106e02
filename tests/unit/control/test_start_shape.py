"""How a topology starts after a rebalance: decided, taken back, and not tried for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkbolt import Topology
from sparkbolt.api.keyed_state import refusal
from sparkbolt.control.books import EVENTS_FILE, events_in
from sparkbolt.control.intent import CONTROL_FILE, Intent, Scale
from sparkbolt.control.start_shape import STARTS_MAX, StartShape, note_try, remember, shape_of_start
from sparkbolt.driver.ledger.generations import Generations
from sparkbolt.driver.transition import transition
from sparkbolt.files.memory import MemoryFiles
from tests.unit.driver.test_transition import CountDict, CountState, topology

FIRST = transition(topology(), 2, (), -1, refusal).generations
"""Those of a topology whose bolt ``count`` has 2 tasks."""


def shape(intent: Intent, own: Topology | None = None, known: Generations = FIRST, last: int = 4) -> StartShape:
    return shape_of_start(own or topology(), intent, 2, known, last)


def test_a_rebalance_decides_what_a_start_moves_and_nothing_else() -> None:
    intent = Intent().rebalance(Scale({"count": 5}))
    begun = shape(intent)
    assert [step.needs_decision for step in begun.started.steps] == [True]
    assert begun.is_decided
    way_back = begun.before(topology())
    assert way_back is not None
    assert (way_back[0].components["count"].parallelism, way_back[1]) == (2, None)
    changed = topology(another=CountDict())  # a bolt with state that is gone again needs a decision of its own
    with_another = transition(changed, 2, (), -1, refusal).generations
    assert not shape(intent, known=with_another).is_decided
    assert not shape(Intent(executors={"count": 5})).is_decided, "numbers that are old"


def test_a_rebalance_is_taken_back_until_something_is_committed_with_it() -> None:
    before = Intent(executors={"count": 3}, spark_partitions=4)
    intent = before.rebalance(Scale({"count": 5})).rebalance(Scale({"count": 7}, 8))
    assert intent.taken_back() == before
    assert intent.rebalance(Scale({"count": 3}, 4)) == before, "the same numbers as before"
    assert Intent.loads(intent.dumps()) == intent
    begun = shape(intent)
    known, base = begun.started.generations, begun.started.generations[-1].base
    assert shape(intent, known=known, last=base - 1).intent.before == Scale({"count": 3}, 4)
    settled = shape(intent, known=known, last=base)
    assert (settled.intent, settled.is_decided) == (replace(intent, before=None), False)
    assert settled.before(topology()) is None
    assert [str(step) for step in settled.started.steps] == []


def test_a_rebalance_with_which_nothing_is_ever_committed_is_given_up() -> None:
    files = MemoryFiles()
    files.write(CONTROL_FILE, Intent().rebalance(Scale({"count": 5})).dumps())
    known, tasks = FIRST, []
    for _ in range(STARTS_MAX + 2):
        intent = Intent.loads(files.read(CONTROL_FILE))
        begun = shape(intent, known=known)
        remember(files, intent, begun)
        known = begun.started.generations
        note_try(files, begun)
        tasks.append(len(begun.started.lane.topology.tasks("count")))
    assert tasks == [5] * STARTS_MAX + [2, 2]
    assert [one.number for one in known] == [0]
    assert Intent.loads(files.read(CONTROL_FILE)) == Intent()
    [event] = events_in(files.read(EVENTS_FILE) or b"")
    assert event["kind"] == "rebalance failed"
    assert "3 starts have ended before anything was committed with it" in event["text"]


def test_the_numbers_and_settings_of_a_component_stay_when_it_is_renamed() -> None:
    intent = Intent(executors={"count": 3}).with_setting("max-spout-pending", "count", 10)
    known = shape(replace(intent, executors={"count": 2})).started.generations
    begun = shape(intent, topology(CountState(), 1, id_="tally"), known)
    assert begun.intent.executors == {"count": 3, "tally": 3}
    assert begun.intent.settings["max-spout-pending"] == {"count": 10, "tally": 10}
    later = replace(begun.intent, executors={"count": 9, "tally": 4}).also_called({"count": "tally"})
    assert later.executors == {"count": 9, "tally": 4}, "the newer name counts"


def test_a_number_in_the_code_that_a_rebalance_overrules_is_named() -> None:
    intent = Intent(executors={"count": 2, "show": 1})
    assert shape(intent).overruled == ()
    assert shape(intent, topology(CountState(), 5)).overruled == (
        "bolt 'count' has 2 tasks since a rebalance, and 5 in the code: `sparkbolt rebalance --reset` goes back to the "
        "code's",
    )


@pytest.mark.parametrize("starts", [0, 2])
def test_a_rebalance_that_is_changed_is_tried_anew(starts: int) -> None:
    intent = Intent().rebalance(Scale({"count": 5}))
    for _ in range(starts):
        intent = intent.tried()
    assert intent.before == Scale(starts=starts)
    assert intent.rebalance(Scale({"count": 6})).before == Scale()
