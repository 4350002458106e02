"""DataFrames of Spark whose topology begins a generation in another folder."""

from __future__ import annotations

from typing import Any

from sparkbolt import Topology, TopologyBuilder
from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.keyed_state import refusal
from sparkbolt.driver.ledger.agreement import InletSources
from sparkbolt.driver.transition import Continuation, source_places, transition
from tests.unit.driver.test_transition import CountState


class Inlet(InletSpout):
    """Rows that something else brings."""

    outputs = ["n"]

    def frame(self, spark: Any) -> Any:
        raise AssertionError("nothing runs here")


def with_inlets(*names: str, tasks: int = 2, **renamed: str) -> Topology:
    builder = TopologyBuilder("changing")
    count = builder.set_bolt("count", CountState(), tasks)
    for name in names:
        builder.set_spout(name, Inlet(), renamed_from=renamed.get(name))
        count.fields_grouping(name, ["n"])
    return builder.build()


def inlets_after(after: Topology, inlets: InletSources) -> tuple[Continuation, list[int | None]]:
    known = transition(with_inlets("b", "c"), 2, (), -1, refusal).generations
    started = transition(after, 2, known, 5, refusal, inlets=inlets)
    before, newest = known[-1], started.generations[-1]
    return started, list(source_places(before, newest, inlets.count))


def test_inlets_go_on_in_another_folder_by_what_they_are_and_not_by_their_order() -> None:
    two = InletSources(2)
    started, places = inlets_after(with_inlets("b", "c"), two)
    assert (started.generations[-1].folder, places) == ("spark", [0, 1])
    started, places = inlets_after(with_inlets("b", "c", tasks=3), two)
    assert (started.generations[-1].folder, started.refusals, places) == ("spark-1", (), [0, 1])
    several, places = inlets_after(with_inlets("b", "c", tasks=3), InletSources(5))
    assert (several.refusals, places) == ((), [0, 1, 2, 3, 4])
    started, places = inlets_after(with_inlets("a", "b", "c"), two)
    assert (started.generations[-1].folder, started.refusals, places) == ("spark-1", (), [None, 0, 1])
    started, places = inlets_after(with_inlets("a", "b", a="c"), two)
    assert (started.generations[-1].folder, started.refusals, places) == ("spark-1", (), [1, 0])
    assert started.generations.lasting_name("a") == "c"
    again = transition(with_inlets("a", "b", "c"), 2, started.generations, 9, refusal, inlets=two).generations
    assert [again.lasting_name(name) for name in ("a", "b", "c")] == ["c", "b", "c-5"], "the new one has its own"
    started, places = inlets_after(with_inlets("b", "d", d="c"), two)
    assert (started.generations[-1].folder, places) == ("spark", [0, 1]), "their order stays"
    started, places = inlets_after(with_inlets("c"), two)
    assert (started.generations[-1].folder, started.refusals, places) == ("spark-1", (), [1])


def test_inlets_whose_sources_nobody_can_tell_apart_or_that_keep_state_are_refused() -> None:
    started, _ = inlets_after(with_inlets("a", "b", "c"), InletSources(3))
    assert "nobody knows which of them are whose" in str(started.refusals[0])
    started, _ = inlets_after(with_inlets("b", "c", tasks=3), InletSources(2, keep_state=True))
    assert "spout 'b' is refused: Spark keeps state of its DataFrame" in str(started.refusals[0])
