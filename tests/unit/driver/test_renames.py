"""How a topology goes on whose components have other ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from sparkbolt import Committer, Config, Topology, TopologyBuilder
from sparkbolt.api.keyed_state import refusal
from sparkbolt.driver.transition import transition
from sparkbolt.errors import InvalidTopology
from sparkbolt.sim.engine import LocalEngine
from tests.unit.driver.test_transition import (
    KEYS,
    CountDict,
    CountState,
    Numbers,
    Run,
    Show,
    begun,
    said,
    topology,
)


def test_a_bolt_that_is_renamed_goes_on_with_its_state() -> None:
    run = Run(topology())
    run.steps(3)
    run.engine.restart(topology(id_="tally"))
    run.steps(3)
    assert run.engine.ledger.metrics.of("tally").executed == 60
    run.engine.restart(topology(id_="tally"))
    run.finish()


class Outside(Committer):
    """Writes into what is outside of all drivers, each txid once for each id; dies while ``TARGET`` says so."""

    def begin(self, context: Any) -> None:
        self.name = context.component

    def commit(self, txid: int, rows: Sequence[Any]) -> None:
        if TARGET["dies"] == "before":
            raise OSError("the driver dies")
        TARGET.setdefault((self.name, txid), [row["n"] for row in rows])
        if TARGET["dies"] == "after":
            raise OSError("the driver dies, and has not noted that the rows are outside")


TARGET: dict[Any, Any] = {}


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("dies", ["before", "after"])
def test_rows_that_are_not_outside_yet_are_committed_once_by_their_committer_with_another_id(
    transactional: bool, dies: str
) -> None:
    def built(id_: str, tasks: int, old: str | None = None) -> Topology:
        builder = TopologyBuilder("rows", Config(transactional=transactional))
        builder.set_spout("numbers", Numbers(60))
        builder.set_bolt(id_, Outside(), tasks, renamed_from=old).shuffle_grouping("numbers")
        return builder.build()

    TARGET.clear()
    TARGET["dies"] = None
    engine = LocalEngine(built("out", 2))
    engine.step()
    TARGET["dies"] = dies
    with pytest.raises(OSError, match="the driver dies"):
        engine.step()
    TARGET["dies"] = None
    engine.restart(built("sink", 1, "out"))
    for _ in range(20):
        engine.now_ms += 1000
        engine.step()
    engine.close()
    del TARGET["dies"]
    names = {txid: name for name, txid in TARGET}
    assert len(names) == len(TARGET), "each txid once"
    assert [names[txid] for txid in (1, 2, 3)] == ["out", "out", "sink"], "rows of before, as the one that it was"
    rows = [n for rows in TARGET.values() for n in rows]
    assert Counter(rows) == Counter(number % KEYS for number in range(60))
    assert engine.ledger.metrics.of("numbers").acked == 60


def test_a_component_that_seems_to_be_renamed_is_asked_about() -> None:
    known, last = begun(topology())
    builder = TopologyBuilder("changing")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("tally", CountState(), 5).fields_grouping("numbers", ["n"])
    builder.set_bolt("show", Show()).shuffle_grouping("tally")
    gone, *_ = transition(builder.build(), 2, known, last, refusal).decisions
    assert gone.why.endswith("if 'tally' is its new name, declare that with renamed_from='count'")


def test_a_rename_with_which_nothing_was_committed_is_known_to_the_next_change() -> None:
    def built(id_: str, old: str | None = None, **more: Any) -> Topology:
        builder = TopologyBuilder("changing")
        builder.set_spout("numbers", Numbers())
        builder.set_bolt(id_, CountState(), 2, renamed_from=old).fields_grouping("numbers", ["n"])
        for name, bolt in more.items():
            builder.set_bolt(name, bolt).global_grouping("numbers")
        return builder.build()

    known, last = begun(built("count"))
    idle = transition(built("tally", "count"), 2, known, last, refusal).generations
    assert [one.number for one in idle] == [0, 1]
    later = transition(built("tally", another=CountDict()), 2, idle, last, refusal)
    assert "bolt 'tally' goes on: it was called 'count'" in said(later)
    assert not later.decisions
    chain = transition(built("third", "tally"), 2, idle, last, refusal)
    assert said(chain) == ["bolt 'third' goes on: it was called 'count'"]
    again = transition(built("third", another=CountDict()), 2, chain.generations, last, refusal)
    assert again.generations[-1].renamed == {"count": "third"}
    assert again.generations[-1].numbering.tasks["third"] == known[0].numbering.tasks["count"]
    back = transition(built("count"), 2, idle, last, refusal)
    assert (back.steps, back.generations) == ((), known), "as if it had never been renamed"
    both = transition(built("count", tally=CountDict()), 2, idle, last, refusal)
    assert said(both) == ["bolt 'tally' begins empty: it is new"]


def test_a_name_that_was_that_of_another_component_is_asked_about() -> None:
    known, last = begun(topology(another=CountState()))
    builder = TopologyBuilder("changing")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("another", CountState(), 2, renamed_from="count").fields_grouping("numbers", ["n"])
    builder.set_bolt("show", Show()).shuffle_grouping("another")
    [refused] = [step for step in transition(builder.build(), 2, known, last, refusal).refusals if "knows" in step.why]
    assert str(refused) == (
        "bolt 'another' is refused: the checkpoint knows 'count' and another 'another', so it is not clear which of "
        "them it is: if it is 'another', remove renamed_from; if it is 'count', give it a third id"
    )


def test_a_name_that_is_still_one_of_a_component_cannot_be_that_of_before() -> None:
    builder = TopologyBuilder("changing")
    builder.set_spout("numbers", Numbers(), renamed_from="count")
    builder.set_bolt("count", CountState(), renamed_from=7).global_grouping("numbers")  # type: ignore[arg-type]
    with pytest.raises(InvalidTopology) as raised:
        builder.build()
    assert "renamed_from='count', and there is a component 'count'" in str(raised.value)
    assert "renamed_from=7" in str(raised.value)
