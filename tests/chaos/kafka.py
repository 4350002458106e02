"""The topology that reads Kafka while it and the broker are killed: one bolt, which fails now and then.

What it is to read is in ``campaign.json`` of the directory, which the campaign writes before each start. Message
``n`` is the text of ``n`` at offset ``n // 8`` of kafka_partition ``n % 8``; poison is a text that is no number.

Two things are written of each message that succeeded, as 64-bit integers. ``out`` is idempotent, a file for each
micro-batch and task: what the ledger may count as processed. ``given`` is appended to and never replaced, a file for
each life of the driver and worker: whatever was given, also by a micro-batch that a kill undid.
"""

from __future__ import annotations

import json
import os
import random
from datetime import timedelta
from pathlib import Path

import numpy as np

from sparkbolt import BasicBolt, Config, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.connectors.files.part_files import PartFiles
from sparkbolt.spouts import KafkaSpout

KAFKA_PARTITIONS = 8
TOPIC, DEAD, GROUP = "messages", "messages-dead", "campaign"
MAX_RETRIES = 5
FAILING = 1 / 1000
"""The share of tuples that fail by chance: six times in a row, which would be a dead letter, once in 10^18."""
MICRO_BATCHES_MIN = 40
"""A micro-batch reads at most this share of the messages, so that kills come in the midst of them."""
SUFFIX = ".int64"


class Work(BasicBolt):
    """Notes the number of each message; fails poison, and others by chance."""

    transient = ("out", "given", "context", "files", "numbers", "gathered", "chance")

    def __init__(self, out: str, given: str) -> None:
        self.out, self.given = out, given

    def prepare(self, context):
        self.context = context
        self.files = PartFiles(self.out, f"{context.component}-{context.index}{SUFFIX}", context)
        self.numbers: list[int] = []
        self.gathered = -1
        self.chance = random.Random(os.urandom(8))  # workers are forked, and would all have the same

    def execute(self, tup, collector):
        if self.gathered != self.context.micro_batch_id:
            self.numbers, self.gathered = [], self.context.micro_batch_id
        number = int(tup["line"])
        if self.chance.random() < FAILING:
            raise RuntimeError("this one failed by chance")
        self.numbers.append(number)

    def flush(self):
        numbers = self.numbers if self.gathered == self.context.micro_batch_id else []
        self.numbers = []
        data = np.array(numbers, np.int64).tobytes()
        self.files.write(self.context.micro_batch_id, (lambda file: file.write(data)) if data else None)
        path = f"{self.given}-{os.getpid()}-{self.context.index}{SUFFIX}"
        with open(path, "ab", buffering=0) as file:
            file.write(data)


def settings_of(directory: str | Path) -> Path:
    """Where the campaign says what is to be read."""
    return Path(directory) / "campaign.json"


def build(directory: str) -> Topology:
    """Messages that are acked, but for poison, which becomes dead letters in a topic."""
    settings = json.loads(settings_of(directory).read_text())
    lines = KafkaSpout(
        settings["brokers"],
        TOPIC,
        group=GROUP,
        value="text",
        outputs=["line"],
        start="earliest",
        retry=RetryPolicy(max_retries=MAX_RETRIES, min_backoff=timedelta(milliseconds=50)),
        dead_letters=DEAD,
        max_poll_records=max(10, settings["messages"] // KAFKA_PARTITIONS // MICRO_BATCHES_MIN),
        request_secs=5.0,
    )
    config = Config(message_timeout_secs=600, compact_every=4, restarts_max=1000, restart_backoff_secs=0.1)
    builder = TopologyBuilder("campaign", config)
    builder.set_spout("lines", lines, parallelism=2)
    work = Work(f"{directory}/out-{settings['checkpoint']}", f"{directory}/given/{settings['life']:03d}")
    builder.set_bolt("work", work, parallelism=2).shuffle_grouping("lines")
    return builder.build()
