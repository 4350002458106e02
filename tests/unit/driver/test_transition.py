"""How a topology goes on from a checkpoint that another shape has begun: decided, refused, and run to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt import BasicBolt, Bolt, Count, PartitionedSpout, Range, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.api.keyed_state import refusal
from sparkbolt.driver.ledger.generations import Generations
from sparkbolt.driver.lifecycle import LifecycleEvent
from sparkbolt.driver.transition import Continuation, Effect, transition
from sparkbolt.errors import CheckpointError, StateError
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.sim.engine import LocalEngine
from tests.hypotheses import examples

KEYS = 13


class Numbers(PartitionedSpout):
    """The numbers from 0 on, ten at a time."""

    outputs = ["n"]
    first_budget = 10

    def __init__(self, count: int = 200, sources: int = 1) -> None:
        self.count, self.sources = count, sources

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        found = []
        for place in range(self.sources):
            start = progress.get(f"n{place}", 0)
            end = min(self.count, start + min(budget, 10))
            found += [Range(0, f"n{place}", start, end)] if end > start else []
        return found

    def finished(self, progress: Mapping[str, int]) -> bool:
        return sum(progress.values()) >= self.count * self.sources

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number % KEYS]


class CountState(BasicBolt):
    """Counts each number in a key-value state."""

    outputs = ["n", "count"]
    keyed = True

    def init_state(self, state: Any) -> None:
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        count = self.counts.get(tup["n"], 0) + 1
        self.counts.put(tup["n"], count)
        collector.emit([tup["n"], count])


class CountDict(BasicBolt):
    """Counts each number in an attribute."""

    outputs = ["n", "count"]
    keyed = ["counts"]

    def prepare(self, context: Any) -> None:
        self.counts: Counter[int] = Counter()

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["n"]] += 1
        collector.emit([tup["n"], self.counts[tup["n"]]])


class Hold(Bolt):
    """Holds every tuple for ever."""

    outputs: list[str] = []

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.held.append(tup)


class Show(BasicBolt):
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class Declares(Show):
    """Declares the fields that it is told."""

    def __init__(self, fields: list[str]) -> None:
        self.outputs = fields


class Windows(WindowedBolt):
    """Emits for each window how many tuples it has."""

    outputs = ["count"]

    def execute(self, window: Any, collector: Any) -> None:
        collector.emit([len(window.get())])


def topology(counting: Any = None, tasks: int = 2, *, id_: str = "count", spouts: int = 1, **more: Any) -> Topology:
    """Numbers, counted by key; ``more`` are further bolts, which get the numbers too."""
    builder = TopologyBuilder("changing")
    builder.set_spout("numbers", Numbers(), spouts)
    old = "count" if id_ != "count" else None
    builder.set_bolt(id_, counting or CountState(), tasks, renamed_from=old).fields_grouping("numbers", ["n"])
    builder.set_bolt("show", Show()).shuffle_grouping(id_)
    for name, bolt in more.items():
        builder.set_bolt(name, bolt).global_grouping("numbers")
    return builder.build()


class Run:
    """A run whose counts are compared with what there is to count."""

    def __init__(self, first: Topology) -> None:
        self.counted: Counter[tuple[int, int]] = Counter()
        self.engine = LocalEngine(first, capture=self._capture)

    def _capture(self, _component: str, _index: int, stream: str, columns: Sequence[Any]) -> None:
        if stream == "default" and len(columns) == 2:
            self.counted.update(zip(*columns, strict=True))

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.engine.now_ms += 100
            assert self.engine.step() is not None

    def finish(self) -> None:
        """To the end: each number of each key must have been counted once, and every tree acked."""
        engine = self.engine
        for _ in range(500):
            if engine.coordinator.finished:
                break
            engine.now_ms += 1000
            engine.step()
        each = Counter(number % KEYS for number in range(200))
        assert self.counted == Counter({(key, n): 1 for key in each for n in range(1, each[key] + 1)})
        assert engine.ledger.metrics.of("numbers").acked == 200
        assert engine.ledger.open_trees == 0


def begun(first: Topology, commits: int = 5) -> tuple[Generations, int]:
    return transition(first, 2, (), -1, refusal).generations, commits


def said(started: Continuation) -> list[str]:
    return [str(step) for step in started.steps]


@pytest.mark.parametrize("counting", [CountState, CountDict])
def test_a_keyed_state_is_exact_with_more_and_with_fewer_tasks(counting: Any) -> None:
    run = Run(topology(counting(), 2))
    for tasks in (5, 3, 1, 4, 4, 2):
        run.steps(2)
        run.engine.restart(topology(counting(), tasks))
    run.finish()


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["count", "tally"]), st.integers(0, 2)), max_size=8))
@settings(max_examples=examples(30))
def test_over_any_changes_of_tasks_and_names_every_count_is_exact(changes: list[tuple[int, str, int]]) -> None:
    run = Run(topology())
    for tasks, name, steps in changes:
        run.steps(steps)
        builder = TopologyBuilder("changing")
        builder.set_spout("numbers", Numbers(), tasks)
        other = "tally" if name == "count" else "count"
        builder.set_bolt(name, CountState(), tasks, renamed_from=other).fields_grouping("numbers", ["n"])
        builder.set_bolt("show", Show()).shuffle_grouping(name)
        run.engine.restart(builder.build())
    run.finish()


class CountAndStart(Bolt):
    """Counts each number, and starts a tree with each count."""

    outputs = ["n", "count"]
    keyed = starts_trees = True

    def init_state(self, state: Any) -> None:
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        count = self.counts.get(tup["n"], 0) + 1
        self.counts.put(tup["n"], count)
        collector.emit([tup["n"], count])
        collector.ack(tup)


class FailsOnce(BasicBolt):
    """Fails each tuple at its first attempt."""

    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt == 1:
            raise ValueError("not now")


def test_a_bolt_that_starts_trees_gets_fewer_tasks_once_those_of_the_tasks_that_go_are_finished() -> None:
    def built(tasks: int) -> Topology:
        builder = TopologyBuilder("starting")
        builder.set_spout("numbers", Numbers(), max_attempts=3)
        builder.set_bolt("count", CountAndStart(), tasks, max_attempts=5).fields_grouping("numbers", ["n"])
        builder.set_bolt("fails", FailsOnce()).shuffle_grouping("count")
        return builder.build()

    run = Run(built(3))
    engine = run.engine

    def finish_trees() -> None:
        """Stop the spout, and wait until nothing is open, which the tasks know then."""
        engine.machine.lifecycle.on(LifecycleEvent.DEACTIVATE)
        for _ in range(50):
            engine.now_ms += 1000
            engine.step()
        assert engine.ledger.open_trees == 0

    for tasks in (1, 2, 1):
        run.steps(4)
        with pytest.raises(StateError, match=r"trees that task \d has started are open, and the task goes: deactivate"):
            engine.restart(built(tasks))
        engine.restart()
        finish_trees()
        engine.restart(built(tasks))
        run.steps(1)
        engine.restart(built(3))
    for _ in range(200):
        engine.now_ms += 1000
        engine.step()
    acked = engine.ledger.metrics.of
    assert (acked("numbers").acked, acked("count").acked) == (200, 400), "its tuples, and the trees that it has started"
    assert engine.ledger.open_trees == 0
    each = Counter(number % KEYS for number in range(200))
    assert set(run.counted) == {(key, n) for key in each for n in range(1, each[key] + 1)}


def test_a_bolt_with_state_that_is_added_in_front_moves_the_levels_and_loses_nothing() -> None:
    run = Run(topology())
    run.steps(3)
    run.engine.restart(topology(another=CountDict()))
    assert run.engine.generations[-1].folder == "spark", "no level that keeps state has moved"
    run.steps(2)

    builder = TopologyBuilder("changing")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("first", First()).global_grouping("numbers")
    builder.set_bolt("count", CountState(), 2).fields_grouping("first", ["n"])
    builder.set_bolt("show", Show()).shuffle_grouping("count")
    run.counted = Counter(pair for pair in run.counted.elements() if run.counted[pair])
    run.engine.restart(builder.build())
    assert run.engine.generations[-1].folder == "spark-2"
    assert run.engine.generations[-1].moves


class First(BasicBolt):
    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.seen = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen += 1
        collector.emit([tup["n"]])


def test_trees_whose_tuples_a_bolt_holds_that_is_gone_fail_with_that_reason_and_are_retried() -> None:
    run = Run(topology(hold=Hold()))
    run.steps(2)
    assert run.engine.ledger.open_trees == 20
    run.engine.restart(topology())
    promotion = run.engine.step()
    assert promotion is not None
    assert {tree.fail.component for tree in promotion.failed} == {"hold"}
    assert len(promotion.failed) == 20
    for _ in range(60):
        run.engine.now_ms += 1000
        run.engine.step()
    assert run.engine.ledger.metrics.of("numbers").acked == 200
    assert run.engine.ledger.open_trees == 0


def test_the_sources_of_a_spout_with_fewer_tasks_are_read_by_those_that_are_left() -> None:
    def built(tasks: int, fails: bool) -> Topology:
        class Raises(BasicBolt):
            stateless = True

            def execute(self, tup: Any, collector: Any) -> None:
                if fails:
                    raise ValueError("not yet")

        builder = TopologyBuilder("changing")
        builder.set_spout("numbers", Numbers(30, sources=3), tasks)
        builder.set_bolt("raise", Raises()).shuffle_grouping("numbers")
        return builder.build()

    engine = LocalEngine(built(3, fails=True))
    engine.step()
    assert engine.ledger.retries
    engine.restart(built(1, fails=False))
    for _ in range(80):
        engine.now_ms += 1000
        engine.step()
    assert engine.ledger.metrics.of("numbers").acked == 90
    assert engine.ledger.retries == engine.ledger.open_trees == 0


def test_a_spout_that_is_gone_is_forgotten_and_goes_on_where_it_was_if_it_comes_back() -> None:
    def built(*names: str) -> Topology:
        builder = TopologyBuilder("changing")
        for name in names:
            builder.set_spout(name, Numbers(50))
        declared = builder.set_bolt("hold", Hold())
        for name in names:
            declared.global_grouping(name)
        return builder.build()

    engine = LocalEngine(built("a", "b"))
    engine.step()
    engine.step()
    assert engine.ledger.pending("b") == 20
    engine.restart(built("a"))
    engine.step()
    assert engine.ledger.pending("a") == engine.ledger.open_trees == 30
    engine.restart(built("a", "b"))
    assert engine.ledger.progress.get("b", {}) == {}, "none of its messages was finished, so all are read again"


def test_what_moves_or_goes_needs_a_decision_and_the_rest_just_happens() -> None:
    known, last = begun(topology(hold=Hold()))
    same = transition(topology(hold=Hold()), 8, known, last, refusal)
    assert (same.steps, same.generations[-1].number, same.lane.spark_partitions) == ((), 0, 2)
    more = transition(topology(tasks=5, hold=Hold()), 8, known, last, refusal)
    assert said(more) == [
        "bolt 'count' moves: it has 5 tasks and had 2: its state is divided among them",
        "the topology goes on: in 5 partitions of Spark, and not in 2",
    ]
    with pytest.raises(CheckpointError, match=r"(?s)needs your decision:.*bolt 'count' moves.*--apply"):
        more.check("DIR", apply=False)
    more.check("DIR", apply=True)
    gone = transition(topology(), 8, known, last, refusal)
    assert said(gone) == [
        "bolt 'hold' goes: it is gone, and its state with it; trees whose tuples it holds fail, and are retried"
    ]
    added = transition(topology(hold=Hold(), again=Show()), 8, known, last, refusal)
    assert said(added) == ["bolt 'again' begins empty: it is new"]
    added.check("DIR", apply=False)
    assert (added.generations[-1].folder, added.generations[-1].base) == ("spark", last + 1)


def test_what_cannot_go_on_is_refused_by_name_with_what_to_do() -> None:
    def built(grouping: str = "fields", tasks: int = 2, name: str = "changing") -> Topology:
        builder = TopologyBuilder(name)
        builder.set_spout("numbers", Numbers())
        declarer = builder.set_bolt("count", CountState(), tasks)
        if grouping == "fields":
            declarer.fields_grouping("numbers", ["n"])
        else:
            getattr(declarer, f"{grouping}_grouping")("numbers")
        return builder.build()

    known, last = begun(built())
    assert said(transition(built("shuffle"), 2, known, last, refusal)) == [
        "bolt 'count' is refused: it gets numbers/default by shuffle, and got it by fields(n), so its tuples would "
        "meet the state of other ones: change it back, or give it another id, which begins empty"
    ]
    known, last = begun(built("all", 1))
    refused = transition(built("all", 2), 2, known, last, refusal).refusals
    assert [step.why.partition(":")[0] for step in refused] == ["it has 2 tasks and had 1"]
    assert "define rescale(self, states, part, parts) in its class" in refused[0].why
    known, last = begun(built("shuffle"))
    assert not transition(built("shuffle", 3), 2, known, last, refusal).refusals
    fewer = transition(built("shuffle", 1), 2, known, last, refusal)
    with pytest.raises(
        CheckpointError, match="cannot be rebalanced like this, and goes on as it is:\n  - bolt 'count'"
    ):
        fewer.check_rebalance()
    renamed = transition(built("shuffle", name="other"), 2, known, last, refusal)
    with pytest.raises(CheckpointError, match="call it 'changing' again"):
        renamed.check("DIR", apply=True)
    again = TopologyBuilder("changing")
    again.set_spout("numbers", Numbers())
    again.set_spout("count", Numbers())
    assert [str(step) for step in transition(again.build(), 2, known, last, refusal).refusals] == [
        "spout 'count' is refused: it was a stateful bolt and is now a partitioned spout: give it another id, which "
        "begins empty"
    ]


def test_other_keys_are_refused_and_fields_with_another_name_need_a_decision() -> None:
    def built(fields: list[str], keys: list[str], how: str = "fields") -> Topology:
        builder = TopologyBuilder("changing")
        builder.set_bolt("read", Declares(fields)).shuffle_grouping("numbers")
        builder.set_spout("numbers", Numbers())
        declarer = builder.set_bolt("count", CountState(), 2)
        getattr(declarer, f"{how}_grouping")("read", *([keys] if how == "fields" else []))
        return builder.build()

    known, last = begun(built(["id", "user"], ["user"]))
    (other,) = transition(built(["id", "user"], ["id"]), 2, known, last, refusal).refusals
    assert "its tuples would meet the state of other ones" in other.why
    assert transition(built(["id", "user"], ["id", "user"]), 2, known, last, refusal).refusals
    renamed = transition(built(["id", "customer"], ["customer"]), 2, known, last, refusal)
    (step,) = renamed.decisions
    assert "right only if the values are the same as before" in step.why
    assert not renamed.refusals
    known, last = begun(built(["id"], [], "shuffle"))
    assert not transition(built(["id"], [], "local_or_shuffle"), 2, known, last, refusal).decisions


def test_a_bolt_with_windows_may_get_fewer_tasks() -> None:
    def built(tasks: int) -> Topology:
        windows = Windows().with_tumbling_window(Count(3)).with_key("n")
        builder = TopologyBuilder("changing")
        builder.set_spout("numbers", Numbers())
        builder.set_bolt("windows", windows, tasks).fields_grouping("numbers", ["n"])
        return builder.build()

    known, last = begun(built(3))
    step, *_ = said(transition(built(1), 2, known, last, refusal))
    assert step == "bolt 'windows' moves: it has 1 task and had 3: its state is divided among them"


def test_a_generation_that_has_committed_nothing_is_dropped_for_another_one() -> None:
    known, last = begun(topology())
    pending = transition(topology(tasks=5), 8, known, last, refusal).generations
    assert [(one.number, one.folder, one.base) for one in pending] == [(0, "spark", 0), (1, "spark-1", last + 1)]
    again = transition(topology(tasks=5), 2, pending, last, refusal)
    assert again.generations == pending
    assert again.generations[-1].moves
    back = transition(topology(), 8, pending, last, refusal)
    assert back.generations == known
    other = transition(topology(tasks=3), 8, pending, last, refusal)
    assert [(one.number, one.folder) for one in other.generations] == [(0, "spark"), (2, "spark-2")]
    new = transition(topology(tasks=3), 8, known, -1, refusal)
    assert (new.is_new, new.steps, new.generations[0].folder) == (True, (), "spark-1")


def test_a_generation_goes_on_after_it_was_stored() -> None:
    known, last = begun(topology())
    pending = transition(topology(tasks=5, id_="tally"), 8, known, last, refusal).generations
    files = MemoryFiles()
    files.write("topology", pending.dumps())
    assert Generations.read(files, "DIR") == pending
    assert transition(topology(tasks=5, id_="tally"), 3, pending, last + 4, refusal).generations == pending


def test_attributes_that_are_not_keyed_name_themselves_and_rescale_divides_them() -> None:
    class Total(BasicBolt):
        outputs = ["n", "count"]

        def prepare(self, context: Any) -> None:
            self.totals = {"all": 0}

        def execute(self, tup: Any, collector: Any) -> None:
            self.totals["all"] += 1

    class Divided(Total):
        def rescale(self, states: Any, part: int, parts: int) -> Any:
            whole = sum(state["totals"]["all"] for state in states if state)
            return {"totals": {"all": whole if part == 1 else 0}}

    for tasks in (1, 2):
        run = Run(topology(Total(), tasks))
        run.steps(2)
        with pytest.raises(StateError, match=r"the state of bolt 'count' cannot be divided.* attribute 'totals'"):
            run.engine.restart(topology(Total(), 4))

    run = Run(topology(Total(), 2))
    run.steps(2)
    run.engine.restart(topology(Divided(), 4))
    run.steps(3)
    tasks_ = run.engine.lane.topology.tasks("count")
    totals = [run.engine.worker._tasks[task].bolt.totals["all"] for task in tasks_ if task in run.engine.worker._tasks]
    assert sum(totals) == 50


def test_the_effects_are_words() -> None:
    assert Effect.BEGINS == "begins empty"
