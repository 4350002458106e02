"""What ``check`` tells and ``graph`` draws."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkbolt import (
    BasicBolt,
    Bolt,
    Committer,
    Config,
    RetryPolicy,
    Spout,
    Topology,
    TopologyBuilder,
    WindowedBolt,
    bolt,
)
from sparkbolt import Count as Tuples
from sparkbolt.control.describe import components_of
from sparkbolt.faces.cli.check import examine, report_lines, state_reason
from sparkbolt.faces.cli.graph import text_drawing
from sparkbolt.faces.drawing.svg import svg_drawing
from sparkbolt.layout.lane import lay_out
from tests.unit.faces.cli.words import Lines


class Queue(Spout):
    outputs = ["line"]

    def next_tuple(self, collector: Any) -> None: ...


class SplitOrError(BasicBolt):
    outputs = {"default": ["line"], "errors": ["line", "why"]}

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["line"]])


class CountOnce(BasicBolt):
    outputs = ["line", "count"]

    def prepare(self, context: Any) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["line"]] = 1


class Match(BasicBolt):
    outputs = ["line"]

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def execute(self, tup: Any, collector: Any) -> None:
        if self.pattern in tup["line"]:
            collector.emit([tup["line"]])


class Stateless(Match):
    stateless = True


class Sums(WindowedBolt):
    outputs = ["sum"]

    def __init__(self, name: str = "sum") -> None:
        self.name = name

    def execute(self, window: Any, collector: Any) -> None:
        collector.emit([len(window)])


class Remembering(Sums):
    def execute(self, window: Any, collector: Any) -> None:
        self.last = len(window)


class Keys(Bolt):
    outputs = ["line"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def execute(self, tup: Any, collector: Any) -> None: ...


@bolt(outputs=["line"])
def double(tup: Any) -> Any:
    yield [tup["line"]]


def words() -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines(), parallelism=2)
    builder.set_bolt("split", SplitOrError(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", CountOnce(), parallelism=2).fields_grouping("split", ["line"])
    builder.set_bolt("late", double).shuffle_grouping("split", "errors")
    return builder.build()


@pytest.mark.parametrize(
    ("component", "reason"),
    [
        (SplitOrError(), "stateless: it has no attributes, and its class never sets one"),
        (double, "stateless: it is a function"),
        (Stateless("x"), "stateless: its class has stateless = True"),
        (CountOnce(), "keeps state: prepare may store attributes"),
        (Match("x"), "keeps state: it was built with pattern"),
        (Keys(), "keeps state: it has init_state"),
        (Sums().with_tumbling_window(Tuples(3)), "keeps state: its windows"),
        (
            Remembering("x").with_tumbling_window(Tuples(3)),
            "keeps state: its windows, and execute may store attributes",
        ),
    ],
)
def test_check_says_why_a_bolt_keeps_state(component: Any, reason: str) -> None:
    assert state_reason(component) == reason


def test_check_reports_levels_stages_and_fusion() -> None:
    examination = examine(words(), cores=2)
    assert [(stage.name, stage.components, stage.stateful) for stage in examination.stages] == [
        ("source", ("lines", "split", "late"), False),
        ("level 1", ("count",), True),
    ]
    assert {component.id: component.fused_into for component in examination.components} == {
        "lines": None,
        "split": "lines",
        "count": None,
        "late": "split",
    }
    assert examination.floor_secs == pytest.approx(0.2)
    assert examination.warnings == ()
    text = "\n".join(report_lines(examination))
    assert "count x2 CountOnce (bolt) <- split fields(line) -> (line, count)" in re.sub(" +", " ", text)
    assert "count  runs by itself: it keeps state" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_ui_and_rest_number_levels_as_check_does() -> None:
    lane = lay_out(words(), cores=2)
    shown = {one["id"]: one["level"] for one in components_of(lane) if one["kind"] != "system"}
    assert shown == {one.id: one.level for one in examine(words(), cores=2).components}
    assert shown["split"] == 0  # it is fused with its spout


@pytest.mark.parametrize(
    ("declare", "warning"),
    [
        (
            lambda b: b.set_bolt("a", SplitOrError(), max_attempts=5).shuffle_grouping("lines"),
            "a: max_attempts has no effect on a bolt",
        ),
        (
            lambda b: b.set_bolt("a", SplitOrError(), retry=RetryPolicy()).shuffle_grouping("lines"),
            "a: retry has no effect on a bolt",
        ),
        (
            lambda b: b.set_bolt("a", SplitOrError(), max_hops=9).shuffle_grouping("lines"),
            "a: max_hops has no effect on a bolt",
        ),
        (lambda b: b.set_spout("a", Queue(), max_attempts=9), "a: max_attempts has no effect on a spout that cannot"),
        (
            lambda b: b.set_bolt("a", SplitOrError()).shuffle_grouping("lines"),
            "a: no bolt subscribes to its stream 'errors'",
        ),
        (lambda b: b.set_bolt("a", Match("x")).shuffle_grouping("lines"), "a: it seems to only read pattern"),
        (lambda b: b.set_bolt("a", double, tick_tuple_freq_secs=1).shuffle_grouping("lines"), "because of tick_tuple"),
    ],
)
def test_check_warns(declare: Any, warning: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", Lines())
    declare(builder)
    warnings = examine(builder.build(), cores=2).warnings
    assert any(warning in found for found in warnings), warnings


def test_check_warns_about_a_too_short_timeout_and_missing_ackers() -> None:
    builder = TopologyBuilder("t", Config(acker_tasks=0, message_timeout_secs=1))
    builder.set_spout("lines", Lines())
    assert len(examine(builder.build(), cores=2).warnings) == 2


class Nothing(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


class Nowhere(Committer):
    def commit(self, txid: int, rows: Any) -> None: ...


def test_check_reports_what_a_transactional_topology_guarantees_about_effects() -> None:
    builder = TopologyBuilder("shop", Config(transactional=True))
    builder.set_spout("lines", Lines())
    builder.set_bolt("count", CountOnce()).shuffle_grouping("lines")
    builder.set_bolt("out", Nowhere()).shuffle_grouping("count")
    builder.set_bolt("mail", Nothing(), effects="repeatable").shuffle_grouping("count")
    lines = list(report_lines(examine(builder.build(), 2)))
    at = lines.index("transactional: each message counts exactly once in state and in emitted tuples")
    assert lines[at + 1].split(maxsplit=1) == [
        "out",
        "committer: its rows are written once, after their micro-batch succeeds",
    ]
    assert lines[at + 2].split()[:2] == ["mail", "effects='repeatable':"]
    assert lines[at + 3] == ""
    plain = TopologyBuilder("shop")
    plain.set_spout("lines", Lines())
    assert not any("transactional" in line for line in report_lines(examine(plain.build(), 2)))


def test_the_text_drawing_has_stages_from_top_to_bottom() -> None:
    drawn = text_drawing(words()).replace("\N{MULTIPLICATION SIGN}", "x")
    assert drawn.splitlines() == [
        "words",
        "",
        "╭─ source ──────────────────────────────────────────╮",
        "│ ◉ lines x2  Lines                                 │",
        "│ └─ ■ split x2  SplitOrError  <- shuffle           │",
        "│    └─ ■ late x1  FunctionBolt  <- errors: shuffle │",
        "╰───────────────────────────────────────────────────╯",
        "   │  split  ──  fields(line)  ──▶  count",
        "   ▼",
        "╭─ level 1 · keeps state ───────────────────────────╮",
        "│ ■ count x2  CountOnce                             │",
        "╰───────────────────────────────────────────────────╯",
    ]


NAMES = ["a", "b & c", "<d>", "e" * 30, "f", "g"]


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any small topology: each bolt subscribes to one or more of the components before it."""
    builder = TopologyBuilder('any <&> "topology"')
    count = draw(st.integers(1, len(NAMES)))
    for number, name in enumerate(NAMES[:count]):
        if number == 0 or (number < 2 and draw(st.booleans())):
            builder.set_spout(name, Lines(), parallelism=draw(st.integers(1, 4)))
            continue
        declarer = builder.set_bolt(name, draw(st.sampled_from([SplitOrError(), CountOnce(), double])), parallelism=2)
        sources: Sequence[str] = draw(st.lists(st.sampled_from(NAMES[:number]), min_size=1, unique=True))
        for source in sources:
            if draw(st.booleans()):
                declarer.shuffle_grouping(source)
            else:
                declarer.fields_grouping(source, ["line"])
    return builder.build()


def rectangles(root: ET.Element, kind: str) -> list[tuple[float, float, float, float]]:
    found = [node for node in root.iter() if node.tag.endswith("rect") and kind in node.attrib["class"].split()]
    return [tuple(float(node.attrib[key]) for key in ("x", "y", "width", "height")) for node in found]  # type: ignore[misc]


@given(topologies())
def test_a_picture_is_well_formed_and_its_boxes_do_not_overlap_and_stay_inside_the_frame(topology: Topology) -> None:
    text = svg_drawing(topology)
    assert text == svg_drawing(topology)
    root = ET.fromstring(text)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = rectangles(root, "spout") + rectangles(root, "bolt")
    frames = rectangles(root, "frame")
    assert len(boxes) == len(topology.components)
    for x, y, w, h in boxes:
        assert any(x >= fx and x + w <= fx + fw and y >= fy and y + h <= fy + fh for fx, fy, fw, fh in frames)
    for place, (x, y, w, h) in enumerate(boxes):
        for ox, oy, ow, oh in boxes[place + 1 :]:
            assert x + w <= ox or ox + ow <= x or y + h <= oy or oy + oh <= y
    numbers = [
        float(number) for d in re.findall(r'class="edge" d="([^"]*)"', text) for number in re.findall(r"-?[\d.]+", d)
    ]
    assert all(0 <= number <= max(width, height) for number in numbers)
    labels = [node for node in root.iter() if node.attrib.get("class") == "label"]
    assert len(labels) == sum(len(spec.subscriptions) for spec in topology.bolts)
    places = [(node.attrib["x"], node.attrib["y"]) for node in labels]
    assert len(set(places)) == len(places)


def test_tasks_of_a_fused_bolt_that_receive_nothing_are_reported() -> None:
    @bolt(outputs=["line"])
    def slow(tup: Any) -> None: ...

    def told(spouts: int, **settings: Any) -> list[str]:
        builder = TopologyBuilder("words")
        builder.set_spout("lines", Lines(), parallelism=spouts)
        builder.set_bolt("slow", slow, parallelism=3, **settings).shuffle_grouping("lines")
        builder.set_bolt("slower", slow, parallelism=4, **settings).shuffle_grouping("slow")
        return list(examine(builder.build(), cores=4).warnings)

    assert told(5) == [
        "lines: 5 tasks on 4 cores: some of them run one after another",
        "slower: only 3 of its 4 tasks get tuples, because it is fused with 'slow', whose tasks feed one task each. "
        "Set fuse=False to use all tasks, or give 'slow' more tasks",
    ]
    first, second = told(1)
    assert first.startswith("slow: only 1 of its 3 tasks gets tuples, because it is fused with 'lines'")
    assert second.startswith("slower: only 1 of its 4 tasks gets tuples, because it is fused with 'slow'")
    assert told(1, fuse=False) == []


def test_a_loop_is_drawn_and_described_and_its_bolt_is_not_fused() -> None:
    builder = TopologyBuilder("loop")
    builder.set_spout("lines", Lines())
    first = builder.set_bolt("first", double).shuffle_grouping("lines")
    first.shuffle_grouping("second", feedback=True)
    builder.set_bolt("second", double, fuse=False).shuffle_grouping("first")
    topology = builder.build()
    lane = lay_out(topology, cores=1)
    assert "second  ──  shuffle, feedback  ──▶  first" in text_drawing(topology)
    assert "shuffle, feedback" in svg_drawing(topology)
    (report,) = [one for one in examine(topology, 2).components if one.id == "first"]
    assert report.fusion == (
        "runs by itself: it gets tuples of the micro-batch before, by a subscription with feedback"
    )
    ways = next(one["inputs"] for one in components_of(lane) if one["id"] == "first")
    assert [(way["component"], way["feedback"]) for way in ways] == [("lines", False), ("second", True)]
