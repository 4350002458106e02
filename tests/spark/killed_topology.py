"""The topology of the tests that kill drivers: counts, held tuples, windows, balances, sinks and Spark's rows in one.

    lines -> split -> count -> counts            transfers -> parse -> debit -> credit -> statement
      +----> hold                                               +----> sinks
      +----> timed -> shapes -> tally                           +----> group -> total -> totals
      |        +----> arrivals
      +----> first -> steps -> walks
                <------+  (feedback)

Nothing of ``lines`` fails, so counts and windows are exact in any topology. The credit of each 50th transfer fails at
its first attempt and that of each 97th at every attempt, when debits, sinks and windows have the transfer already; each
third group fails at its first attempt, too. A transactional topology takes that back; it may hold no tuple, and has no
``hold``, no loop, nor the shapes, which ``tests.windows.books`` checks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sparkbolt import BasicBolt, Bolt, Committer, Config, Count, RetryPolicy, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.bolts import DeltaBolt, IcebergBolt, JsonLinesBolt, ParquetBolt, SparkSink
from sparkbolt.spouts import SparkSpout, TextSpout
from tests.chaos.diamond import HELD_MICRO_BATCHES
from tests.docs.pages import recipe
from tests.topologies import Count as CountWords
from tests.topologies import Split
from tests.windows.shapes import LAG_UNITS, Arrivals, Shape, Tally
from tests.windows.shapes import Parse as Timed

FAILS_ONCE, FAILS_ALWAYS, GROUP = 50, 97, 5
STEPS_MAX = 5
"""The line with number ``n`` takes ``n % (STEPS_MAX + 1)`` steps of the loop."""
UNIT_MS = 150
SHAPES = (
    Shape("tumbling count", Count(7), Count(7)),
    Shape("event time, time by key", 8 * UNIT_MS, 4 * UNIT_MS, lag=LAG_UNITS * UNIT_MS, keyed=True),
)
SCHEMA = "number long not null, name string, source string, target string, amount long"


@dataclass(frozen=True)
class Kind:
    """What one topology of the program is like."""

    transactional: bool
    spark: bool
    """Whether Spark reads the transfers, from files, and shuffles them; otherwise a spout of ours does."""


KINDS = {
    "tracked": Kind(transactional=False, spark=False),
    "tracked-spark": Kind(transactional=False, spark=True),
    "transactional": Kind(transactional=True, spark=False),
    "transactional-spark": Kind(transactional=True, spark=True),
}


class Hold(Bolt):
    """Holds each tuple for some micro-batches; a tick lets go of those that are old enough."""

    transient = ("context",)

    def prepare(self, context):
        self.context = context
        self.held = {}

    def execute(self, tup, collector):
        now = self.context.micro_batch_id
        if not tup.is_tick:
            self.held.setdefault(now, []).append(tup)
        for number in [number for number in self.held if number <= now - HELD_MICRO_BATCHES]:
            for held in self.held.pop(number):
                collector.ack(held)


class First(BasicBolt):
    """The number of a line, and the steps that it takes."""

    outputs = ["number", "left"]
    stateless = True

    def execute(self, tup, collector):
        number = int(tup["line"].split()[0])
        collector.emit([number, number % (STEPS_MAX + 1)])


class Steps(BasicBolt):
    """Feeds a number back to itself until no step is left, and counts all steps."""

    outputs = {"default": ["number", "steps"], "again": ["number", "left"]}

    def prepare(self, context):
        self.steps = {}

    def execute(self, tup, collector):
        number, left = tup.values()
        steps = self.steps[number] = self.steps.get(number, 0) + 1
        if left:
            collector.emit([number, left - 1], stream="again")
        else:
            collector.emit([number, steps])


class Parse(BasicBolt):
    """A transfer of a line."""

    outputs = ["number", "name", "source", "target", "amount"]
    stateless = True

    def execute(self, tup, collector):
        number, source, target, amount = tup["line"].split()
        collector.emit([int(number), f"name {number}", source, target, int(amount)])


class Debit(BasicBolt):
    """Takes the amount from the source."""

    outputs = ["number", "source", "paid", "target", "amount"]

    def prepare(self, context):
        self.paid = {}

    def execute(self, tup, collector):
        paid = self.paid[tup["source"]] = self.paid.get(tup["source"], 0) + tup["amount"]
        collector.emit([tup["number"], tup["source"], paid, tup["target"], tup["amount"]])


class Credit(BasicBolt):
    """Gives the amount to the target, before it finds out that it cannot."""

    outputs = ["number", "source", "paid", "target", "got", "amount"]

    def prepare(self, context):
        self.got = {}

    def execute(self, tup, collector):
        number, target = tup["number"], tup["target"]
        got = self.got[target] = self.got.get(target, 0) + tup["amount"]
        if number % FAILS_ALWAYS == 0 or (number % FAILS_ONCE == 0 and tup.attempt == 1):
            raise ValueError(f"account {target} cannot be credited now")
        collector.emit([number, tup["source"], tup["paid"], target, got, tup["amount"]])


class Group(WindowedBolt):
    """The transfers of a window."""

    outputs = ["numbers"]

    def execute(self, window, collector):
        collector.emit([[tup["number"] for tup in window]])


class Total(BasicBolt):
    """Counts groups, before it finds out that it does not want one yet."""

    outputs = ["numbers", "count"]

    def prepare(self, context):
        self.count = 0

    def execute(self, tup, collector):
        self.count += 1
        if sum(tup["numbers"]) % 3 == 0 and tup.attempt == 1:
            raise ValueError("not at first")
        collector.emit([tup["numbers"], self.count])


class Statement(Committer):
    """Appends rows to a file, with the txid in each line; a txid that is there already is skipped."""

    def __init__(self, path):
        self.path = path

    def begin(self, context):
        path = Path(self.path)
        lines = path.read_text().splitlines() if path.exists() else []
        self.there = max((json.loads(line)["txid"] for line in lines), default=0)

    def commit(self, txid, rows):
        assert rows, txid
        if txid <= self.there:
            return
        with Path(self.path).open("a") as file:  # a kill at one of the moments leaves it whole
            file.writelines(json.dumps({"txid": txid, **row}) + "\n" for row in rows)


def shuffled(spark, transfers):
    """The rows of a directory, a file in each micro-batch; they come in any order."""
    rows = spark.readStream.schema("id string, line string").option("maxFilesPerTrigger", 1).json(transfers)
    return rows.repartition(3, "line")


def build(name: str, directory: str, tasks: int = 2) -> Topology:
    """The topology ``name`` of ``KINDS``: it reads ``directory/data`` and writes into ``directory/NAME``.

    The bolts that count by key have ``tasks`` tasks, unless Spark reads: then their number cannot change.
    """
    kind, data, out = KINDS[name], f"{directory}/data", f"{directory}/{name}"
    tasks = 2 if kind.spark else tasks
    config = Config(
        transactional=kind.transactional,
        message_timeout_secs=600,
        micro_batch_bytes_max=1_500,
        compact_every=3,
        retry=RetryPolicy(max_retries=2),
        dead_letters=None if kind.transactional else f"file:{out}/letters.jsonl",
    )
    builder = TopologyBuilder(name, config)
    builder.set_spout("lines", TextSpout(f"{data}/lines.txt"), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", CountWords(), parallelism=tasks).fields_grouping("split", ["word"])
    builder.set_bolt("counts", JsonLinesBolt(f"{out}/counts"), parallelism=2).shuffle_grouping("count")

    rows = SparkSpout(lambda spark: shuffled(spark, f"{data}/spark"), outputs=["id", "line"], message_id="id")
    builder.set_spout("transfers", rows if kind.spark else TextSpout(f"{data}/text"), parallelism=2)
    builder.set_bolt("parse", Parse(), parallelism=2).shuffle_grouping("transfers")
    builder.set_bolt("debit", Debit(), parallelism=tasks).fields_grouping("parse", ["source"])
    builder.set_bolt("credit", Credit(), parallelism=tasks).fields_grouping("debit", ["target"])
    builder.set_bolt("statement", Statement(f"{out}/statement.jsonl"), parallelism=2).shuffle_grouping("credit")
    builder.set_bolt("group", Group().with_tumbling_window(Count(GROUP))).global_grouping("parse")
    builder.set_bolt("total", Total()).global_grouping("group")
    builder.set_bolt("totals", Statement(f"{out}/totals.jsonl")).shuffle_grouping("total")
    add_sinks(builder, out)
    if not kind.transactional:
        hold = builder.set_bolt("hold", Hold(), parallelism=2, tick_tuple_freq_secs=0.5)
        hold.shuffle_grouping("lines").shuffle_grouping("transfers")
        add_windows(builder, out)
        builder.set_bolt("first", First()).shuffle_grouping("lines")
        steps = builder.set_bolt("steps", Steps(), parallelism=2)
        steps.fields_grouping("first", ["number"]).fields_grouping("steps", ["number"], "again", feedback=True)
        builder.set_bolt("walks", JsonLinesBolt(f"{out}/walks")).shuffle_grouping("steps")
    return builder.build()


def add_sinks(builder: TopologyBuilder, out: str) -> None:
    """Each sink that writes files or tables, and needs no server."""
    builder.set_bolt("json", JsonLinesBolt(f"{out}/json"), parallelism=2).shuffle_grouping("parse")
    parquet = ParquetBolt(f"{out}/parquet", schema=SCHEMA)
    builder.set_bolt("parquet", parquet, parallelism=2).shuffle_grouping("parse")
    write_folders = recipe("docs/sinks.md", "write_folders.py")["WriteFolders"]
    folder = SparkSink("parse", write_folders(f"{out}/folder"), schema=SCHEMA)
    builder.set_bolt("folder", folder, parallelism=2)
    table = DeltaBolt(f"{out}/delta", schema=SCHEMA)
    builder.set_bolt("table", table, parallelism=2).shuffle_grouping("parse")
    lake = {"type": "sql", "uri": f"sqlite:///{out}/catalog.db", "warehouse": f"file://{out}/lake"}
    iceberg = IcebergBolt("shop.numbers", properties=lake, schema=SCHEMA)
    builder.set_bolt("iceberg", iceberg, parallelism=2).shuffle_grouping("parse")


def add_windows(builder: TopologyBuilder, out: str) -> None:
    """Windows whose contents are known from the lines."""
    builder.set_bolt("timed", Timed()).shuffle_grouping("lines")
    builder.set_bolt("arrivals", Arrivals(f"{out}/arrivals")).global_grouping("timed")
    tally = builder.set_bolt("tally", Tally(f"{out}/windows"), parallelism=2)
    for place, shape in enumerate(SHAPES):
        shaped = builder.set_bolt(f"w{place}", shape.bolt(), parallelism=2 if shape.keyed else 1)
        if shape.keyed:
            shaped.fields_grouping("timed", ["key"])
        else:
            shaped.global_grouping("timed")
        tally.fields_grouping(f"w{place}", ["shape"])
