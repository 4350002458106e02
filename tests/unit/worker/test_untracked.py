"""A tuple that belongs to no tree and fails is lost: it is reported and counted as an error, in every kind of bolt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, ColumnBolt, Config, FailedException, Reject, TopologyBuilder, bolt
from sparkbolt.errors import EngineError, ReportedFailedException, Unavailable
from sparkbolt.testing import TopologyTestDriver
from tests.unit.worker.emitting import AFTERWARDS, BAD, GOOD, Async, Basic, ByHand, Numbers, Window

REASON = "no such user"


class Columns(ColumnBolt):
    splits_frames = True
    transient = ("emit",)

    def __init__(self, emit: Callable[[Any, Any], Any]) -> None:
        self.emit = emit

    def execute(self, batch: Any, collector: Any) -> None:
        if BAD in batch["n"].to_pylist():
            self.emit(collector, batch)


def function(emit: Callable[[Any, Any], Any]) -> Any:
    return bolt()(lambda tup: emit(None, tup) if tup["n"] == BAD else None)


def untracked(tested: Any, numbers: Any = (GOOD, BAD), **config: Any) -> TopologyTestDriver:
    """Feed numbers without message ids."""
    builder = TopologyBuilder("untracked", Config(**config))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("tested", tested).shuffle_grouping("numbers")
    message_id = 1 if config.get("acker_tasks") == 0 else None
    with TopologyTestDriver(builder.build()) as driver:
        for number in numbers:
            driver.feed("numbers", [number], message_id=message_id)
            driver.run_until_idle()
    return driver


def raises(error: Exception) -> Callable[[Any, Any], Any]:
    def emit(_: Any, __: Any) -> None:
        raise error

    return emit


def told(driver: TopologyTestDriver) -> list[str]:
    """The texts of the errors, each of which is counted."""
    texts = [error.text for error in driver.errors()]
    assert driver.metrics().of("tested").errors == len(texts)
    return texts


@pytest.mark.parametrize("config", [{}, {"acker_tasks": 0}], ids=["no message id", "no ackers"])
@pytest.mark.parametrize("error", [FailedException(REASON), ReportedFailedException(REASON), Reject(REASON)], ids=repr)
@pytest.mark.parametrize("kind", [Basic, ByHand, Async, Columns, function])
def test_failing_a_tuple_is_an_error_if_no_tree_fails_with_it(kind: Any, error: Exception, config: Any) -> None:
    driver = untracked(kind(raises(error)), **config)
    assert [text.split(": ")[-1] for text in told(driver)] == [REASON]
    assert driver.metrics().of("tested").failed == 1


@pytest.mark.parametrize("config", [{}, {"acker_tasks": 0}], ids=["no message id", "no ackers"])
def test_a_window_that_fails_is_an_error_if_no_tree_fails_with_it(config: Any) -> None:
    driver = untracked(Window(raises(FailedException(REASON))), (GOOD, BAD, AFTERWARDS), **config)
    assert len(told(driver)) == 1
    assert REASON in told(driver)[0]


class NeverReady(BasicBolt):
    def prepare(self, context: Any) -> None:
        raise ValueError(REASON)

    def execute(self, tup: Any, collector: Any) -> None:
        """Never called."""


@pytest.mark.parametrize("config", [{}, {"acker_tasks": 0}], ids=["no message id", "no ackers"])
@pytest.mark.parametrize("kind", [Basic, ByHand, Async, Columns, function, Window, lambda _: NeverReady()])
def test_on_error_stop_also_applies_to_a_tuple_without_a_tree(kind: Any, config: Any) -> None:
    with pytest.raises(EngineError, match=f"belongs to no tree, and its on_error is 'stop': .*{REASON}"):
        untracked(kind(raises(ValueError(REASON))), (BAD, AFTERWARDS), on_error="stop", **config)


def test_a_failed_tuple_that_was_emitted_without_an_anchor_is_an_error() -> None:
    class Both(Bolt):
        outputs = ["n"]

        def execute(self, tup: Any, collector: Any) -> None:
            collector.emit([BAD], anchors=tup)
            collector.emit([BAD])
            collector.ack(tup)

    builder = TopologyBuilder("unanchored")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("both", Both()).shuffle_grouping("numbers")
    builder.set_bolt("tested", Basic(raises(FailedException(REASON)))).shuffle_grouping("both")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("numbers", [GOOD], message_id=1)
        driver.run_until_idle()
    assert told(driver) == [REASON]
    assert driver.metrics().of("tested").failed == 2


def test_every_row_that_is_not_tried_since_the_bolt_is_away_is_an_error_if_it_has_no_tree() -> None:
    builder = TopologyBuilder("away")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("tested", Basic(raises(Unavailable("down")))).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        for _ in range(30):
            driver.feed("numbers", [BAD])
        driver.run_until_idle()
        assert driver.metrics().of("tested").errors == 30
