"""What a notebook shows: a picture, a table, and nothing that a name or an error could smuggle in."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkbolt import RunningTopology, Topology, TopologyBuilder
from sparkbolt.api.user_metrics import MetricKind, UserMetric
from sparkbolt.faces.drawing.html import METRICS_SHOWN, running_html, topology_html
from sparkbolt.faces.drawing.svg import svg_drawing
from sparkbolt.listeners import ComponentMetrics, TopologyMetrics
from sparkbolt.types import ComponentState
from tests.topologies import Split
from tests.unit.faces.cli.words import Lines, Sink

SCRIPT = "\"><script>alert('1')<img src=x onerror=alert(1)>&amp;"


def built(name: str = "words") -> Topology:
    builder = TopologyBuilder(name)
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Sink()).shuffle_grouping("split")
    return builder.build()


class Elements(HTMLParser):
    """The elements of a text, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class Shown(RunningTopology):
    """A running topology that is what a test says."""

    def __init__(self, topology: Topology, **shown: Any) -> None:
        self.topology = topology
        self.shown = {
            "metrics": TopologyMetrics(),
            "failure": None,
            "is_running": True,
            "trouble": None,
            "waits_for": None,
            "outages": [],
            "retries": 0,
        } | shown

    def metrics(self) -> TopologyMetrics:
        return self.shown["metrics"]

    def state(self, component: str, as_of: int | None = None) -> ComponentState:
        raise NotImplementedError

    failure = property(lambda self: self.shown["failure"])
    is_running = property(lambda self: self.shown["is_running"])
    trouble = property(lambda self: self.shown["trouble"])
    waits_for = property(lambda self: self.shown["waits_for"])
    outages = property(lambda self: self.shown["outages"])
    retries = property(lambda self: self.shown["retries"])


for _name in RunningTopology.__abstractmethods__ - set(vars(Shown)):
    setattr(Shown, _name, None)
Shown.__abstractmethods__ = frozenset()


def cells(text: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_topology_is_shown_as_its_picture() -> None:
    [(tag, attributes)] = Elements(built()._repr_html_()).found
    kind, _, data = str(attributes["src"]).partition(",")
    assert (tag, kind) == ("img", "data:image/svg+xml;base64")
    assert base64.b64decode(data).decode() == svg_drawing(built(), on_white=True)
    assert "background:white" in str(attributes["style"])
    assert attributes["alt"] == "topology words: lines, split, count"


def test_a_running_topology_is_shown_with_its_state_counts_and_latencies() -> None:
    counts = {
        "lines": ComponentMetrics(emitted=1200, acked=1100, failed=1, pending=99, waiting=1),
        "split": ComponentMetrics(emitted=5000, executed=1000, acked=1000, execute_ms=25.0),
    }
    metrics = TopologyMetrics(counts, micro_batches=12, open_trees=99, complete_latency_ms=512.4)
    text = Shown(built(), metrics=metrics, retries=1)._repr_html_()
    assert (
        "<b>words</b>: running, 12 micro-batches, 99 open trees, 1 waiting for a retry, complete latency 512 ms" in text
    )
    head, *rows = cells(text)
    assert [dict(zip(head, row, strict=True)) for row in rows][:2] == [
        {"component": "lines", "tasks": "1", "emitted": "1,200", "executed": "0", "acked": "1,100", "failed": "1"}
        | {"errors": "0", "pending": "99", "waiting": "1", "execute": ""},
        {"component": "split", "tasks": "2", "emitted": "5,000", "executed": "1,000", "acked": "1,000", "failed": "0"}
        | {"errors": "0", "pending": "", "waiting": "", "execute": "0.025 ms"},
    ]
    assert rows[2][0] == "count", "also a component that has counted nothing yet"


def test_a_running_topology_shows_the_metrics_that_its_components_declare() -> None:
    users = {(str(number),): [number] for number in range(METRICS_SHOWN)}
    own = {
        "sizes": UserMetric(MetricKind.HISTOGRAM, buckets=(1.0,), series={(): [1, 1, 4]}),
        "users": UserMetric(MetricKind.COUNTER, labels=("user",), series=dict(users)),
    }
    text = running_html(Shown(built(), metrics=TopologyMetrics({"split": ComponentMetrics(user=own)})))
    found = cells(text)
    assert ["split sizes", "", "2 values, mean 2, p50 1, p99 &gt; 1"] in found
    assert ["split users", "user=7", "7"] in found
    assert "and 1 more series" in text


@pytest.mark.parametrize(
    ("shown", "state", "sentences"),
    [
        ({}, "running", []),
        ({"is_running": False}, "stopped", []),
        ({"failure": "no Java", "is_running": False, "trouble": "no Java"}, "failed", ["no Java"]),
        ({"waits_for": "lines[0]: open has not returned"}, "starting", ["lines[0]: open has not returned"]),
        ({"trouble": "its query failed", "outages": ["count is out"]}, "running", ["its query failed", "count is out"]),
    ],
)
def test_state_is_a_word_and_problems_are_reported(shown: dict[str, Any], state: str, sentences: Sequence[str]) -> None:
    text = running_html(Shown(built(), **shown))
    assert f"</b>: {state}, " in text
    assert all(f"<div>{sentence}</div>" in text for sentence in sentences)
    assert text.count("<div>") == 1 + len(sentences)


@pytest.mark.parametrize("show", [topology_html, lambda topology: running_html(Shown(topology))])
def test_a_name_is_text_and_nothing_else(show: Callable[[Topology], str]) -> None:
    for name, attributes in Elements(show(built(SCRIPT))).found:
        assert name in {"img", "div", "b", "table", "tr", "th", "td"}
        assert not any(attribute.startswith("on") for attribute in attributes)
    ET.fromstring(svg_drawing(built(SCRIPT)))


@given(st.text())
def test_an_error_is_shown_as_plain_text_whatever_it_contains(error: str) -> None:
    found = Elements(running_html(Shown(built(), failure=error)))
    assert {name for name, _ in found.found} <= {"div", "b", "table", "tr", "th", "td"}
