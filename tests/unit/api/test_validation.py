"""What build() finds to be a mistake, and what it says of it."""

import re
import threading
from typing import Any

import pytest

from sparkbolt.api.components import AsyncBolt, BasicBolt
from sparkbolt.api.groupings import ShuffleGrouping
from sparkbolt.api.topology import TopologyBuilder
from sparkbolt.errors import ConfigError, InvalidTopology
from tests.topologies import Count, Split
from tests.unit.api.declared import Anywhere, Columns, Lines, Log, mistakes, the_mistake, words


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


def test_outputs_that_were_forgotten_are_a_mistake_that_says_how_to_give_them() -> None:
    class Forgetful(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None: ...

    for stream, outputs in (("default", '["field", ...]'), ("odd", '{"odd": ["field", ...]}')):
        builder = words()
        builder.set_bolt("bolt", Forgetful()).shuffle_grouping("split")
        builder.set_bolt("next", Count()).shuffle_grouping("bolt", stream)
        assert the_mistake(builder) == (
            f"bolt 'next': it subscribes to stream {stream!r} of 'bolt', which 'bolt' does not declare: it declares "
            f"none: give it outputs = {outputs}"
        )


def test_a_field_of_another_stream_is_a_mistake_though_storm_lets_it_pass() -> None:
    builder = words()
    builder.set_bolt("count", Count()).fields_grouping("lines", ["why"])
    assert the_mistake(builder).startswith("bolt 'count': it groups stream 'default' of 'lines' by 'why', which")


@pytest.mark.parametrize("method", ["fields_grouping", "partial_key_grouping"])
def test_fields_that_are_a_str_are_a_mistake(method: str) -> None:
    builder = words()
    getattr(builder.set_bolt("count", Count()), method)("split", "word")
    assert "bolt 'count': it subscribes to 'split': " in the_mistake(builder)
    assert "did you mean ['word']?" in the_mistake(builder)


def test_fields_grouping_by_no_fields_is_global_grouping_as_in_storm() -> None:
    builder = words()
    builder.set_bolt("count", Count()).fields_grouping("split", [])
    assert builder.build().components["count"].subscriptions[0].grouping.describe() == "global"


def test_an_id_given_twice_is_a_mistake() -> None:
    builder = words()
    builder.set_bolt("lines", Count()).shuffle_grouping("split")
    assert "bolt 'lines': the id is already that of a spout" in mistakes(builder)


@pytest.mark.parametrize("name", ["", "__x", "a/b", "a.b", "a:b", "a\\b", 7, None, ["x"]])
def test_a_name_that_cannot_be_one_is_a_mistake(name: Any) -> None:
    builder = words()
    builder.set_bolt(name, Count()).shuffle_grouping("split")
    assert the_mistake(builder).startswith(f"bolt {name!r}: its id: ")
    assert the_mistake(words(name)).startswith("the topology's name: ")


@pytest.mark.parametrize("stream", ["__ack", "a.b"])
def test_a_stream_with_a_name_of_the_systems_is_a_mistake(stream: str) -> None:
    builder = words()
    count = Count()
    count.outputs = {stream: ["x"]}
    builder.set_bolt("count", count).shuffle_grouping("split")
    assert the_mistake(builder).startswith(f"bolt 'count': its stream {stream!r}: ")


def test_direct_grouping_wants_a_direct_stream() -> None:
    builder = words()
    builder.set_bolt("count", Count()).direct_grouping("split")
    assert "the stream is not declared as Direct([...])" in the_mistake(builder)


def test_a_direct_stream_wants_direct_grouping() -> None:
    builder = words()
    builder.set_bolt("count", Count()).all_grouping("lines", "named")
    assert "with all, but the stream is direct, expected direct_grouping" in the_mistake(builder)


def test_a_topology_without_a_spout_is_a_mistake() -> None:
    assert the_mistake(TopologyBuilder("empty")) == "there is no spout: a topology needs at least one"


def test_a_bolt_that_subscribes_to_nothing_is_a_mistake() -> None:
    builder = words()
    builder.set_bolt("count", Count())
    assert the_mistake(builder).startswith("bolt 'count': it subscribes to nothing")


def test_a_cycle_is_a_mistake_that_shows_the_way_once() -> None:
    builder = words()
    builder.set_bolt("a", Split()).shuffle_grouping("split").shuffle_grouping("c")
    builder.set_bolt("b", Split()).shuffle_grouping("a")
    builder.set_bolt("c", Split()).shuffle_grouping("b")
    builder.set_bolt("after", Split()).shuffle_grouping("c")
    assert the_mistake(builder) == ("bolt 'a': its tuples come back to it, a -> b -> c -> a: cycles are not possible")


def test_a_bolt_that_subscribes_to_itself_is_a_cycle() -> None:
    builder = words()
    builder.set_bolt("a", Split()).shuffle_grouping("split").shuffle_grouping("a")
    assert "a -> a" in the_mistake(builder)


@pytest.mark.parametrize("parallelism", [0, 1.0, "2", None])
def test_a_parallelism_that_is_none_is_a_mistake(parallelism: Any) -> None:
    builder = words()
    builder.set_bolt("count", Count(), parallelism).shuffle_grouping("split")
    expected = f"bolt 'count': its parallelism={parallelism!r}: expected a whole number of at least 1"
    assert the_mistake(builder) == expected


def test_more_tasks_than_there_are_numbers_is_a_mistake() -> None:
    builder = words()
    builder.set_bolt("count", Count(), 65_530).shuffle_grouping("split")
    assert builder.build().tasks("split")[-1] == 65_535
    builder.set_bolt("more", Count()).shuffle_grouping("split")
    assert the_mistake(builder) == "all components together have 65536 tasks, expected at most 65535"


@pytest.mark.parametrize("outputs", ["word", ["a", "a"], {"": ["a"]}, {"default": 7}, [1]])
def test_outputs_that_are_none_are_a_mistake_of_that_component_alone(outputs: Any) -> None:
    builder = words()
    count = Count()
    count.outputs = outputs
    builder.set_bolt("count", count).shuffle_grouping("split")
    builder.set_bolt("after", Count()).fields_grouping("count", ["word"])
    assert the_mistake(builder).startswith("bolt 'count': its outputs: ")


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


def test_a_second_subscription_to_the_same_stream_is_a_mistake_though_storm_replaces_in_silence() -> None:
    builder = words()
    builder.set_bolt("count", Count()).shuffle_grouping("split").fields_grouping("split", ["word"])
    assert "bolt 'count': it subscribes twice to stream 'default' of 'split'" in the_mistake(builder)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Split, "got the class Split, expected an instance: did you mean Split()?"),
        (len, "got the function len, expected a bolt: did you forget @bolt(outputs=[...]) above it?"),
        (Lines(), "got a spout (Lines), expected a bolt: did you mean set_spout?"),
        (7, "got int, expected an instance of a bolt class"),
    ],
)
def test_what_is_no_bolt_is_a_mistake(wrong: Any, why: str) -> None:
    builder = words()
    builder.set_bolt("b", wrong).shuffle_grouping("lines")
    builder.set_bolt("after", Split()).fields_grouping("b", ["word"])
    assert the_mistake(builder) == f"bolt 'b': {why}"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Lines, "got the class Lines, expected an instance: did you mean Lines()?"),
        (len, "got the function len, expected a spout"),
        (Split(), "got a bolt (Split), expected a spout: did you mean set_bolt?"),
    ],
)
def test_what_is_no_spout_is_a_mistake(wrong: Any, why: str) -> None:
    builder = words()
    builder.set_spout("s", wrong)
    assert the_mistake(builder) == f"spout 's': {why}"


@pytest.mark.parametrize(
    ("dictionaries", "why"),
    [
        ("word", r"expected a list of names, such as \['word'\]"),
        (["wrod", "word"], "name 'wrod'.*did you mean 'word'"),
        (["x"], "fields are"),
    ],
)
def test_dictionaries_of_what_is_no_field_are_a_mistake(dictionaries: Any, why: str) -> None:
    builder = words()
    columns = Columns()
    columns.dictionaries = dictionaries
    builder.set_bolt("columns", columns).shuffle_grouping("split")
    assert re.search(f"^bolt 'columns': its dictionaries.*{why}", the_mistake(builder))


def test_a_grouping_class_instead_of_an_instance_is_a_mistake() -> None:
    builder = words()
    builder.set_bolt("count", Count()).grouping("split", ShuffleGrouping)  # type: ignore[arg-type]
    assert "expected an instance of a Grouping class" in the_mistake(builder)


@pytest.mark.parametrize(
    ("name", "meant"), [("shuffle", "shuffle_grouping"), ("fieldsGrouping", "fields_grouping"), ("all", "all_grouping")]
)
def test_a_grouping_that_does_not_exist_is_told_with_the_nearest(name: str, meant: str) -> None:
    declarer = TopologyBuilder("t").set_bolt("split", Split())
    with pytest.raises(AttributeError, match=f"what set_bolt returns has no '{name}': did you mean '{meant}'"):
        getattr(declarer, name)


def test_a_wrong_name_of_an_argument_is_told_with_the_nearest() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", Lines(), paralelism=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidTopology, match="unknown setting 'paralelism': did you mean 'parallelism'"):
        builder.build()


class Waits(AsyncBolt):
    outputs = ["word"]

    async def execute(self, tup: Any, collector: Any) -> None: ...


@pytest.mark.parametrize(
    ("kind", "name", "value", "why"),
    [
        (Waits, "concurrency", 0, "expected a whole number of at least 1"),
        (Split, "transient", "word", "expected a list of names, such as ['word']"),
        (Split, "stateless", "no", "expected True or False"),
        (Count, "starts_trees", "no", "expected True or False"),
        (Log, "tracked", "no", "expected True or False"),
        (Log, "max_uncommitted", "5", "expected a whole number of at least 1, or None"),
    ],
)
def test_an_attribute_that_says_what_a_component_is_has_a_value_that_says_it(
    monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, value: Any, why: str
) -> None:
    monkeypatch.setattr(kind, name, value)
    builder = TopologyBuilder("t")
    builder.set_spout("log", Log())
    builder.set_bolt("bolt", kind() if kind is not Log else Split()).shuffle_grouping("log")
    with pytest.raises(InvalidTopology, match=rf"its {name}=.*{re.escape(why)}"):
        builder.build()


@pytest.mark.parametrize("config", [5, {}, "c"])
def test_what_is_no_config_is_refused_where_it_is_given(config: Any) -> None:
    with pytest.raises(ConfigError, match="expected a Config"):
        TopologyBuilder("t", config)


@pytest.mark.parametrize("odd", [[], {}, 5])
def test_a_subscription_names_a_component_and_a_stream(odd: Any) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("log", Log())
    builder.set_bolt("split", Split()).shuffle_grouping(odd)
    builder.set_bolt("count", Count()).shuffle_grouping("log", odd)
    with pytest.raises(InvalidTopology, match="expected the id of a component"):
        builder.build()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a\nb", "cannot be printed"),
        ("a\x1b[0m", "cannot be printed"),
        ("a/b", "has one of"),
        ("__b", "begins with '__'"),
        ("b\ud800", "has half of a pair of characters"),
        ("b" * 201, "is 201 bytes long, and 200 is the most"),
        ("\u00e9" * 101, "is 202 bytes long, and 200 is the most"),
        ("", "expected a non-empty str"),
    ],
)
def test_a_name_that_no_file_can_have_is_refused(name: str, why: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("log", Log())
    builder.set_bolt(name, Count()).shuffle_grouping("log")
    with pytest.raises(InvalidTopology, match=re.escape(why)):
        builder.build()
