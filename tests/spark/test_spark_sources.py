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
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import Config, Topology, TopologyBuilder, bolt
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.errors import EngineError
from sparkbolt.spouts import SparkSpout, TextSpout
from tests.spark.spark_rows import Fussy, Join, Slow, build, shown

WAIT_SECS = 60.0
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
    until = time.monotonic() + WAIT_SECS
    while not condition():
        assert time.monotonic() < until
        MEANWHILE.wait(0.05)


def test_files_of_any_format_are_read_and_a_corrupt_record_is_a_tuple_like_any_other(
    spark: Any, tmp_path: Path
) -> None:
    for kind in ("csv", "json"):
        (tmp_path / kind).mkdir()
    (tmp_path / "csv/a.csv").write_text("1,one\n2,two\nx,three\n")
    (tmp_path / "json/a.json").write_text('{"n": 1}\n{"n": \n')
    spark.createDataFrame([(1, 0.5), (2, None)], "n int, x float").write.parquet(str(tmp_path / "parquet"))

    def reads(kind: str, schema: str) -> SparkSpout:
        path = str(tmp_path / kind)
        return SparkSpout(lambda session: session.readStream.schema(schema).format(kind).load(path))

    topology = shows(
        tmp_path / "out",
        csv=reads("csv", "n int, word string, _corrupt_record string"),
        json=reads("json", "n int, _corrupt_record string"),
        parquet=reads("parquet", "n int, x float"),
    )
    with started(topology, spark) as running:
        assert running.await_idle(WAIT_SECS)
        assert [running.metrics().components[name].acked for name in ("csv", "json", "parquet")] == [3, 2, 2]
    assert sorted((row["source"], row["values"]) for row in written(tmp_path / "out")) == [
        ("csv", "[1, 'one', None]"),
        ("csv", "[2, 'two', None]"),
        ("csv", "[None, 'three', 'x,three']"),
        ("json", "[1, None]"),
        ("json", "[None, '{\"n\": ']"),
        ("parquet", "[1, 0.5]"),
        ("parquet", "[2, None]"),
    ]


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
        assert running.await_finished(WAIT_SECS), "a table is read once, and then its spout is exhausted"
    with started(topology, spark, tmp_path / "checkpoint") as running:
        assert running.await_finished(WAIT_SECS), "it is not read again"
        assert running.metrics().components["table"].acked == 1
    [row] = written(tmp_path / "out")
    assert row["values"] == "[" + ", ".join(value for _, value in TYPES) + "]"


def test_a_row_that_fails_is_retried_from_state_and_becomes_a_dead_letter_with_its_id(
    spark: Any, tmp_path: Path
) -> None:
    write_json(tmp_path / "in", "a.json", range(1, 101))
    with started(build(str(tmp_path / "in"), str(tmp_path / "out")), spark, tmp_path / "checkpoint") as running:
        assert running.await_idle(WAIT_SECS)
        (tmp_path / "in/a.json").unlink()
        rows = running.metrics().components["rows"]
        assert (rows.acked, rows.failed, rows.retried, rows.set_aside, rows.dead_letters) == (99, 17, 16, 1, 1)
        [given_up] = running.set_aside
        assert "message 'k100', attempt 3" in given_up.story
        assert "ValueError: 100 is round" in given_up.story
    assert sorted(row["n"] for row in written(tmp_path / "out")) == list(range(1, 100))
    [file] = (tmp_path / "checkpoint/dead-letters").glob("*.jsonl")
    letter = json.loads(file.read_text())
    assert letter["message_id"] == "'k100'"
    assert [attempt["number"] for attempt in letter["attempts"]] == [1, 2, 3]
    assert "100" in json.dumps(letter["tuples"])


def test_dead_letters_go_to_a_stream_of_the_topology(spark: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "in", "a.json", range(200, 204))
    builder = TopologyBuilder("letters", Config(max_attempts=1))
    folder = str(tmp_path / "in")
    spout = SparkSpout(lambda session: session.readStream.schema("id string, n int").json(folder), outputs=["id", "n"])
    builder.set_spout("rows", spout, dead_letters="stream:dead")
    builder.set_bolt("fussy", Fussy()).fields_grouping("rows", ["id"])
    builder.set_bolt("out", JsonLinesBolt(str(tmp_path / "out"))).shuffle_grouping("rows", "dead")
    with started(builder.build(), spark) as running:
        assert running.await_idle(WAIT_SECS)
        assert running.metrics().components["rows"].dead_letters == 2
    assert sorted(row["n"] for row in written(tmp_path / "out")) == [200, 203]


def test_several_sources_of_ours_and_of_spark_are_joined_by_a_bolt(spark: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "in", "a.json", range(40))
    (tmp_path / "text.txt").write_text("".join(f"k{n}\n" for n in range(40)))
    builder = TopologyBuilder("join", Config(message_timeout_secs=60))
    folder = str(tmp_path / "in")
    spout = SparkSpout(lambda session: session.readStream.schema("id string, n int").json(folder), outputs=["id", "n"])
    builder.set_spout("rows", spout, parallelism=2)
    builder.set_spout("table", SparkSpout(lambda session: session.range(40), outputs=["id"]))
    builder.set_spout("text", TextSpout(str(tmp_path / "text.txt")))
    join = builder.set_bolt("join", Join(), parallelism=2)
    join.fields_grouping("rows", ["id"]).fields_grouping("text", ["line"])
    builder.set_bolt("slow", Slow(), tick_tuple_freq_secs=0.5).fields_grouping("table", ["id"])
    builder.set_bolt("out", JsonLinesBolt(str(tmp_path / "out"))).shuffle_grouping("join")
    with started(builder.build(), spark) as running:
        assert running.await_idle(WAIT_SECS)
        metrics = running.metrics()
        assert [metrics.components[name].acked for name in ("rows", "table", "text")] == [40, 40, 40]
        assert metrics.open_trees == 0
    assert sorted(row["id"] for row in written(tmp_path / "out")) == sorted(f"k{n}" for n in range(40))
    assert all(row["id"] == f"k{row['left']}" for row in written(tmp_path / "out"))


def test_the_limits_of_a_source_are_kept(spark: Any, tmp_path: Path) -> None:
    for number in range(5):
        write_json(tmp_path / "in", f"{number}.json", range(number * 10 + 1, number * 10 + 11))
    emitted: list[int] = []
    with started(build(str(tmp_path / "in"), str(tmp_path / "out")), spark) as running:
        running.on_micro_batch(lambda report: emitted.append(report.metrics.components["rows"].emitted))
        assert running.await_idle(WAIT_SECS)
        rows = running.metrics().components["rows"]
    assert rows.acked == 50
    first = [after - before for before, after in zip([0, *emitted], emitted, strict=False)]
    assert max(first) <= 20 + rows.retried, "two files a micro-batch, and what is retried"
    assert sum(1 for count in first if count >= 10) >= 3


def test_rows_wait_at_their_source_while_the_topology_is_not_active(spark: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "in", "a.json", range(1, 7))
    spout = SparkSpout(lambda session: session.readStream.schema("n int").json(str(tmp_path / "in")), outputs=["n"])
    with started(shows(tmp_path / "out", rows=spout), spark) as running:
        assert running.await_idle(WAIT_SECS)
        running.deactivate()
        await_true(lambda: not running._coordinator.ledger.outbox_acks.first())
        MEANWHILE.wait(1.0)
        write_json(tmp_path / "in", "b.json", range(7, 10))
        MEANWHILE.wait(2.0)
        assert running.metrics().components["rows"].emitted == 6
        running.activate()
        assert running.await_idle(WAIT_SECS)
        assert running.metrics().components["rows"].acked == 9


def test_rows_in_a_micro_batch_that_is_broken_off_are_left_for_replay_also_by_a_stop_before_it_runs_again(
    spark: Any, tmp_path: Path
) -> None:
    def hangs(gone_on: Path) -> Topology:
        @bolt()
        def hang(tup):
            while not gone_on.exists():
                threading.Event().wait(0.05)

        read = SparkSpout(lambda session: session.readStream.schema("n int").json(str(tmp_path / "in")), outputs=["n"])
        builder = TopologyBuilder("hangs", Config(message_timeout_secs=60))
        builder.set_spout("rows", read)
        builder.set_bolt("hang", hang).shuffle_grouping("rows")
        return builder.build()

    write_json(tmp_path / "in", "a.json", range(1, 7))
    with started(hangs(tmp_path / "go"), spark, tmp_path / "state") as running:
        await_true(lambda: running.progress().micro_batch_id is not None)
        MEANWHILE.wait(1.0)
        assert not running.stop(timeout_secs=0.5)
    with started(hangs(tmp_path / "go"), spark, tmp_path / "state") as running:
        assert not running.stop(timeout_secs=0.0)
    (tmp_path / "go").touch()
    with started(hangs(tmp_path / "go"), spark, tmp_path / "state") as running:
        assert running.await_idle(WAIT_SECS)
        assert running.metrics().components["rows"].acked == 6
        assert running.stop()


class Lines(socketserver.StreamRequestHandler):
    """Gives thirty lines to each connection."""

    def handle(self) -> None:
        for number in range(30):
            self.wfile.write(f"line {number}\n".encode())
        self.wfile.flush()
        MEANWHILE.wait(60)


def test_rate_and_a_socket_are_sources(spark: Any, tmp_path: Path) -> None:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lines)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    topology = shows(
        tmp_path / "out",
        rate=SparkSpout(
            lambda session: session.readStream.format("rate").option("rowsPerSecond", 20).load(), message_id="value"
        ),
        socket=SparkSpout(
            lambda session: session.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load(),
            outputs=["value"],
        ),
    )
    try:
        with started(topology, spark) as running:
            of = running.metrics
            await_true(lambda: of().components["rate"].acked >= 40 and of().components["socket"].acked == 30)
            assert running.stop(), "it drains although the rate goes on"
    finally:
        server.shutdown()
        server.server_close()
    seen = Counter(row["source"] for row in written(tmp_path / "out"))
    assert seen["socket"] == 30
    rate = [row["values"] for row in written(tmp_path / "out") if row["source"] == "rate"]
    values = [int(re.findall(r", (\d+)\]$", text)[0]) for text in rate]
    assert sorted(values) == list(range(len(values)))


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
def test_what_cannot_be_read_is_refused_with_a_sentence(spark: Any, tmp_path: Path, frame: Any, said: str) -> None:
    topology = shows(tmp_path / "out", rows=SparkSpout(frame, outputs=["id"]))
    with pytest.raises(EngineError) as raised:
        topology.start(spark=spark)
    assert "spout 'rows'" in str(raised.value)
    assert said in str(raised.value)
