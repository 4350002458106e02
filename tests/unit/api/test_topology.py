"""Topologies: what is declared, and the numbers that follow from names."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkbolt.api.config import Config
from sparkbolt.api.groupings import ShuffleGrouping
from sparkbolt.api.statefulness import keeps_state
from sparkbolt.api.topology import Topology
from sparkbolt.api.tuples import StreamDef
from sparkbolt.streams import TopologyBuilder
from tests.topologies import Count, Split
from tests.unit.api.declared import Lines, Log, Stateless, Storing, upper, words


def test_a_topology_knows_its_components_in_the_order_of_declaration() -> None:
    builder = words(config=Config(debug=True))
    builder.set_bolt("count", Count(), 4, tick_tuple_freq_secs=5).fields_grouping("split", ["word"])
    topology = builder.build()
    assert list(topology.components) == ["lines", "split", "count"]
    assert [spec.id for spec in topology.spouts] == ["lines"]
    assert [spec.id for spec in topology.bolts] == ["split", "count"]
    count = topology.components["count"]
    assert (count.parallelism, count.config.tick_tuple_freq_secs, count.config.debug) == (4, 5, True)
    assert topology.components["split"].config == topology.config == Config(debug=True)
    assert count.stream("default") == StreamDef("default", ("word", "count"))
    with pytest.raises(KeyError, match="'count' declares no stream 'odd': its streams are"):
        count.stream("odd")
    with pytest.raises(KeyError, match="has no component 'cuont'"):
        topology.tasks("cuont")


def test_task_numbers_start_at_one_and_follow_the_order_of_component_ids() -> None:
    builder = words()
    builder.set_bolt("count", Count(), 4).fields_grouping("split", ["word"])
    topology = builder.build()
    assert topology.tasks("count") == (1, 2, 3, 4)
    assert topology.tasks("lines") == (5, 6)
    assert topology.tasks("split") == (7, 8, 9)
    for id_ in topology.components:
        assert [topology.task_owner(task) for task in topology.tasks(id_)] == [
            (id_, index) for index in range(topology.components[id_].parallelism)
        ]
    for nobody in (0, 10, -1):
        with pytest.raises(KeyError, match=f"no task {nobody}"):
            topology.task_owner(nobody)


def test_streams_and_subscriptions_are_numbered_by_names_whatever_the_order_of_declaration() -> None:
    def declare(order: list[str]) -> Topology:
        builder = TopologyBuilder("t")
        steps: dict[str, Callable[[], Any]] = {
            "lines": lambda: builder.set_spout("lines", Lines()),
            "a": lambda: builder.set_bolt("a", Split()).shuffle_grouping("lines", "odd").all_grouping("lines"),
            "b": lambda: builder.set_bolt("b", Count()).fields_grouping("a", ["word"]).global_grouping("lines"),
        }
        for step in order:
            steps[step]()
        return builder.build()

    one, other = declare(["lines", "a", "b"]), declare(["b", "a", "lines"])
    assert one.numbering == other.numbering
    names = list(one.numbering.streams)
    assert names == [
        ("a", "default"),
        ("b", "default"),
        ("lines", "default"),
        ("lines", "named"),
        ("lines", "odd"),
    ]
    assert [one.stream_index(*name) for name in names] == list(range(5))
    for topology in (one, other):
        found = {name: [(spec.id, index) for spec, index, _ in topology.consumers(*name)] for name in names}
        assert found == {
            ("a", "default"): [("b", 2)],
            ("b", "default"): [],
            ("lines", "default"): [("a", 0), ("b", 3)],
            ("lines", "named"): [],
            ("lines", "odd"): [("a", 1)],
        }
    assert one.fingerprint() == other.fingerprint()
    assert one.consumers("lines", "odd")[0][2] == ShuffleGrouping()
    with pytest.raises(KeyError, match="declares no stream 'x'"):
        one.stream_index("a", "x")


def test_function_bolts_stateless_bolts_and_bolts_that_store_nothing_keep_no_state() -> None:
    keeping = [keeps_state(c) for c in (upper, Stateless(), Split(), Storing(), Lines())]
    assert keeping == [False, False, False, True, False]


def test_a_topology_is_pickled_whole() -> None:
    builder = words()
    builder.set_bolt("upper", upper).fields_grouping("split", ["word"])
    topology = builder.build()
    topology = topology.numbered(replace(topology.numbering, retired={99: ("gone", 0)}))
    again = pickle.loads(pickle.dumps(topology))
    assert again.fingerprint() == topology.fingerprint()
    assert again.describe() == topology.describe()
    assert again.components["split"].config == topology.config
    assert again.task_owner(99) == ("gone", 0)


def test_a_fingerprint_and_a_description_are_json() -> None:
    builder = words()
    builder.set_spout("log", Log())
    builder.set_bolt("upper", upper).fields_grouping("split", ["word"])
    topology = builder.build()
    assert json.loads(json.dumps(topology.fingerprint())) == topology.fingerprint()
    assert json.loads(json.dumps(topology.describe())) == topology.describe()
    kinds = {entry["id"]: entry["kind"] for entry in topology.describe()["components"]}
    assert kinds == {
        "lines": "spout", "split": "stateless bolt", "log": "partitioned spout", "upper": "stateless bolt",
    }  # fmt: skip
