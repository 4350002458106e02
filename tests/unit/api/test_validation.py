"""What build() finds to be a mistake, and what it says of it."""

import re
import threading
from typing import Any

import pytest

from sparkbolt.api.config import Config
from sparkbolt.errors import InvalidTopology
from sparkbolt.streams import TopologyBuilder
from tests.topologies import Count, Split
from tests.unit.api.declared import Anywhere, Lines, Log, mistakes, the_mistake, words


def test_all_mistakes_are_named_at_once_each_with_its_component() -> None:
    builder = TopologyBuilder("a/b")
    builder.set_bolt("split", Split(), 0).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), fuze=1)  # type: ignore[call-arg]
    found = mistakes(builder)
    assert len(found) == 6
    for part in (
        "name",
        "bolt 'split': its parallelism",
        "bolt 'split': it subscribes",
        "bolt 'count': unknown",
        "no spout",
    ):
        assert any(part in mistake for mistake in found), part


def test_an_unknown_component_is_a_mistake_with_the_nearest_one() -> None:
    builder = words()
    builder.set_bolt("count", Count()).fields_grouping("spilt", ["word"])
    assert the_mistake(builder) == (
        "bolt 'count': it subscribes to 'spilt', which does not exist: did you mean 'split'?"
    )


def test_an_unknown_stream_is_a_mistake() -> None:
    builder = words()
    builder.set_bolt("count", Count()).shuffle_grouping("lines", "errors")
    assert "which 'lines' does not declare: it declares ['default', 'odd', 'named']" in the_mistake(builder)


def test_a_field_of_another_stream_is_a_mistake_although_storm_allows_it() -> None:
    builder = words()
    builder.set_bolt("count", Count()).fields_grouping("lines", ["why"])
    assert the_mistake(builder).startswith("bolt 'count': it groups stream 'default' of 'lines' by 'why', which")


def test_fields_grouping_by_no_fields_is_global_grouping_as_in_storm() -> None:
    builder = words()
    builder.set_bolt("count", Count()).fields_grouping("split", [])
    assert builder.build().components["count"].subscriptions[0].grouping.describe() == "global"


def test_an_id_given_twice_is_a_mistake() -> None:
    builder = words()
    builder.set_bolt("lines", Count()).shuffle_grouping("split")
    assert "bolt 'lines': the id is already that of a spout" in mistakes(builder)


@pytest.mark.parametrize("name", ["", "__x", "a/b", "a.b", "a:b", "a\\b", 7, None, ["x"]])
def test_an_invalid_name_is_a_mistake(name: Any) -> None:
    builder = words()
    builder.set_bolt(name, Count()).shuffle_grouping("split")
    assert the_mistake(builder).startswith(f"bolt {name!r}: its id: ")
    assert the_mistake(words(name)).startswith("the topology's name: ")


def test_direct_grouping_requires_a_direct_stream() -> None:
    builder = words()
    builder.set_bolt("count", Count()).direct_grouping("split")
    assert "the stream is not declared as Direct([...])" in the_mistake(builder)


def test_a_direct_stream_requires_direct_grouping() -> None:
    builder = words()
    builder.set_bolt("count", Count()).all_grouping("lines", "named")
    assert "with all, but the stream is direct, expected direct_grouping" in the_mistake(builder)


def test_a_topology_without_a_spout_is_a_mistake() -> None:
    assert the_mistake(TopologyBuilder("empty")) == "there is no spout: a topology needs at least one"


def test_a_bolt_that_subscribes_to_nothing_is_a_mistake() -> None:
    builder = words()
    builder.set_bolt("count", Count())
    assert the_mistake(builder).startswith("bolt 'count': it subscribes to nothing")


def test_a_cycle_is_a_mistake_that_shows_the_path_once() -> None:
    builder = words()
    builder.set_bolt("a", Split()).shuffle_grouping("split").shuffle_grouping("c")
    builder.set_bolt("b", Split()).shuffle_grouping("a")
    builder.set_bolt("c", Split()).shuffle_grouping("b")
    builder.set_bolt("after", Split()).shuffle_grouping("c")
    assert the_mistake(builder) == (
        "bolt 'a': its tuples come back to it, a -> b -> c -> a: give its subscription to 'c' feedback=True, and it "
        "gets these tuples in the next micro-batch"
    )


def test_a_cycle_with_a_feedback_subscription_is_no_mistake_and_one_without_is() -> None:
    builder = words()
    builder.set_bolt("a", Split()).shuffle_grouping("split").shuffle_grouping("b", feedback=True)
    b = builder.set_bolt("b", Split()).shuffle_grouping("a").shuffle_grouping("b", "default", feedback=True)
    builder.build()
    builder.set_bolt("c", Split()).shuffle_grouping("b")
    b.shuffle_grouping("c")
    assert "b -> c -> b" in the_mistake(builder)


def test_feedback_must_be_true_or_false() -> None:
    builder = words()
    builder.set_bolt("a", Split()).shuffle_grouping("split", feedback="yes")  # type: ignore[arg-type]
    assert the_mistake(builder) == "bolt 'a': it subscribes to 'split' with feedback='yes', expected True or False"


def test_a_transactional_topology_has_no_feedback() -> None:
    builder = words(config=Config(transactional=True))
    builder.set_bolt("a", Split()).shuffle_grouping("split").shuffle_grouping("a", feedback=True)
    assert "its subscription to 'a' has feedback=True, whose tuples wait" in the_mistake(builder)


def test_settings_that_a_component_cannot_have_are_mistakes() -> None:
    builder = words()
    builder.set_bolt("count", Count(), acker_tasks=1).shuffle_grouping("split")  # type: ignore[call-arg]
    builder.set_bolt("more", Count(), fuse="no").shuffle_grouping("split")  # type: ignore[arg-type]
    found = mistakes(builder)
    assert found[0].startswith("bolt 'count': setting 'acker_tasks' belongs to the whole topology")
    assert found[1] == "bolt 'more': fuse='no': expected True or False"


def test_a_grouping_that_cannot_be_pickled_is_a_mistake() -> None:
    builder = words()
    grouping = Anywhere()
    grouping.lock = threading.Lock()  # type: ignore[attr-defined]
    builder.set_bolt("count", Count()).grouping("split", grouping)
    assert the_mistake(builder).startswith("bolt 'count': its grouping custom(Anywhere) cannot be pickled")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Split, "got the class Split, expected an instance: did you mean Split()?"),
        (len, "got the function len, expected a bolt: did you forget @bolt(outputs=[...]) above it?"),
        (Lines(), "got a spout (Lines), expected a bolt: did you mean set_spout?"),
        (7, "got int, expected an instance of a bolt class"),
    ],
)
def test_object_that_is_not_a_bolt_is_a_mistake(wrong: Any, why: str) -> None:
    builder = words()
    builder.set_bolt("b", wrong).shuffle_grouping("lines")
    builder.set_bolt("after", Split()).fields_grouping("b", ["word"])
    assert the_mistake(builder) == f"bolt 'b': {why}"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a\nb", "cannot be printed"),
        ("a/b", "has one of"),
        ("b" * 201, "is 201 bytes long, and 200 is the most"),
        ("", "expected a non-empty str"),
    ],
)
def test_a_name_invalid_for_a_file_is_refused(name: str, why: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("log", Log())
    builder.set_bolt(name, Count()).shuffle_grouping("log")
    with pytest.raises(InvalidTopology, match=re.escape(why)):
        builder.build()


def test_a_second_subscription_to_a_stream_is_a_mistake_although_storm_silently_replaces_the_first() -> None:
    builder = words()
    builder.set_bolt("count", Count()).shuffle_grouping("split").fields_grouping("split", ["word"])
    assert "bolt 'count': it subscribes twice to stream 'default' of 'split'" in the_mistake(builder)
