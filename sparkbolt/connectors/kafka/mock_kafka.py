"""MockKafka: Kafka without a broker, for examples and tests.

It is the mock cluster of the client library: brokers within this process, which any process on the machine can reach
over loopback. It keeps everything in memory and loses it when the process ends. It cannot create topics with settings,
delete records, compact, look up by time, or isolate transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from sparkbolt.connectors.kafka.client_settings import client_library
from sparkbolt.errors import EngineError

PRODUCE_SECS = 30.0


class MockKafka:
    """Brokers within this process; a topic has four kafka_partitions and is created when it is first named.

    >>> with MockKafka() as kafka:
    ...     kafka.produce("orders", [b"first", b"second"])
    ...     kafka.brokers.startswith("127.0.0.1:")
    2
    True
    """

    def __init__(self, brokers: int = 1) -> None:
        """Start the brokers.

        Raises:
            ConfigError: The client library is not installed.
            EngineError: The mock cluster does not start.
        """
        kafka = client_library()
        self._producer: Any = kafka.Producer({"test.mock.num.brokers": brokers, "log_level": 0, "linger.ms": 5})
        found = self._producer.list_topics(timeout=PRODUCE_SECS).brokers.values()
        self.brokers = ",".join(f"{broker.host}:{broker.port}" for broker in found)
        """The brokers' addresses: ``host:port``, separated by commas."""

    def create(self, topic: str) -> int:
        """Create a topic unless it exists; return its number of kafka_partitions."""
        return len(self._producer.list_topics(topic, timeout=PRODUCE_SECS).topics[topic].partitions)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        key: bytes | str | None = None,
        kafka_partition: int | None = None,
        headers: Mapping[str, bytes | str] | None = None,
    ) -> int:
        """Write messages and return their number; they are spread by key, or at random, or to ``kafka_partition``.

        Raises:
            EngineError: The cluster did not accept all of them.
        """
        self.create(topic)
        options: dict[str, Any] = {"key": key, "headers": dict(headers or {})}
        if kafka_partition is not None:
            options["partition"] = kafka_partition
        count = 0
        for value in values:
            while True:
                try:
                    self._producer.produce(topic, value, **options)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            count += 1
        left = self._producer.flush(PRODUCE_SECS)
        if left:
            raise EngineError(f"the mock cluster did not take {left} of {count} messages to {topic!r}")
        return count

    def close(self) -> None:
        """Stop the brokers; their messages are lost."""
        self._producer = None

    def __enter__(self) -> MockKafka:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the brokers."""
        self.close()
