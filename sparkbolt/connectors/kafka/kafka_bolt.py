"""KafkaBolt: sends tuples as Kafka messages.

A tuple is acked when the broker has acknowledged its message, and fails alone otherwise. ``flush`` waits for all
messages in flight, so a micro-batch never commits a message that the broker does not have. In a transactional topology
the driver sends all messages of a micro-batch in one Kafka transaction (``kafka_committer``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from sparkbolt.api.arguments import PART_OF_TUPLE, POSITIVE, PROPERTIES, checked, text
from sparkbolt.api.committers import Committer
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.outside import WritesOutside
from sparkbolt.api.tuples import Tuple
from sparkbolt.api.unsent import note_unsent
from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
from sparkbolt.connectors.kafka.kafka_committer import TXID_HEADER, InDoubt, KafkaCommitter, TopicChecks
from sparkbolt.connectors.kafka.kafka_sender import Sender, is_refusal
from sparkbolt.connectors.message_parts import Part, encoded, encoded_part, part_of
from sparkbolt.errors import ConfigError, Unavailable

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import BoltCollector
    from sparkbolt.connectors.kafka.kafka_committer import Message


class KafkaBolt(WritesOutside, Committer):
    """Writes each tuple as one message to a Kafka topic, with an idempotent or a transactional producer.

    Give either ``topic``, the name of the topic, or ``topic_field``, the field that holds the name. ``key``, ``value``
    and ``headers`` are each the name of a field or a function of the tuple. Without ``value`` the message is a JSON
    object of all fields. Bytes are written unchanged, a str as UTF-8, None as a null key or value, and anything else
    as JSON, with the encoder of ``JsonLinesBolt``. Headers are a mapping or an iterable of pairs. ``client`` takes
    further client properties, such as those for SASL and TLS; passwords and other secrets are never printed.

    In a transactional topology (``Config(transactional=True)``) the messages of a micro-batch are sent by the driver,
    in one Kafka transaction, when the micro-batch has succeeded. A consumer with
    ``isolation.level=read_committed`` sees each message exactly once; the header ``sparkbolt-txid`` has its txid.

    A tuple fails if it cannot be encoded, if the broker refuses its message, or if ``topic_field`` names a topic that
    does not exist. If the broker does not acknowledge the message within ``deliver_secs``, or the topic of ``topic=``
    does not exist, the tuple fails without costing an attempt (``Unavailable``), and the reason is the cause. The
    simulator and ``TopologyTestDriver`` record messages instead of sending them (``TopologyTestDriver.unsent``).

    >>> KafkaBolt("localhost:9092", topic="words", key="word").topic
    'words'
    """

    stateless = True
    ignores_ticks = True
    awaited_in_outage = "its brokers"
    flush_anywhere = True

    @checked
    def __init__(
        self,
        brokers: str,
        topic: Annotated[str, text("the name of a topic")] | None = None,
        *,
        topic_field: Annotated[str, text("the name of a field")] | None = None,
        key: Annotated[Part, PART_OF_TUPLE] | None = None,
        value: Annotated[Part, PART_OF_TUPLE] | None = None,
        headers: Annotated[Part, PART_OF_TUPLE] | None = None,
        deliver_secs: Annotated[float, POSITIVE] = 30.0,
        trial: bool = True,
        in_doubt: InDoubt = "stop",
        client: Annotated[Mapping[str, Any], PROPERTIES] | None = None,
    ) -> None:
        """Check and store the arguments.

        Args:
            brokers: where to connect first: ``host:port``, several with commas between.
            topic: the topic of all messages.
            topic_field: the field that names the topic of a tuple's message.
            key: the message's key.
            value: the message's value; by default a JSON object of all fields.
            headers: the message's headers.
            deliver_secs: how long the broker may take to acknowledge a message; for the driver's requests, too.
            trial: in a transactional topology: ask the brokers once a minute and process for each topic, whether it
                exists and how long its messages may be, so that a message that they would refuse fails its tuple alone.
                Without it such a message stops the topology.
            in_doubt: in a transactional topology: how to treat messages of which Kafka has forgotten whether it has
                them, since the topology was stopped for longer than ``offsets.retention.minutes``, at the worst
                moment: ``stop`` with an error that says where to look, ``send`` or ``skip``.
            client: further client properties.

        Raises:
            ConfigError: Not exactly one of ``topic`` and ``topic_field`` is given, or ``client`` sets a property that
                the bolt itself sets.
        """
        if (topic is None) == (topic_field is None):
            raise ConfigError(f"KafkaBolt: topic={topic!r}, topic_field={topic_field!r}: expected one of the two")
        self.settings = ClientSettings(brokers, dict(client or {}))
        self.topic = topic
        self.topic_field = topic_field
        self.key, self.value = key, value
        self.headers = headers
        self.deliver_secs = deliver_secs
        self.trial = trial
        self.in_doubt = in_doubt
        client_library()

    def __str__(self) -> str:
        """Return the topic and the brokers."""
        topic = repr(self.topic) if self.topic_field is None else f"of field {self.topic_field!r}"
        return f"KafkaBolt(topic {topic} at {self.settings.where})"

    @property
    def place(self) -> str:
        """The brokers."""
        return f"Kafka at {self.settings.where}"

    def prepare(self, context: TopologyContext) -> None:
        """Create the producer, which connects in the background; in a transactional topology only the checks.

        Raises:
            ConfigError: The client library refuses a property.
        """
        self._context = context
        self._unsent: list[tuple[Tuple, BoltCollector, str, Any]] = []
        """Tuples whose messages the brokers did not acknowledge, with their topics and errors."""
        self._checks: TopicChecks | None = None
        if context.config.transactional and context.rehearsal_directory is None:
            self._checks = TopicChecks(self.settings, request_secs=self.deliver_secs, asks=self.trial)
            # The header of the txid, whose number has not more than 19 digits.
            self._mark_bytes = len(f"{TXID_HEADER}{context.checkpoint_id}/{context.component}/".encode()) + 30
            self._sender: Any = None
        elif context.rehearsal_directory is not None:
            self._sender = _Notes(context)
        else:
            self._sender = Sender(self.settings, self.deliver_secs)

    def execute(self, tup: Tuple, collector: BoltCollector) -> None:
        """Pass the tuple's message to the producer, or check it and keep it for ``commit``."""
        made = self.row(tup)
        if self._checks is not None:
            self._checks.check(made, waits=self.topic_field is None, mark_bytes=self._mark_bytes)
            self.keep(made)
            collector.ack(tup)
            return
        _, topic, key, value, headers = made
        message = {"key": key, "value": value, "headers": headers}
        self._sender.send(topic, message, partial(self._settle, tup, collector, topic))

    def row(self, tup: Tuple) -> Message:
        """Return the tuple's message.

        Raises:
            ValueError: The tuple names no topic.
        """
        topic = self.topic if self.topic_field is None else tup[self.topic_field]
        if not isinstance(topic, str) or not topic:
            raise ValueError(f"field {self.topic_field!r} holds {topic!r:.60}, expected the name of a topic")
        key = encoded_part(self.key, tup)
        value = encoded(dict(tup)) if self.value is None else encoded_part(self.value, tup)
        headers = None if self.headers is None else header_pairs(part_of(self.headers, tup))
        return self._context.now_ms, topic, key, value, headers

    def begin(self, context: TopologyContext) -> None:
        """Make the committer for the driver; it connects in the first ``commit``."""
        self._committer = KafkaCommitter(
            self.settings,
            context.checkpoint_id,
            context.component,
            request_secs=self.deliver_secs,
            in_doubt=self.in_doubt,
        )

    def commit(self, txid: int, rows: Sequence[Any]) -> None:
        """Send the messages of a micro-batch in one Kafka transaction; do nothing if they are there.

        Raises:
            Unavailable: The brokers are unavailable, or someone has to change something there.
            CommitRefusedError: A message is refused, another driver has taken over, or nobody knows whether the
                messages are there.
        """
        if not self._committer.commit(txid, rows):
            log.info("%s: the messages of txid %d were committed before", self, txid)

    def end(self) -> None:
        """Release the driver's producer."""
        self._committer.close()

    def _settle(self, tup: Tuple, collector: BoltCollector, topic: str, error: Any) -> None:
        if error is None:
            collector.ack(tup)
        elif is_refusal(error):
            collector.fail(tup, f"Kafka did not take its message: {self.settings.text_of(error)}")
        else:
            self._unsent.append((tup, collector, topic, error))

    def flush(self) -> None:
        """Wait until each message is acknowledged or has failed."""
        if self._sender is None:
            return
        self._sender.flush()
        unsent, self._unsent = self._unsent, []
        reasons: dict[str, str | Unavailable] = {}
        for tup, collector, topic, error in unsent:
            if topic not in reasons:
                text, is_missing = self._sender.why(topic, error)
                reasons[topic] = text if is_missing and self.topic is None else Unavailable(text)
            collector.fail(tup, reasons[topic])

    def cleanup(self) -> None:
        """Release the producer; no message is in flight."""
        self._sender = None


class _Notes:
    """Replaces the sender in a rehearsal: it records each message and acknowledges it in ``flush``."""

    def __init__(self, context: TopologyContext) -> None:
        self._context = context
        self._reports: list[Callable[[Any], None]] = []

    def send(self, topic: str, message: Mapping[str, Any], report: Callable[[Any], None]) -> None:
        note_unsent(self._context, {"topic": topic, **message})
        self._reports.append(report)

    def flush(self) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            report(None)


def header_pairs(headers: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    """Convert headers to the client library's form.

    >>> header_pairs({"trace": "ab"})
    [('trace', b'ab')]
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return [(str(name), encoded(value)) for name, value in pairs]
