"""Word count from one Kafka topic to another.

    python examples/kafka_words.py                              # no broker needed: the client's mock cluster
    python examples/kafka_words.py --brokers localhost:9092     # reads topic `lines`, writes topic `counts`

Without ``--brokers`` the brokers are within this process (``MockKafka``): they keep at most 5 MB of each
kafka_partition in memory and are gone with the process. The program writes some lines, counts their words, and ends.
With a broker it goes on until Ctrl-C; `sparkbolt lag examples.kafka_words:topology` tells how far behind it is.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from datetime import timedelta

from sparkbolt import BasicBolt, RetryPolicy, Topology, TopologyBuilder, bolt
from sparkbolt.bolts import KafkaBolt
from sparkbolt.spouts import KafkaSpout
from sparkbolt.spouts.kafka import MockKafka

LINES = ["to be or not to be", "that is the question", "whether tis nobler in the mind to suffer"]


@bolt(outputs=["word"])
def split(tup):
    for word in tup["line"].split():
        yield [word]


class Count(BasicBolt):
    """Counts words, durably."""

    outputs = ["word", "count"]

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup, collector):
        self.counts[tup["word"]] += 1
        collector.emit([tup["word"], self.counts[tup["word"]]])


def build(brokers: str, *, stop_at_end: bool) -> Topology:
    lines = KafkaSpout(
        brokers,
        topics="lines",
        group="kafka-words",
        value="text",
        outputs=["line"],
        start="earliest",
        stop_at_end=stop_at_end,
        retry=RetryPolicy(max_retries=5, min_backoff=timedelta(milliseconds=100)),
    )
    builder = TopologyBuilder("kafka-words")
    builder.set_spout("lines", lines, parallelism=2)
    builder.set_bolt("split", split).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("write", KafkaBolt(brokers, topic="counts", key="word")).shuffle_grouping("count")
    return builder.build()


def topology() -> Topology:
    """For `sparkbolt`'s commands, with a broker of one's own."""
    return build("localhost:9092", stop_at_end=False)


def last_counts(brokers: str) -> dict[str, int]:
    """What topic `counts` says of each word last; messages with one key are in one kafka_partition, in order."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "show", "enable.partition.eof": True})
    numbers = consumer.list_topics("counts", timeout=10).topics["counts"].partitions
    consumer.assign([TopicPartition("counts", number, 0) for number in numbers])
    counts: dict[str, int] = {}
    ended = 0
    while ended < len(numbers):
        for message in consumer.consume(1000, 1.0):
            if message.error() is not None:
                ended += 1
            else:
                body = json.loads(message.value())
                counts[body["word"]] = max(body["count"], counts.get(body["word"], 0))
    consumer.close()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the words of topic `lines` into topic `counts`.")
    parser.add_argument("--brokers", help="host:port of a Kafka broker (default: a mock cluster in this process)")
    parser.add_argument("--checkpoint", help="keep durable state there and resume from it")
    parser.add_argument("--drain", type=float, default=3.0, metavar="SECS", help="how long Ctrl-C waits for what runs")
    options = parser.parse_args()
    if options.brokers:
        build(options.brokers, stop_at_end=False).run(checkpoint=options.checkpoint, drain_secs=options.drain)
        return
    with MockKafka() as kafka:
        kafka.create("counts")
        kafka.produce("lines", LINES * 1000)
        build(kafka.brokers, stop_at_end=True).run()
        for word, count in Counter(last_counts(kafka.brokers)).most_common(5):
            print(f"{word:10} {count:6,}")


if __name__ == "__main__":
    main()
