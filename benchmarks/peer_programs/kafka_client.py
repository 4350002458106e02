"""Kafka's client library by itself: `kafka_client.py BROKERS TOPIC KAFKA_PARTITIONS MESSAGES SETTINGS`.

One consumer for each of the kafka_partitions (numbers with commas between), so many messages of each, in chunks as
large as the spout takes, with the same settings (JSON). Prints when the first message was there, and at the end when
and how many.
"""

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

brokers, topic, numbers, messages, settings = sys.argv[1:]
CHUNK = 10_000

consumers = []
for number in map(int, numbers.split(",")):
    consumer = Consumer(
        {
            **json.loads(settings),
            "bootstrap.servers": brokers,
            "group.id": "client-alone",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0)])
    consumers.append(consumer)
count = 0
for consumer in consumers:
    left = int(messages)
    while left:
        came = consumer.consume(min(CHUNK, left), 1.0)
        if not count and came:
            print("began", time.time(), flush=True)
        values = [message.value() for message in came if message.error() is None]
        left -= len(values)
        count += len(values)
print("ended", time.time(), count, flush=True)
for consumer in consumers:
    consumer.close()
