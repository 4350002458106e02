"""The order of a micro-batch, as the driver machine says it; and a driver that dies at any point of it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sparkbolt import Bolt, Committer, Config, Topology, TopologyBuilder
from sparkbolt.driver.effects import Effect
from sparkbolt.driver.machine import perform_all
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from tests.topologies import Sum

COUNT = 12


class Died(BaseException):
    """The driver has died."""


class Mortal(LocalEngine):
    """Notes the effects of its machine, and dies before one of them."""

    dies_before = -1

    def perform(self, effect: Effect) -> Any:
        effects = self.__dict__.setdefault("effects", [])
        if len(effects) == self.dies_before:
            self.dies_before = -1
            raise Died
        effects.append(effect)
        return super().perform(effect)


class Check(Bolt):
    """Fails each fifth number once, and the seventh for ever."""

    outputs = ["n", "total"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"], tup["total"]], anchors=[tup])
        if (tup["n"] % 5 == 0 and tup.attempt == 1) or tup["n"] == 7:
            collector.fail(tup)
        else:
            collector.ack(tup)


class Out(Committer):
    def commit(self, txid: int, rows: list[Any]) -> None:
        """They are known to the engine."""


def topology(*, transactional: bool = True) -> Topology:
    config = Config(transactional=transactional, max_attempts=2, compact_every=2)
    builder = TopologyBuilder("sums", config)
    numbers = GeneratorSpout(lambda: ([n] for n in range(1, COUNT + 1)), outputs=["n"])
    builder.set_spout("numbers", numbers, dead_letters="checkpoint:")
    builder.set_bolt("sum", Sum()).global_grouping("numbers")
    builder.set_bolt("check", Check()).global_grouping("sum")
    builder.set_bolt("out", Out()).global_grouping("check")
    return builder.build()


def names(engine: Mortal) -> list[str]:
    return [type(effect).__name__ for effect in engine.__dict__["effects"]]


def steps(engine: LocalEngine) -> Iterator[None]:
    while not engine.coordinator.finished:
        if engine.step() is None:
            engine.now_ms = max(engine.now_ms + 1, engine.next_due_ms() or 0)
        yield


def test_a_micro_batch_is_executed_made_durable_committed_and_reported_in_this_order() -> None:
    engine = Mortal(topology(transactional=False))
    assert names(engine) == ["TakeLife", "DropLetters", "OpenSpouts"]
    engine.__dict__["effects"].clear()
    assert engine.step() is not None
    assert names(engine) == [
        *("CallSpout", "Execute", "Counts", "Fence", "WriteLetters", "Write", "WriteEntry"),
        *("Fence", "Commit", "Remove", "AskLag", "Tell"),
    ]
    engine.close()


def test_an_uncounted_execution_is_durable_before_the_next_one() -> None:
    engine = Mortal(topology())
    engine.__dict__["effects"].clear()
    assert engine.step() is not None
    assert names(engine) == [
        *("CallSpout", "Execute", "Fence", "Write", "Execute", "Fence", "Counts"),
        *("Fence", "WriteLetters", "Write", "WriteEntry"),
        *("Fence", "Commit", "Remove", "AskLag", "Remove", "Tell"),
    ]
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [True, False])
def test_a_driver_that_dies_before_any_effect_loses_nothing(transactional: bool) -> None:
    alive = Mortal(topology(transactional=transactional))
    for _ in steps(alive):
        pass
    alive.close()
    rows = Counter(map(repr, alive.committed["out"]))
    first = 3  # the effects with which a life begins
    for place in range(first, len(names(alive))):
        engine = Mortal(topology(transactional=transactional))
        engine.dies_before = place
        before = {}, -1
        try:
            for _ in steps(engine):
                before = copy.deepcopy(engine.stores), engine.last_commit
        except Died:
            if engine.last_commit == before[1]:
                engine.stores = before[0]
            engine.restart()
            for _ in steps(engine):
                pass
        engine.close()
        repeated = Counter(map(repr, engine.committed["out"])) - rows
        is_commit = place > 0 and names(alive)[place - 1] == "Commit"
        assert not rows - Counter(map(repr, engine.committed["out"])), (place, names(alive)[place])
        assert bool(repeated) <= is_commit, (place, names(alive)[place], repeated)
        assert engine.ledger.metrics.of("numbers").acked == alive.ledger.metrics.of("numbers").acked
        assert engine.letters == alive.letters


class Listening(GeneratorSpout):
    """Wants to know its progress."""

    def on_sources_changed(self, sources: Any) -> None:
        """It is called."""


def test_rows_are_outside_after_a_restart_until_a_spout_knows_its_progress() -> None:
    builder = TopologyBuilder("sums", Config(transactional=True))
    builder.set_spout("numbers", Listening(lambda: ([n] for n in range(COUNT)), outputs=["n"]))
    builder.set_bolt("out", Out()).global_grouping("numbers")
    engine = Mortal(builder.build())
    alive = Mortal(builder.build())
    alive.step()
    engine.dies_before = names(alive).index("Commit")
    with pytest.raises(Died):
        engine.step()
    assert engine.last_commit == 0
    assert not engine.committed.get("out")
    engine.__dict__["effects"].clear()
    engine.restart()
    engine.step()
    effects = engine.__dict__["effects"]
    told = [place for place, one in enumerate(effects) if getattr(one, "method", None) == "on_sources_changed"]
    assert names(engine).index("Commit") < told[0]
    engine.close()
    alive.close()


def test_steps_end_where_the_shell_raises() -> None:
    ended = []

    def some() -> Any:
        try:
            yield 1
            yield 2
        finally:
            ended.append(True)

    def refuse(effect: Any) -> None:
        raise OSError("a disk is full")

    with pytest.raises(OSError, match="a disk is full"):
        perform_all(some(), refuse)
    assert ended == [True]
