"""One tuple's trouble is that tuple's trouble: user code from a grammar."""

from __future__ import annotations

import os
from typing import Any

import pytest

from sparkbolt import Config, Count, Topology, TopologyBuilder
from sparkbolt.api.components import Component
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver
from tests.sim.mistakes import (
    BY_HAND,
    COMMON,
    READ,
    SPOUT,
    Emitting,
    Flushing,
    Last,
    MistakenAsync,
    MistakenBasic,
    MistakenByHand,
    MistakenStateless,
    MistakenWindow,
    OddGrouping,
    Program,
    Reading,
    program,
)
from tests.unit.poison import Source

MESSAGES = 60
PROGRAMS = int(os.environ.get("MISTAKEN_PROGRAMS", "6"))
"""How many programs of each kind; each makes about a dozen mistakes."""
SEEDS = range(PROGRAMS)


def settings(**more: Any) -> Config:
    return Config(max_attempts=2, frame_bytes_max=65536, tuple_bytes_max=1 << 20, **more)


def topology(bolt: Component, spout: Component | None = None, grouping: Any = None) -> Topology:
    builder = TopologyBuilder("mistaken", settings())
    builder.set_spout("source", spout or Source())
    builder.set_bolt("bolt", bolt, parallelism=2).shuffle_grouping("source")
    last = builder.set_bolt("last", Last(), parallelism=2)
    if grouping is None:
        last.fields_grouping("bolt", ["n"])
    else:
        last.grouping("bolt", grouping)
    last.direct_grouping("bolt", "direct")
    return builder.build()


def show(made: Topology, mistakes: Program) -> TopologyTestDriver:
    """Show the messages in three parts, with a death behind each."""
    with TopologyTestDriver(made) as driver:
        for start in range(0, MESSAGES, 20):
            for n in range(start, start + 20):
                driver.feed("source", [n], message_id=n)
            driver.run_until_idle()
            driver.restart()
    acked, failed = driver.acked("source"), [failure.message_id for failure in driver.failed("source")]
    assert sorted(acked + failed) == list(range(MESSAGES)), mistakes
    return driver


def check(driver: TopologyTestDriver, mistakes: Program) -> None:
    """What made no mistake was acked, and came through once."""
    good = [n for n in range(MESSAGES) if n not in mistakes]
    told = {failure.message_id: failure.reason for failure in driver.failed("source")}
    assert {n: told[n] for n in good if n in told} == {}, mistakes
    arrived = [(n, result) for n, result in driver.emitted("last") if n in good and type(n) is int and n > 2]
    assert sorted(arrived) == [(n, -n) for n in good if n > 2], mistakes
    assert all(type(failure.reason) is str and failure.reason for failure in driver.failed("source"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [MistakenBasic, MistakenByHand, MistakenAsync, MistakenStateless])
def test_mistakes_of_bolts(kind: Any, seed: int) -> None:
    actions = [*COMMON, *(BY_HAND if kind is MistakenByHand else ())]
    mistakes = program(seed, MESSAGES, actions)
    check(show(topology(kind(mistakes)), mistakes), mistakes)


@pytest.mark.parametrize("seed", SEEDS)
def test_mistakes_of_windows(seed: int) -> None:
    mistakes = program(seed, MESSAGES, list(COMMON))
    window = MistakenWindow(mistakes).with_tumbling_window(Count(1))
    driver = show(topology(window), mistakes)
    good = [n for n in range(3, MESSAGES) if n not in mistakes]
    arrived = [(n, result) for n, result in driver.emitted("last") if n in good]
    assert sorted(arrived) == [(n, -n) for n in good], mistakes
    assert driver.metrics().of("bolt").pending == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_mistakes_in_flush(seed: int) -> None:
    actions = ["raise", "keep", "attribute", "put value", "put key", "get", "ask for tasks"]
    mistakes = program(seed, MESSAGES, actions, share=0.03)
    driver = show(topology(Flushing(mistakes)), mistakes)
    for start in range(0, MESSAGES, 20):
        if not any(n in mistakes for n in range(start, start + 20)):
            assert {n for n in driver.acked("source") if start <= n < start + 20} == set(range(start, start + 20))


@pytest.mark.parametrize("seed", SEEDS)
def test_mistakes_of_groupings(seed: int) -> None:
    mistakes = program(seed, MESSAGES, ["raise", "list", "thing"])
    check(show(topology(MistakenBasic({}), grouping=OddGrouping(mistakes)), mistakes), mistakes)


@pytest.mark.parametrize("seed", SEEDS)
def test_mistakes_of_spouts(seed: int) -> None:
    mistakes = program(seed, MESSAGES, list(SPOUT))
    engine = LocalEngine(topology(MistakenBasic({}), Emitting(mistakes, MESSAGES)))
    spout: Any = next(iter(engine.spouts.values())).spout
    for _ in range(300):
        engine.step()
    assert set(range(MESSAGES)) <= {n for n in spout.acked if type(n) is int}, mistakes
    assert spout.failed == [n for n in spout.failed if type(n) is not int]
    engine.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_mistakes_of_readers(seed: int) -> None:
    mistakes = program(seed, MESSAGES, READ, share=0.1)
    emitted: set[int] = set()

    def see(component: str, task: int, stream: str, columns: Any) -> None:
        if component == "last":
            emitted.update(n for n in columns[0] if type(n) is int)

    engine = LocalEngine(topology(MistakenBasic({}), Reading(mistakes, MESSAGES)), capture=see)
    for _ in range(500):
        engine.step()
        engine.now_ms += 1000
        if engine.coordinator.finished:
            break
    assert engine.ledger.progress["source"] == {"numbers": MESSAGES}, mistakes
    assert engine.coordinator.finished, mistakes
    broken = [n for n in mistakes if mistakes[n].action != "value"]  # nobody knows what would have come behind it
    good = [n for n in range(MESSAGES) if n not in mistakes]
    sure = {n for n in good if not any(n > bad for bad in broken if bad // 20 == n // 20)}
    assert sure <= emitted, mistakes
    engine.close()
