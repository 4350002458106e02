"""Spark's own sources as spouts: files, rate, socket, tables; types, retries, dead letters, limits, refusals."""

from __future__ import annotations

import json
import re
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import Config, Topology, TopologyBuilder, bolt
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.errors import EngineError
from sparkbolt.spouts import SparkSpout, TextSpout
from tests.patience import PATIENCE_SECS
from tests.spark.spark_rows import Fussy, Join, Slow, shown

MEANWHILE = threading.Event()
"""Never set: to wait for what must not come."""
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def written(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]


def shows(out: Path, **spouts: SparkSpout) -> Topology:
    """A topology that writes what the spouts emit."""
    builder = TopologyBuilder("shows", Config(message_timeout_secs=60))
    show = builder.set_bolt("show", shown)
    for name, spout in spouts.items():
        builder.set_spout(name, spout)
        show.shuffle_grouping(name)
    builder.set_bolt("out", JsonLinesBolt(str(out))).shuffle_grouping("show")
    return builder.build()


@contextmanager
def started(topology: Topology, spark: Any, checkpoint: Path | None = None) -> Iterator[Any]:
    running = topology.start(spark=spark, checkpoint=checkpoint)
    try:
        yield running
    finally:
        running.close()


def write_json(folder: Path, name: str, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps({"id": f"k{n}", "n": n}) + "\n" for n in numbers)
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


def await_true(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECS
    while not condition():
        assert time.monotonic() < until
        MEANWHILE.wait(0.05)


class Lines(socketserver.StreamRequestHandler):
    """Gives thirty lines to each connection."""

    def handle(self) -> None:
        for number in range(30):
            self.wfile.write(f"line {number}\n".encode())
        self.wfile.flush()
        MEANWHILE.wait(PATIENCE_SECS)


@dataclass
class Ran:
    """What a topology of all sources has left, each source with bolts and a directory of its own."""

    directory: Path
    metrics: TopologyMetrics
    given_up: list[Any]
    rows_emitted: list[int]
    """How many rows ``rows`` had emitted after each micro-batch."""
    missed: list[str]
    """Which sources were awaited in vain."""
    stopped: bool
    """Whether the topology drained when it was stopped, although a source is endless."""

    def rows(self, name: str) -> list[dict[str, Any]]:
        return written(self.directory / name / "out")

    def of(self, name: str) -> ComponentMetrics:
        return self.metrics.components[name]


ACKED = {
    "csv": 3,
    "json": 2,
    "parquet": 2,
    "rows": 99,
    "letters": 2,
    "left": 40,
    "table": 40,
    "text": 40,
    "socket": 30,
    "rate": 40,
}
"""How many rows of each source are acked at least."""
INPUT_FILES, FILE_ROWS = 5, 20


def make_inputs(spark: Any, directory: Path) -> None:
    for name in ("csv", "json", "parquet", "rows", "letters", "join"):
        (directory / name).mkdir()
    (directory / "csv/in").mkdir()
    (directory / "csv/in/a.csv").write_text("1,one\n2,two\nx,three\n")
    (directory / "json/in").mkdir()
    (directory / "json/in/a.json").write_text('{"n": 1}\n{"n": \n')
    spark.createDataFrame([(1, 0.5), (2, None)], "n int, x float").write.parquet(str(directory / "parquet/in"))
    for number in range(INPUT_FILES):
        write_json(directory / "rows/in", f"{number}.json", range(number * FILE_ROWS + 1, (number + 1) * FILE_ROWS + 1))
    write_json(directory / "letters/in", "a.json", range(200, 204))
    write_json(directory / "join/in", "a.json", range(40))
    (directory / "join/text.txt").write_text("".join(f"k{n}\n" for n in range(40)))


def every_source(directory: Path, port: int) -> Topology:
    """A topology of independent parts, one for each directory that ``make_inputs`` makes, and for rate and a socket."""
    builder = TopologyBuilder("sources", Config(message_timeout_secs=3600, compact_every=4))

    def reads(kind: str, schema: str) -> SparkSpout:
        path = str(directory / kind / "in")
        return SparkSpout(lambda session: session.readStream.schema(schema).format(kind).load(path))

    def reads_json(name: str) -> SparkSpout:
        path = str(directory / name / "in")
        read = lambda session: session.readStream.schema("id string, n int").json(path)  # noqa: E731
        return SparkSpout(read, outputs=["id", "n"])

    def writes(name: str, component: str, stream: str = "default") -> None:
        out = JsonLinesBolt(str(directory / name / "out"))
        builder.set_bolt(f"{name}-out", out).shuffle_grouping(component, stream)

    shown_ones = {
        "csv": reads("csv", "n int, word string, _corrupt_record string"),
        "json": reads("json", "n int, _corrupt_record string"),
        "parquet": reads("parquet", "n int, x float"),
        "rate": SparkSpout(
            lambda session: session.readStream.format("rate").option("rowsPerSecond", 20).load(), message_id="value"
        ),
        "socket": SparkSpout(
            lambda session: session.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load(),
            outputs=["value"],
        ),
    }
    show = builder.set_bolt("show", shown)
    for name, spout in shown_ones.items():
        builder.set_spout(name, spout)
        show.shuffle_grouping(name)
    writes("shown", "show")

    folder = str(directory / "rows/in")
    two_files = SparkSpout(
        lambda session: session.readStream.schema("id string, n int").option("maxFilesPerTrigger", 2).json(folder),
        outputs=["id", "n"],
        message_id="id",
    )
    builder.set_spout("rows", two_files, parallelism=2, max_attempts=3)
    builder.set_bolt("fussy", Fussy(), parallelism=2).fields_grouping("rows", ["id"])
    builder.set_bolt("slow", Slow(), tick_tuple_freq_secs=0.5).fields_grouping("rows", ["n"])
    writes("rows", "fussy")

    builder.set_spout("letters", reads_json("letters"), dead_letters="stream:dead", max_attempts=1)
    builder.set_bolt("letters-fussy", Fussy()).fields_grouping("letters", ["id"])
    writes("letters", "letters", "dead")

    builder.set_spout("left", reads_json("join"), parallelism=2)
    builder.set_spout("table", SparkSpout(lambda session: session.range(40), outputs=["id"]))
    builder.set_spout("text", TextSpout(str(directory / "join/text.txt")))
    join = builder.set_bolt("join", Join(), parallelism=2)
    join.fields_grouping("left", ["id"]).fields_grouping("text", ["line"])
    builder.set_bolt("slow-table", Slow(), tick_tuple_freq_secs=0.5).fields_grouping("table", ["id"])
    writes("join", "join")
    return builder.build()


@pytest.fixture(scope="module")
def ran(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run every source until its rows are acked, and stop."""
    directory = tmp_path_factory.mktemp("sources")
    make_inputs(spark, directory)
    rows_emitted: list[int] = []
    with line_server() as port, started(every_source(directory, port), spark, directory / "checkpoint") as running:
        running.on_micro_batch(lambda report: rows_emitted.append(report.metrics.components["rows"].emitted))
        missed = await_acked(running, ACKED)
        stopped = running.stop()
        return Ran(directory, running.metrics(), running.given_up, rows_emitted, missed, stopped)


def await_acked(running: Any, counts: dict[str, int]) -> list[str]:
    """Wait for at least so many acks of each spout; return the spouts for which that is in vain."""
    of = lambda: running.metrics().components  # noqa: E731
    behind = lambda: [name for name, count in counts.items() if of()[name].acked < count]  # noqa: E731
    until = time.monotonic() + PATIENCE_SECS
    while behind() and time.monotonic() < until:
        assert running.failure is None, running.failure
        MEANWHILE.wait(0.05)
    return behind()


@contextmanager
def line_server() -> Iterator[int]:
    """A server of ``Lines``; yields its port."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lines)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_every_source_finishes(ran: Ran) -> None:
    assert ran.missed == [], ran.metrics


def test_files_of_any_format_are_read_and_a_corrupt_record_is_an_ordinary_tuple(ran: Ran) -> None:
    assert [ran.of(name).acked for name in ("csv", "json", "parquet")] == [3, 2, 2]
    rows = sorted((row["source"], row["values"]) for row in ran.rows("shown"))
    assert [row for row in rows if row[0] in ("csv", "json", "parquet")] == [
        ("csv", "[1, 'one', None]"),
        ("csv", "[2, 'two', None]"),
        ("csv", "[None, 'three', 'x,three']"),
        ("json", "[1, None]"),
        ("json", "[None, '{\"n\": ']"),
        ("parquet", "[1, 0.5]"),
        ("parquet", "[2, None]"),
    ]


def test_a_row_that_fails_is_retried_from_state_and_becomes_a_dead_letter_with_its_id(ran: Ran) -> None:
    rows = ran.of("rows")
    assert (rows.acked, rows.failed, rows.retried, rows.given_up, rows.dead_letters) == (99, 17, 16, 1, 1)
    [given_up] = [tree for tree in ran.given_up if tree.component == "rows"]
    assert "message 'k100', attempt 3" in given_up.story
    assert "ValueError: 100 is round" in given_up.story
    assert sorted(row["n"] for row in ran.rows("rows")) == list(range(1, 100))
    [file] = (ran.directory / "checkpoint/dead-letters").glob("*.jsonl")
    letter = json.loads(file.read_text())
    assert letter["message_id"] == "'k100'"
    assert [attempt["number"] for attempt in letter["attempts"]] == [1, 2, 3]
    assert "100" in json.dumps(letter["tuples"])


def test_source_limits_are_respected(ran: Ran) -> None:
    first = [after - before for before, after in zip([0, *ran.rows_emitted], ran.rows_emitted, strict=False)]
    assert max(first) <= 2 * FILE_ROWS + ran.of("rows").retried < 3 * FILE_ROWS, "two files, and what is retried"
    assert sum(1 for count in first if count >= FILE_ROWS) >= 3


def test_dead_letters_go_to_a_stream_of_the_topology(ran: Ran) -> None:
    assert ran.of("letters").dead_letters == 2
    assert sorted(row["n"] for row in ran.rows("letters")) == [200, 203]


def test_bolt_joins_several_sources_of_sparkbolt_and_spark(ran: Ran) -> None:
    assert [ran.of(name).acked for name in ("left", "table", "text")] == [40, 40, 40]
    assert ran.metrics.open_trees == 0
    assert sorted(row["id"] for row in ran.rows("join")) == sorted(f"k{n}" for n in range(40))
    assert all(row["id"] == f"k{row['left']}" for row in ran.rows("join"))


def test_rate_and_a_socket_are_sources(ran: Ran) -> None:
    assert ran.stopped, "it drains although the rate goes on"
    seen = Counter(row["source"] for row in ran.rows("shown"))
    assert seen["socket"] == 30
    rate = [row["values"] for row in ran.rows("shown") if row["source"] == "rate"]
    values = [int(re.findall(r", (\d+)\]$", text)[0]) for text in rate]
    assert sorted(values) == list(range(len(values)))


UTC_SHOWN = "tzinfo=datetime.timezone.utc"
TYPES = [
    ("true", "True"),
    ("cast(1 as tinyint)", "1"),
    ("cast(1.5 as float)", "1.5"),
    ("cast('1.20' as decimal(10, 2))", "Decimal('1.20')"),
    ("cast('ab' as binary)", "b'ab'"),
    ("date '2026-01-02'", "datetime.date(2026, 1, 2)"),
    ("timestamp '2026-01-02 03:04:05.000006+01:00'", f"datetime.datetime(2026, 1, 2, 2, 4, 5, 6, {UTC_SHOWN})"),
    ("timestamp_ntz '2026-01-02 03:04:05'", "datetime.datetime(2026, 1, 2, 3, 4, 5)"),
    ("interval '1 02:00:00' day to second", "datetime.timedelta(days=1, seconds=7200)"),
    (
        "named_struct('a', 1, 'b', array(timestamp '2026-01-02 00:00:00Z'))",
        f"{{'a': 1, 'b': [datetime.datetime(2026, 1, 2, 0, 0, {UTC_SHOWN})]}}",
    ),
    ("array(1, null)", "[1, None]"),
    ("map('a', named_struct('b', 2))", "{'a': {'b': 2}}"),
    ("cast(null as string)", "None"),
]


def test_each_type_of_spark_has_a_python_value_and_a_table_ends(spark: Any, tmp_path: Path) -> None:
    query = "select " + ", ".join(f"{text} as c{place}" for place, (text, _) in enumerate(TYPES))
    topology = shows(tmp_path / "out", table=SparkSpout(lambda session: session.sql(query)))
    assert topology.components["table"].stream("default").fields == tuple(f"c{place}" for place in range(len(TYPES)))
    with started(topology, spark, tmp_path / "checkpoint") as running:
        assert running.await_finished(PATIENCE_SECS), "a table is read once, and then its spout is exhausted"
    with started(topology, spark, tmp_path / "checkpoint") as running:
        assert running.await_finished(PATIENCE_SECS), "it is not read again"
        assert running.metrics().components["table"].acked == 1
    [row] = written(tmp_path / "out")
    assert row["values"] == "[" + ", ".join(value for _, value in TYPES) + "]"


@dataclass
class Interrupted:
    """A topology that was broken off twice in its first micro-batch, went on, and was deactivated for a while."""

    drained: list[bool]
    """Whether each stop drained."""
    acked: list[int]
    """Before it was deactivated, and in the end."""
    emitted: int
    """When it had been inactive for a while, with more rows at its source."""


@pytest.fixture(scope="module")
def interrupted(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    directory = tmp_path_factory.mktemp("interrupted")
    folder = str(directory / "in")

    def hangs(until: Path) -> Topology:
        @bolt()
        def hang(tup):
            while not until.exists():
                threading.Event().wait(0.05)

        read = SparkSpout(lambda session: session.readStream.schema("n int").json(folder), outputs=["n"])
        builder = TopologyBuilder("hangs", Config(message_timeout_secs=60))
        builder.set_spout("rows", read)
        builder.set_bolt("hang", hang).shuffle_grouping("rows")
        return builder.build()

    write_json(directory / "in", "a.json", range(1, 7))
    topology, state = hangs(directory / "go"), directory / "state"
    with started(topology, spark, state) as running:
        await_true(lambda: running.progress().micro_batch_id is not None)
        MEANWHILE.wait(1.0)
        drained = [running.stop(timeout_secs=0.5)]
    with started(topology, spark, state) as running:
        drained.append(running.stop(timeout_secs=0.0))
    (directory / "go").touch()
    with started(topology, spark, state) as running:
        assert running.await_idle(PATIENCE_SECS)
        acked = [running.metrics().components["rows"].acked]
        running.deactivate()
        await_true(lambda: not running._coordinator.ledger.outbox_acks.first())
        MEANWHILE.wait(1.0)
        write_json(directory / "in", "b.json", range(7, 10))
        MEANWHILE.wait(2.0)
        emitted = running.metrics().components["rows"].emitted
        running.activate()
        assert running.await_idle(PATIENCE_SECS)
        acked.append(running.metrics().components["rows"].acked)
        drained.append(running.stop())
    return Interrupted(drained, acked, emitted)


def test_rows_of_an_interrupted_micro_batch_stay_for_replay_even_if_stopped_before_it_reruns(
    interrupted: Interrupted,
) -> None:
    assert interrupted.drained == [False, False, True]
    assert interrupted.acked[0] == 6


def test_rows_wait_at_their_source_while_the_topology_is_not_active(interrupted: Interrupted) -> None:
    assert (interrupted.emitted, interrupted.acked[1]) == (6, 9)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (lambda session: session.range(3).selectExpr("id as other"), "no column 'id': its columns are ['other']"),
        (lambda session: None, "its function returned None, expected a DataFrame"),
        (lambda session: session.sql("select parse_json('1') as id"), "column 'id' has type variant"),
        (lambda session: session.read.parquet("/nowhere/at/all"), "its DataFrame could not be made"),
        (lambda session: session.sql("select map(array(1), 2) as id"), "a map with keys of type array<int>"),
    ],
)
def test_unreadable_source_is_refused_with_a_sentence(spark: Any, tmp_path: Path, frame: Any, said: str) -> None:
    topology = shows(tmp_path / "out", rows=SparkSpout(frame, outputs=["id"]))
    with pytest.raises(EngineError) as raised:
        topology.start(spark=spark)
    assert "spout 'rows'" in str(raised.value)
    assert said in str(raised.value)
