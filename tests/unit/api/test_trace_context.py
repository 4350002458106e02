"""The ``traceparent`` of a message: which headers are valid, and that hops carry it without a change to old ones."""

from __future__ import annotations

import pytest

from sparkbolt.api.story import Hop, Story, merged
from sparkbolt.api.trace_context import traceparent_of
from sparkbolt.api.tree_life import TreeState

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (PARENT.encode(), PARENT),
        (PARENT, PARENT),
        (None, None),
        (b"", None),
        (PARENT.upper().encode(), None),
        (PARENT.encode() + b"-extra", None),
        (b"01" + PARENT[2:].encode() + b"-later", "01" + PARENT[2:]),
        (b"01" + PARENT[2:].encode() + b"later", None),
        (b"ff" + PARENT[2:].encode(), None),
        (b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
        (b"\xff\xfe", None),
        (PARENT.encode()[:-1], None),
    ],
)
def test_a_header_is_taken_as_the_specification_says(value: bytes | str | None, found: str | None) -> None:
    assert traceparent_of([("other", b"x"), ("TraceParent", value)]) == found


def test_a_message_without_the_header_has_no_parent() -> None:
    assert traceparent_of([]) is None
    assert traceparent_of([("tracestate", b"a=b")]) is None


def test_a_hop_without_a_parent_is_written_as_before_and_one_of_before_is_read() -> None:
    hop = Hop(1, 12, 34, 0, "lines", 0, values="{'line': 'a'}", emitted=(("line", 1),))
    assert hop.to_json() == [1, 12, 34, 0, "lines", 0, 0, 0, 0, 0, "", "{'line': 'a'}", (("line", 1),)]
    assert Hop.from_json([*hop.to_json()[:-1], [["line", 1]]]) == hop


def test_a_parent_is_written_with_its_hop_and_read_again() -> None:
    hop = Hop(1, 12, 34, 0, "lines", 0, emitted=(("line", 1),), trace_parent=PARENT)
    assert Hop.from_json(hop.to_json()) == hop


def test_a_story_has_the_parent_of_its_first_hop_and_shows_it_once() -> None:
    spout, bolt = Hop(1, 0, 0, 0, "lines", 0, trace_parent=PARENT), Hop(1, 0, 0, 1, "split", 0, tuples=1, acked=1)
    again = Hop(1, 0, 0, 0, "lines", 0, emitted=(("line", 1),))
    story = Story(1, "lines", 0, TreeState.ACKED, hops=tuple(merged([bolt, again, spout])))
    assert story.trace_parent == PARENT
    shown = story.to_json()
    assert shown["trace_parent"] == PARENT
    assert all("trace_parent" not in hop for hop in shown["hops"])
    assert "trace_parent" not in Story(1, "lines", 0, TreeState.ACKED, hops=(bolt,)).to_json()
