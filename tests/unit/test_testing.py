"""The test driver: what a user's test may rely on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, Config, Direct, Spout, Topology, TopologyBuilder
from sparkbolt.bolts import JsonLinesBolt, KafkaBolt, RabbitMQBolt
from sparkbolt.errors import InvalidTopology
from sparkbolt.spouts import TextSpout
from sparkbolt.testing import ReportedError, TopologyTestDriver, simulate
from tests.topologies import Count


class SplitOrFail(Bolt):
    """Splits lines; forgets the line "lost", fails "bad", raises at "worse"."""

    outputs = {"default": ["word"], "odd": ["line", "why"]}

    def execute(self, tup: Any, collector: Any) -> None:
        line = tup["line"]
        if line == "lost":
            return
        if line == "bad":
            collector.fail(tup, "a bad line")
            return
        if line == "worse":
            raise ValueError(line)
        if line is None:
            collector.report_error("no line")
            collector.emit([line, "None"], stream="odd", anchors=tup)
        else:
            for word in line.split():
                collector.emit([word], anchors=tup)
        collector.ack(tup)


class Ticks(BasicBolt):
    outputs = ["now_ms"]

    def prepare(self, context: Any) -> None:
        self.context = context

    transient = ["context"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            collector.emit([self.context.now_ms])


def words(**settings: Any) -> Topology:
    builder = TopologyBuilder("words", Config(message_timeout_secs=30, **settings))
    builder.set_spout("lines", TextSpout("books/*.txt"), parallelism=2)
    builder.set_bolt("split", SplitOrFail(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("ticks", Ticks(), tick_tuple_freq_secs=10).global_grouping("split")
    return builder.build()


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(words()) as driver:
        yield driver


def test_the_program_of_the_reference_runs(driver: TopologyTestDriver) -> None:
    driver.feed("lines", {"line": "to be or not to be"}, message_id=1)
    driver.run_until_idle()
    assert driver.emitted("count")[-1] == ["be", 2]
    assert driver.acked("lines") == [1]
    driver.feed("lines", {"line": "lost"}, message_id=2)
    driver.advance(timedelta(seconds=31))
    assert driver.failed("lines") == [...]


def test_a_failure_names_the_message_its_cause_and_its_story(driver: TopologyTestDriver) -> None:
    for message_id, line in enumerate(["worse", "lost", "bad", "good"]):
        driver.feed("lines", {"line": line}, message_id=message_id, task=message_id % 2)
    driver.advance(timedelta(seconds=31))
    found = {failure.message_id: failure for failure in driver.failed("lines")}
    assert [(i, found[i].cause, found[i].component, found[i].reason) for i in sorted(found)] == [
        (0, "exception", "split", "ValueError: worse"),
        (1, "timeout", "split", f"timed out after 31.0 s; held by split[{found[1].task}] since micro-batch 0"),
        (2, "fail", "split", "a bad line"),
    ]
    assert "lines[0] message 0, attempt 1; failed by split[" in found[0].story
    assert "ValueError: worse" in (found[0].traceback or "")
    assert found[0] == found[0]
    assert found[0] != found[2]
    assert found[0] == ...
    assert driver.acked("lines") == [3]


def test_a_tree_lives_for_its_timeout_and_at_most_a_thirtieth_longer(driver: TopologyTestDriver) -> None:
    driver.feed("lines", {"line": "lost"}, message_id=1)
    driver.advance(timedelta(seconds=29.9))
    assert (driver.pending("lines"), driver.failed("lines")) == ([1], [])
    driver.advance(timedelta(seconds=1.1))
    assert (driver.pending("lines"), driver.failed("lines")) == ([], [...])


def test_time_does_not_advance_unless_it_is_moved() -> None:
    start = datetime(2020, 2, 29, 12, tzinfo=UTC)
    with TopologyTestDriver(words(), start=start) as driver:
        driver.feed("lines", ["a", "p", 0])
        driver.run_until_idle()
        assert driver.now == start
        driver.advance(timedelta(milliseconds=1500))
        assert driver.now == start + timedelta(milliseconds=1500)
        with pytest.raises(ValueError, match="time does not go back"):
            driver.advance(timedelta(seconds=-1))
        with pytest.raises(TypeError, match=r"advance\(5\): expected a timedelta: did you mean timedelta\(seconds="):
            driver.advance(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="with a zone"):
        TopologyTestDriver(words(), start=datetime(2020, 1, 1))


def test_ticks_arrive_one_by_one_at_their_times(driver: TopologyTestDriver) -> None:
    begin = int(driver.now.timestamp() * 1000)
    driver.advance(timedelta(seconds=35))
    assert [now_ms - begin for [now_ms] in driver.emitted("ticks")] == [10_000, 20_000, 30_000]
    assert driver.executed("ticks") == 3


def test_streams_are_kept_apart_and_reported_errors_kept(driver: TopologyTestDriver) -> None:
    driver.feed("lines", {}, message_id=1)
    driver.run_until_idle()
    assert driver.emitted("split", stream="odd") == [[None, "None"]]
    assert driver.emitted("split") == []
    [error] = driver.errors()
    assert isinstance(error, ReportedError)
    assert (error.component, error.text) == ("split", "no line")


@pytest.mark.parametrize(
    ("feed", "error", "text"),
    [
        (lambda d: d.feed("line", {}), KeyError, r"has no spout 'line'; there is 'lines': did you mean 'lines'\?"),
        (lambda d: d.feed("split", {}), KeyError, "has no spout 'split'; there is 'lines'"),
        (lambda d: d.feed("lines", {"lin": 1}), KeyError, "declares no field 'lin'; there is 'line', 'path', 'offset'"),
        (lambda d: d.feed("lines", {}, stream="x"), KeyError, "declares no stream 'x'; there is 'default'"),
        (lambda d: d.feed("lines", ["a"]), ValueError, "expected 3 value"),
        (lambda d: d.feed("lines", "abc"), ValueError, "expected 3 value"),
        (lambda d: d.feed("lines", {}, task=2), ValueError, "has no task 2: it has tasks 0 to 1"),
        (lambda d: d.feed("lines", {}, direct_to=1), ValueError, "not direct"),
        (lambda d: d.emitted("cuont"), KeyError, "did you mean 'count'"),
        (lambda d: d.acked("count"), KeyError, "has no spout 'count'"),
    ],
)
def test_unknown_name_is_an_error_that_lists_the_existing_ones(
    driver: TopologyTestDriver, feed: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        feed(driver)
    assert str(raised.value) == raised.value.args[0], "as a sentence, and not as the repr of one"


def test_the_state_of_a_bolt_can_be_read(driver: TopologyTestDriver) -> None:
    driver.feed("lines", {"line": "to be or not to be"}, message_id=1)
    driver.run_until_idle()
    kept = driver.state("count")
    every = [one.get("counts", {}) for one in kept.attributes()]
    assert len(every) == 2
    assert {word: count for one in every for word, count in one.items()} == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert (len(kept), kept.get("to"), len(driver.state("split"))) == (0, None, 0)
    with pytest.raises(KeyError, match="did you mean"):
        driver.state("conut")


def test_state_survives_a_restart_and_unfinished_messages_do_not(driver: TopologyTestDriver) -> None:
    driver.feed("lines", {"line": "a a"}, message_id=1)
    driver.feed("lines", {"line": "lost"}, message_id=2)
    driver.run_until_idle()
    driver.feed("lines", {"line": "b"}, message_id=3)
    assert driver.pending("lines") == [2, 3]
    driver.restart()
    assert driver.pending("lines") == []
    driver.feed("lines", {"line": "a"}, message_id=4)
    driver.advance(timedelta(seconds=40))
    assert driver.emitted("count")[-1] == ["a", 3]
    assert (driver.acked("lines"), driver.failed("lines")) == ([1, 4], [])
    assert driver.metrics().of("lines").acked == 2
    assert driver.executed("count") == 3


class Sender(Spout):
    outputs = {"to": Direct(["n"]), "default": ["n"]}

    def next_tuple(self, collector: Any) -> None:
        raise AssertionError("the driver replaces spouts of either kind")


class Names(BasicBolt):
    outputs = ["index", "n"]

    def prepare(self, context: Any) -> None:
        self.index = context.index

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([self.index, tup["n"]])


def test_a_direct_stream_is_fed_to_one_task() -> None:
    builder = TopologyBuilder("direct")
    builder.set_spout("send", Sender())
    builder.set_bolt("names", Names(), parallelism=2).direct_grouping("send", stream="to")
    topology = builder.build()
    with TopologyTestDriver(topology) as driver:
        first, second = topology.tasks("names")
        driver.feed("send", [1], stream="to", direct_to=second, message_id="x")
        driver.feed("send", [2], stream="to", direct_to=first)
        driver.run_until_idle()
        assert sorted(driver.emitted("names")) == [[0, 2], [1, 1]]
        assert driver.acked("send") == ["x"]
        with pytest.raises(ValueError, match="is direct: give direct_to"):
            driver.feed("send", [1], stream="to")


def test_a_driver_closes_once_and_can_be_asked_afterwards() -> None:
    driver = TopologyTestDriver(words())
    with driver:
        driver.feed("lines", {"line": "a"}, message_id=1)
        driver.run_until_idle()
    driver.close()
    assert driver.acked("lines") == [1]


def test_a_builder_is_built_and_any_other_object_is_refused_in_one_sentence() -> None:
    builder = TopologyBuilder("small")
    builder.set_spout("lines", TextSpout("books/*.txt"))
    builder.set_bolt("split", SplitOrFail()).shuffle_grouping("lines")
    with TopologyTestDriver(builder) as driver:
        driver.feed("lines", {"line": "a"}, message_id=1)
        driver.run_until_idle()
        assert driver.acked("lines") == [1]
    assert simulate(builder, feed={"lines": [["a", "p", 0]]}, repeat=False).ok
    with pytest.raises(InvalidTopology, match="there is no spout"):
        TopologyTestDriver(TopologyBuilder("empty"))
    for wrong in (None, "small", SplitOrFail()):
        for use in (TopologyTestDriver, simulate):
            with pytest.raises(TypeError, match="expected a Topology, or the TopologyBuilder that builds it"):
                use(wrong)  # type: ignore[operator]


def test_test_driver_writes_files_of_bolts_to_its_own_directory_and_leaves_the_real_ones(tmp_path: Path) -> None:
    real = tmp_path / "out" / "part-000000-out-0.jsonl"
    real.parent.mkdir()
    real.write_text("precious")
    builder = TopologyBuilder("files")
    builder.set_spout("lines", TextSpout("books/*.txt"))
    builder.set_bolt("out", JsonLinesBolt(tmp_path / "out")).shuffle_grouping("lines")
    topology = builder.build()
    with TopologyTestDriver(topology) as driver, TopologyTestDriver(topology) as other:
        driver.feed("lines", {"line": "a"}, message_id=1)
        driver.run_until_idle()
        assert driver.acked("lines") == [1]
    written = driver.output_path(tmp_path / "out")
    assert [path.name for path in written.iterdir()] == [real.name]
    assert json.loads((written / real.name).read_text())["line"] == "a"
    assert [path.name for path in real.parent.iterdir()] == [real.name]
    assert real.read_text() == "precious"
    assert not other.output_path(tmp_path / "out").exists()


def test_messages_to_send_are_shown_in_order_and_tuples_without_a_valid_message_fail() -> None:
    builder = TopologyBuilder("sending")
    builder.set_spout("lines", TextSpout("books/*.txt"))
    builder.set_bolt(
        "kafka", KafkaBolt("localhost:1", "out", key="line", value=lambda tup: [tup["line"]])
    ).shuffle_grouping("lines")
    rabbit = RabbitMQBolt("amqp://localhost:1/", routing_key="q", value="line", headers=lambda tup: {"n": tup["n"]})
    builder.set_bolt("numbered", Numbered()).shuffle_grouping("lines")
    builder.set_bolt("rabbit", rabbit).shuffle_grouping("numbered")
    with TopologyTestDriver(builder.build()) as driver:
        assert driver.unsent("kafka") == []
        for line in ("to be", "or", "half"):
            driver.feed("lines", {"line": line}, message_id=line)
        driver.run_until_idle()
        kafka = {"topic": "out", "headers": None}
        assert driver.unsent("kafka") == [
            {**kafka, "key": line.encode(), "value": json.dumps([line]).encode()} for line in ("to be", "or", "half")
        ]
        sent = {"exchange": "", "routing_key": "q"}
        assert driver.unsent("rabbit") == [
            {**sent, "body": b"to be", "headers": {"n": 5}},
            {**sent, "body": b"or", "headers": {"n": 2}},
        ]
        assert driver.acked("lines") == ["to be", "or"]
        [failure] = driver.failed("lines")
        assert (failure.message_id, failure.component) == ("half", "rabbit")
        with pytest.raises(KeyError, match="no component 'kafak'"):
            driver.unsent("kafak")


class Numbered(BasicBolt):
    outputs = ["line", "n"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["line"], 0.5 if tup["line"] == "half" else len(tup["line"])])
