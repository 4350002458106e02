"""The ``traceparent`` of a message: which headers are valid, and that hops carry it without a change to old ones."""

from __future__ import annotations

import pytest

from sparkbolt.api.story import Hop, Story, merged
from sparkbolt.api.trace_context import traceparent_of
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.codec import decode, encode

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (PARENT.encode(), PARENT),
        (None, None),
        (PARENT.upper().encode(), None),
        (b"01" + PARENT[2:].encode() + b"later", None),
        (b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
        (PARENT.encode()[:-1], None),
    ],
)
def test_a_header_is_parsed_as_specified(value: bytes | str | None, found: str | None) -> None:
    assert traceparent_of([("other", b"x"), ("TraceParent", value)]) == found


def test_a_parent_is_written_with_its_hop_and_read_back() -> None:
    hop = Hop(1, 12, 34, 0, "lines", 0, emitted=(("line", 1),), trace_parent=PARENT)
    assert decode(Hop, encode(hop)) == hop


def test_a_story_has_the_parent_of_its_first_hop_and_shows_it_once() -> None:
    spout, bolt = Hop(1, 0, 0, 0, "lines", 0, trace_parent=PARENT), Hop(1, 0, 0, 1, "split", 0, tuples=1, acked=1)
    again = Hop(1, 0, 0, 0, "lines", 0, emitted=(("line", 1),))
    story = Story(1, "lines", 0, TreeState.ACKED, hops=tuple(merged([bolt, again, spout])))
    assert story.trace_parent == PARENT
    shown = story.to_json()
    assert shown["trace_parent"] == PARENT
    assert all("trace_parent" not in hop for hop in shown["hops"])
    assert "trace_parent" not in Story(1, "lines", 0, TreeState.ACKED, hops=(bolt,)).to_json()
