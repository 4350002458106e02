"""Numbers of tasks, streams and subscriptions: kept by what goes on, never used twice."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.api.numbering import Numbering
from sparkbolt.errors import UnknownNameError


class Part(NamedTuple):
    parallelism: int
    stream_names: tuple[str, ...] = ("default",)
    inputs: tuple[tuple[str, str], ...] = ()


LINES = Part(1)
COUNT = Part(2, inputs=(("lines", "default"),))


def test_a_new_topology_is_numbered_by_names_from_one_on() -> None:
    one = Numbering.of({"lines": LINES, "count": COUNT})
    assert one.tasks == {"count": (1, 2), "lines": (3,)}
    assert one.streams == (("count", "default"), ("lines", "default"))
    assert one.subscriptions == (("count", "lines", "default"),)
    assert one.owner(2) == ("count", 1)
    with pytest.raises(UnknownNameError, match="there is no task 4"):
        one.owner(4)


def test_what_goes_on_keeps_its_numbers_and_what_is_new_gets_new_ones() -> None:
    one = Numbering.of({"lines": LINES, "count": COUNT})
    more = Numbering.of({"lines": LINES, "count": COUNT._replace(parallelism=3), "alert": COUNT}, one)
    assert more.tasks == {"alert": (4, 5), "count": (1, 2, 6), "lines": (3,)}
    assert more.streams == (*one.streams, ("alert", "default"))
    assert more.subscriptions == (*one.subscriptions, ("alert", "lines", "default"))


def test_the_number_of_a_task_that_is_gone_names_it_and_is_never_used_again() -> None:
    one = Numbering.of({"lines": LINES, "count": COUNT})
    fewer = Numbering.of({"lines": LINES, "count": COUNT._replace(parallelism=1)}, one)
    assert fewer.owner(2) == ("count", 1)
    again = Numbering.of({"lines": LINES, "count": COUNT}, fewer)
    assert again.tasks["count"] == (1, 4)
    without = Numbering.of({"lines": LINES}, again)
    assert [without.owner(number) for number in (1, 2, 4)] == [("count", 0), ("count", 1), ("count", 1)]
    assert Numbering.of({"lines": LINES, "count": COUNT}, without).tasks["count"] == (5, 6)


def test_a_stream_that_comes_back_has_its_number_again() -> None:
    one = Numbering.of({"lines": Part(1, ("default", "odd"))})
    without = Numbering.of({"lines": LINES}, one)
    assert without.stream_numbers["lines", "odd"] == 1
    assert Numbering.of({"lines": Part(1, ("default", "odd"))}, without).streams == one.streams


def test_a_renamed_component_keeps_all_its_numbers() -> None:
    one = Numbering.of({"lines": LINES, "count": COUNT})
    renamed = one.renamed({"lines": "log"})
    assert Numbering.of({"log": LINES, "count": COUNT._replace(inputs=(("log", "default"),))}, renamed) == renamed
    assert renamed.tasks == {"count": (1, 2), "log": (3,)}
    assert renamed.subscriptions == (("count", "log", "default"),)


PARTS = st.builds(
    Part,
    st.integers(1, 4),
    st.sampled_from([("default",), ("default", "odd"), ()]),
    st.sampled_from([(), (("a", "default"),), (("a", "default"), ("b", "odd"))]),
)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), PARTS), min_size=2, max_size=8))
def test_over_any_changes_no_number_means_two_things(shapes: list[dict[str, Part]]) -> None:
    known: dict[int, tuple[str, int]] = {}
    numbering = Numbering()
    for parts in shapes:
        before, numbering = numbering, Numbering.of(parts, numbering)
        assert {id_: len(own) for id_, own in numbering.tasks.items()} == {
            id_: part.parallelism for id_, part in parts.items()
        }
        for number, owner in numbering.owners.items():
            assert known.setdefault(number, owner) == owner
        for id_ in before.tasks.keys() & numbering.tasks.keys():
            kept = min(len(before.tasks[id_]), len(numbering.tasks[id_]))
            assert numbering.tasks[id_][:kept] == before.tasks[id_][:kept]
        assert numbering.streams[: len(before.streams)] == before.streams
        assert len(set(numbering.streams)) == len(numbering.streams)
        assert Numbering.from_json(numbering.to_json()) == numbering
