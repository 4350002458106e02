"""Peeks: which tuples of a running topology its operators see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.sim import engine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.wire.acker import gather
from sparkbolt.wire.peek import Peek, PeekedTuple
from sparkbolt.wire.verdicts import Feedback
from sparkbolt.worker.tap import MATCHED_MAX, PEEKED_MAX


class Split(BasicBolt):
    outputs = {"default": ["word"], "long": ["word"]}

    def execute(self, tup: Any, collector: Any) -> None:
        for word in tup["line"].split():
            collector.emit([word])
            if len(word) > 3:
                collector.emit([word], stream="long")


class Keep(BasicBolt):
    """It keeps what it gets, and emits nothing."""

    def prepare(self, context: Any) -> None:
        self.kept: list[str] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.kept.append(tup["word"])


def peeked(monkeypatch: pytest.MonkeyPatch, lines: Iterable[str], *peeks: Peek) -> list[PeekedTuple]:
    found: list[PeekedTuple] = []

    def gathered(frames: Iterable[Any]) -> Feedback:
        feedback = gather(frames)
        found.extend(feedback.peeked)
        return feedback

    monkeypatch.setattr(engine, "gather", gathered)
    builder = TopologyBuilder("peeked")
    builder.set_spout("lines", GeneratorSpout(list, outputs=["line"]))
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("keep", Keep()).shuffle_grouping("split")
    with TopologyTestDriver(builder.build()) as driver:
        driver._engine.worker.peeks = peeks
        for line in lines:
            driver.feed("lines", [line])
        driver.run_until_idle()
    return found


def shown(found: Iterable[PeekedTuple]) -> list[tuple[str, str, str, str]]:
    return [(one.component, one.stream, one.sender, one.values) for one in found]


def test_a_peek_shows_what_a_component_emits_on_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    found = peeked(monkeypatch, ["to question"], Peek("split"))
    assert sorted(shown(found)) == [
        ("split", "default", "", "{'word': 'question'}"),
        ("split", "default", "", "{'word': 'to'}"),
        ("split", "long", "", "{'word': 'question'}"),
    ]
    [one] = peeked(monkeypatch, ["to question"], Peek("split", "long"))
    assert one.stream == "long"


def test_a_peek_at_a_spout_shows_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(peeked(monkeypatch, ["to be"], Peek("lines"))) == [("lines", "default", "", "{'line': 'to be'}")]


def test_a_component_without_streams_shows_the_tuples_that_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(peeked(monkeypatch, ["be"], Peek("keep"))) == [("keep", "default", "split[0]", "{'word': 'be'}")]


def test_only_tuples_with_the_text_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    line = " ".join(f"w{number}" for number in range(MATCHED_MAX + 500))
    assert [one.values for one in peeked(monkeypatch, [line], Peek("split", "default", "w777"))] == ["{'word': 'w777'}"]
    beyond = Peek("split", "default", f"w{MATCHED_MAX + 1}")
    assert peeked(monkeypatch, [line], beyond) == [], "a stage looks at a limited number of tuples"


def test_a_peek_is_a_sample_and_long_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    found = peeked(monkeypatch, [" ".join(["x" * 5000] * 50)], Peek("split", "default"))
    assert len(found) == PEEKED_MAX
    assert max(len(one.values) for one in found) < 300


def test_nothing_is_looked_at_without_a_peek_or_for_other_components(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peeked(monkeypatch, ["to be"]) == []
    assert peeked(monkeypatch, ["to be"], Peek("other")) == []
