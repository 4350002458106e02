"""What ``set_spout`` and ``set_bolt`` return stands for the component in grouping methods."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt import Spout, TopologyBuilder, bolt
from sparkbolt.api.bolt_declarer import ComponentHandle, StreamHandle
from sparkbolt.errors import InvalidTopology


class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self, collector: Any) -> None: ...


@bolt(outputs={"default": ["word"], "errors": ["line"]})
def split(tup: Any) -> Any: ...


def test_handles_and_ids_are_the_same_sources() -> None:
    builder = TopologyBuilder("words")
    lines = builder.set_spout("lines", Lines())
    words = builder.set_bolt("words", split).shuffle_grouping(lines)
    builder.set_bolt("count", split).fields_grouping(words, ["word"]).all_grouping(words.stream("errors"))
    builder.set_bolt("ids", split).fields_grouping("words", ["word"]).all_grouping("words", "errors")
    built = builder.build()
    assert built.components["words"].inputs == (("lines", "default"),)
    assert built.components["count"].subscriptions == built.components["ids"].subscriptions
    assert isinstance(words, ComponentHandle)
    assert (lines.id, words.id, words.stream("errors")) == ("lines", "words", StreamHandle("words", "errors"))
    assert (repr(lines), repr(words)) == ("<spout 'lines'>", "<bolt 'words'>")


@pytest.mark.parametrize(
    "method",
    ["shuffle", "all", "global", "none", "local_or_shuffle", "fields", "partial_key", "direct"],
)
def test_every_grouping_method_takes_handles_and_returns_one(method: str) -> None:
    builder = TopologyBuilder("words")
    words = builder.set_bolt("words", split)
    for source in ("words", words, words.stream("errors")):
        declarer = builder.set_bolt("count", split)
        arguments = [["word"]] if method in ("fields", "partial_key") else []
        assert getattr(declarer, f"{method}_grouping")(source, *arguments) is declarer


def mistakes(source: Any, **stream: str) -> list[str]:
    builder = TopologyBuilder("words")
    lines = builder.set_spout("lines", Lines())
    builder.set_bolt("words", split).shuffle_grouping(source(lines), **stream)
    with pytest.raises(InvalidTopology) as raised:
        builder.build()
    return list(raised.value.mistakes)


@pytest.mark.parametrize(
    ("source", "stream", "why"),
    [
        (lambda lines: lines.stream("odd"), {}, "it subscribes to stream 'odd' of 'lines', which 'lines' does not"),
        (lambda lines: lines.stream("odd"), {"stream": "even"}, "StreamHandle(component='lines', stream='odd'), and"),
        (lambda lines: Lines(), {}, "expected the id or the handle of a component"),
        (lambda lines: [lines], {}, "expected the id or the handle of a component"),
    ],
)
def test_a_source_that_does_not_exist_is_a_mistake(source: Any, stream: dict[str, str], why: str) -> None:
    assert any(why in mistake for mistake in mistakes(source, **stream))
