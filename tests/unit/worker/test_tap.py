"""Peeks: which tuples of a running topology its operators see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.driver.peeks import KEPT_MAX, PEEK_SECS, PEEKS_MAX, Peeks
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


def seen(peek: Peek, text: str) -> PeekedTuple:
    return PeekedTuple(peek, 1, 0, peek.component, 0, "default", "", text)


def test_tuples_have_serial_numbers_so_that_none_is_shown_twice() -> None:
    peeks, peek = Peeks(), Peek("split")
    assert peeks.ask(peek, 0, 0.0) == []
    peeks.add([seen(peek, "a"), seen(peek, "b"), seen(Peek("other"), "c")])
    first = peeks.ask(peek, 0, 1.0)
    assert [one.values for _, one in first] == ["a", "b"]
    assert peeks.ask(peek, first[0][0], 1.0) == first[1:]
    peeks.add(seen(peek, str(number)) for number in range(2 * KEPT_MAX))
    assert len(peeks.ask(peek, 0, 1.0)) == KEPT_MAX


def test_a_peek_ends_when_nobody_asks_any_more_and_there_are_only_a_few_at_a_time() -> None:
    peeks = Peeks()
    many = [Peek(f"bolt{number}") for number in range(PEEKS_MAX + 1)]
    for peek in many:
        peeks.ask(peek, 0, 0.0)
    assert peeks.wanted(1.0) == tuple(many[1:])
    peeks.ask(many[1], 0, PEEK_SECS - 1)
    assert peeks.wanted(PEEK_SECS) == (many[1],)
    peeks.add([seen(many[2], "nobody wants it")])
    assert peeks.ask(many[2], 0, PEEK_SECS) == []
