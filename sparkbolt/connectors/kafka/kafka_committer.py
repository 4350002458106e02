"""The Kafka committer: sends the messages of a micro-batch exactly once, in one Kafka transaction.

Rule 1: the messages of a txid and its marker are one Kafka transaction. The marker is an offset of a consumer group
without a consumer: the txid, on kafka_partition 0 of the first of the topics by name.
Rule 2: the transactional id is that of checkpoint and component. ``init_transactions`` of a new producer fences all
older ones, and commits or aborts their open transactions before it returns. Then the committer reads the marker, which
says whether the txid is committed.
Rule 3: after each error the producer is dropped, and the next call begins with rule 2. So every error is handled like a
crash.
Rule 4: a marker may be gone, since brokers forget the offsets of a group after ``offsets.retention.minutes``. If there
is no marker, messages younger than that were not committed; for older ones ``in_doubt`` decides.

Two-phase commits (KIP-939) are not needed: rows are durable in the checkpoint before Spark commits, and the marker
records whether they were sent. The client library does not support them either.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from sparkbolt.connectors.kafka.client_causes import Causes
from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
from sparkbolt.connectors.kafka.kafka_cluster import config_of, topic_exists, topic_text
from sparkbolt.connectors.kafka.kafka_sender import is_refusal
from sparkbolt.connectors.txid_note import CommitRefusedError, TxidNote
from sparkbolt.errors import Unavailable

log = logging.getLogger(__name__)

Pairs: TypeAlias = list[tuple[str, bytes | None]]
Message: TypeAlias = tuple[int, str, bytes | None, bytes | None, Pairs | None]
"""The time of its micro-batch in milliseconds, topic, key, value, headers."""

TXID_HEADER = "sparkbolt-txid"
"""The header of each message: checkpoint, component and txid, with slashes between."""
InDoubt = Literal["stop", "send", "skip"]
MESSAGE_BYTES_MAX = 1_000_000
"""The default of the client property ``message.max.bytes``."""
OVERHEAD_BYTES = 100
"""The most bytes of a message besides its key, value and headers, alone in a batch."""
HEADER_BYTES = 10
"""The most bytes of a header besides its name and value."""
TRANSACTION_MS = 60_000
"""How long the broker lets a transaction be open, unless ``client`` has ``transaction.timeout.ms``."""
FULL_SECS = 0.1
ABORT_SECS = 5.0
AGAIN_SECS = 5.0
"""After how long without an answer brokers are asked about a topic again."""
CHECK_SECS = 60.0
"""How long an answer of the brokers about a topic is valid."""
UNKNOWN_RETENTION_SECS = 3600.0
"""How long a marker is assumed to stay if the brokers give no retention."""


class KafkaCommitter:
    """Commits the messages of one component; in the driver, in one thread."""

    def __init__(
        self,
        settings: ClientSettings,
        checkpoint_id: str,
        component: str,
        *,
        request_secs: float,
        in_doubt: InDoubt = "stop",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Keep the arguments; the first ``commit`` connects.

        Args:
            settings: the brokers, and the user's client properties.
            checkpoint_id: see ``TopologyContext.checkpoint_id``.
            component: the bolt.
            request_secs: how long each request may take.
            in_doubt: how to treat a txid if it is unknown whether it was committed: one of ``InDoubt``.
            clock: a monotonic clock in seconds.
            wall: the time in seconds since the epoch.
        """
        self._settings, self._secs, self._in_doubt = settings, request_secs, in_doubt
        self._causes = Causes(settings)
        self._whose = f"{checkpoint_id}/{component}"
        self._clock, self._wall = clock, wall
        self.group = f"sparkbolt-{checkpoint_id}-{component}"
        """The consumer group of the marker, and the transactional id."""
        self._producer: Any = None
        self._metadata: Any = None
        self._last: TxidNote | None = None
        """The marker; valid while there is a producer."""
        self._returned: TxidNote | None = None
        """The last txid whose commit has returned here, and how many messages it had."""
        self._ended = 0
        """The last txid whose transaction this process has begun to commit."""
        self._single = False
        """Whether each message is sent in a separate batch, to find the one that is refused."""
        self._timeout_secs = float(settings.options.get("transaction.timeout.ms", TRANSACTION_MS)) / 1000

    def commit(self, txid: int, messages: Sequence[Message]) -> bool:
        """Send messages and their marker in one transaction; return whether they were sent now.

        Raises:
            Unavailable: No broker answers, or someone has to change something there. The same call may succeed
                later; it also finds out the outcome of a commit that was interrupted.
            CommitRefusedError: A message is refused, another driver has taken over, or nobody knows whether the
                messages are there. Nothing of them is sent by this call.
        """
        topic = min(message[1] for message in messages)
        refused: list[tuple[Any, Any]] = []
        began_s = self._clock()
        try:
            if self._producer is None:
                self._connect(topic, txid)
            if self._is_there(txid, topic, messages):
                return False
            began_s = self._clock()
            self._send(txid, topic, messages, refused)
        except TimeoutError:
            self._drop()
            raise Unavailable(f"no answer from Kafka at {self._settings.where}") from None
        except client_library().KafkaException as error:
            self._drop()
            raise self._meaning(error, refused, txid, self._clock() - began_s) from error
        except BaseException:
            self._drop()
            raise
        self._last = self._returned = TxidNote(txid, len(messages))
        return True

    def close(self) -> None:
        """Release the producer; no transaction is open."""
        self._producer = None

    # The producer and its marker.

    def _connect(self, topic: str, txid: int) -> None:
        properties = self._settings.producer(**{"linger.ms": 5, "transaction.timeout.ms": TRANSACTION_MS})
        properties["transactional.id"] = self.group
        properties["message.timeout.ms"] = int(min(self._secs, self._timeout_secs) * 1000)
        if self._single:
            properties["batch.num.messages"] = 1
        producer = self._settings.new("Producer", properties, self._causes.hear)
        self._causes.forget()
        try:
            producer.init_transactions(self._secs)
        except client_library().KafkaException:
            self._causes.listen(producer)
            raise
        consumer = self._settings.new("Consumer", self._settings.consumer(self.group))
        try:
            self._last = self._marker(consumer, topic, txid)
            self._metadata = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        self._producer = producer

    def _marker(self, consumer: Any, topic: str, txid: int) -> TxidNote | None:
        """Return the last txid that is committed; None if there is no marker.

        The consumer reads only committed offsets, so it waits for an offset whose transaction is about to end. An admin
        client can request it, too, but librdkafka 2.16 then ends the process, and does not list a first offset at all.

        A broker that was killed may have lost the end of that transaction, and then keeps the offset until
        the next transaction of this id commits. If this process never began to commit ``txid``, the open
        transaction is an earlier one, whose commit has returned, so the committer continues.
        """
        kafka = client_library()
        try:
            [answer] = consumer.committed([kafka.TopicPartition(topic, 0)], timeout=self._secs)
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError._TIMED_OUT and self._is_unended(topic):
                if self._returned is not None and self._ended < txid:
                    log.warning("Kafka: the end of txid %s was lost; the next commit ends it", self._returned.txid)
                    return self._returned
                raise Unavailable(
                    f"the group {self.group} holds an offset of a transaction of which the brokers do not know the end"
                    "; if it stays so, they have lost it: see docs/exactly-once.md, Sinks"
                ) from error
            raise
        if answer.error is not None:
            raise kafka.KafkaException(answer.error)
        if answer.offset <= 0:
            return None
        return TxidNote(answer.offset, int((answer.metadata or "").rstrip("\0")))

    def _is_unended(self, topic: str) -> bool:
        """Whether brokers return the marker at once to clients that do not wait for the ends of transactions."""
        kafka = client_library()
        properties = {**self._settings.consumer(self.group), "isolation.level": "read_uncommitted"}
        consumer = self._settings.new("Consumer", properties)
        try:
            return bool(consumer.committed([kafka.TopicPartition(topic, 0)], timeout=self._secs)[0].error is None)
        except kafka.KafkaException:
            return False
        finally:
            consumer.close()

    def _is_there(self, txid: int, topic: str, messages: Sequence[Message]) -> bool:
        """Whether the messages were committed before."""
        if self._last is None:
            return self._is_lost(txid, topic, messages)
        mend = "delete the group (kafka-consumer-groups --delete --group ...)"
        return self._last.has(txid, len(messages), f"the group {self.group}", mend)

    def _is_lost(self, txid: int, topic: str, messages: Sequence[Message]) -> bool:
        """Decide without a marker, which may have been forgotten; return whether to skip the messages."""
        age_secs = self._wall() - min(message[0] for message in messages) / 1000
        if age_secs < self._retention_secs():
            return False  # a marker of theirs would still be there
        place = f"{self._whose}/{txid}"
        if self._in_doubt != "stop":
            log.warning("Kafka: txid %s is in doubt, and in_doubt=%r", place, self._in_doubt)
            return self._in_doubt == "skip"
        raise CommitRefusedError(
            f"nobody knows whether the {len(messages)} messages of txid {txid} are in Kafka: they are "
            f"{age_secs / 3600:.0f} hours old, and brokers forget the offsets of the group {self.group}, which would "
            f"say it, after offsets.retention.minutes. Look in topic {topic!r} for the header {TXID_HEADER}={place}; "
            "then start the topology once with KafkaBolt(..., in_doubt='skip') if they are there, or 'send' if not"
        )

    def _retention_secs(self) -> float:
        """How long a marker is certainly there."""
        admin = self._settings.new("AdminClient", self._settings.admin())
        broker = next(iter(admin.list_topics(timeout=self._secs).brokers))
        minutes = config_of(admin, "BROKER", str(broker), self._secs).get("offsets.retention.minutes")
        if minutes is None:
            return UNKNOWN_RETENTION_SECS
        secs = 60.0 * float(minutes)
        return max(secs - 3600.0, secs / 2)  # clocks differ

    # A transaction.

    def _send(self, txid: int, topic: str, messages: Sequence[Message], refused: list[tuple[Any, Any]]) -> None:
        producer, mark = self._producer, (TXID_HEADER, f"{self._whose}/{txid}".encode())

        def heard(error: Any, message: Any) -> None:
            if error is not None:
                refused.append((error, message))

        producer.begin_transaction()
        for number, (_, to, key, value, headers) in enumerate(messages):
            more = {"key": key, "value": value, "headers": [*(headers or ()), mark], "on_delivery": heard}
            while True:
                try:
                    producer.produce(to, **more)
                    break
                except BufferError:  # the producer's queue is full
                    producer.poll(FULL_SECS)
            if number % 1000 == 0:
                producer.poll(0)
        note = client_library().TopicPartition(topic, 0, txid, str(len(messages)))
        producer.send_offsets_to_transaction([note], self._metadata, self._secs)
        self._ended = txid
        producer.commit_transaction(self._secs)

    def _drop(self) -> None:
        """Give up the producer: a transaction that is open is aborted now, or by the next ``init_transactions``."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(client_library().KafkaException, SystemError):
                producer.abort_transaction(min(self._secs, ABORT_SECS))

    def _meaning(self, error: Any, refused: Sequence[tuple[Any, Any]], txid: int, secs: float) -> Exception:
        """Return the exception to raise for an error of the client."""
        inner, codes = error.args[0], client_library().KafkaError
        text = self._settings.text_of(error)
        where = self._settings.where
        fenced = inner.code() in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH)
        if fenced and secs < 0.9 * self._timeout_secs:
            return CommitRefusedError(
                f"another producer with the transactional id {self.group} has taken over ({text}): another driver goes "
                "on with this checkpoint or a copy of it, and this one sends nothing more"
            )
        bad = [(said, message) for said, message in refused if is_refusal(said)]
        if bad and self._single:
            said, message = bad[0]
            key = message.key()
            return CommitRefusedError(
                f"topic {message.topic()!r} at {where} refuses {len(bad)} messages of txid {txid}, first the one "
                f"with key {key!r:.100} and value {message.value()!r:.200}: {self._settings.text_of(said)}"
            )
        if bad:
            self._single = True
            return Unavailable(f"Kafka at {where} refuses a batch ({text}): each message is sent by itself now")
        said = next((f": {self._settings.text_of(one)}" for one, _ in refused if not _is_purge(one)), "")
        cause = self._causes.cause(error)
        return Unavailable(f"no commit to Kafka at {where}: {text if cause is None else cause.text}{said}")


def _is_purge(error: Any) -> bool:
    codes = client_library().KafkaError
    return error.code() in (codes._PURGE_QUEUE, codes._PURGE_INFLIGHT)


class TopicChecks:
    """The limits of topics, so that a message that brokers would refuse fails its tuple before it counts."""

    def __init__(self, settings: ClientSettings, *, request_secs: float, asks: bool) -> None:
        """Ask nothing yet.

        Args:
            settings: the brokers, and the user's client properties.
            request_secs: how long each request may take.
            asks: whether to ask the brokers; otherwise only the client's own limit counts.
        """
        self._settings, self._secs, self._asks = settings, request_secs, asks
        self._bytes_max = int(settings.options.get("message.max.bytes", MESSAGE_BYTES_MAX))
        self._known: dict[str, tuple[float, int, bool]] = {}
        """By topic: until when it is believed, the bytes of a message at most, and whether it needs keys."""
        self._away: tuple[float, str] | None = None
        """Until when no other question is asked, because brokers did not answer the last one, and why."""
        self._causes = Causes(settings)
        self._clients: tuple[Any, Any] | None = None

    def check(self, message: Message, *, waits: bool, mark_bytes: int = 0) -> None:
        """Refuse a message that the brokers would refuse.

        Args:
            message: the message.
            waits: whether a topic that does not exist is waited for.
            mark_bytes: the bytes that the header of the txid takes.

        Raises:
            ValueError: It is refused.
            Unavailable: No broker answers, or the topic does not exist.
        """
        _, topic, key, value, headers = message
        size = len(key or b"") + len(value or b"") + OVERHEAD_BYTES + mark_bytes
        size += sum(len(name.encode()) + len(data or b"") + HEADER_BYTES for name, data in headers or ())
        bytes_max, keyed = self._limits(topic, waits) if self._asks else (self._bytes_max, False)
        if size > bytes_max:
            whose = "client property message.max.bytes" if bytes_max == self._bytes_max else "topic's max.message.bytes"
            raise ValueError(f"its message for topic {topic!r} has {size} bytes, and the {whose} is {bytes_max}")
        if keyed and key is None:
            raise ValueError(f"its message has no key, and topic {topic!r} is compacted: it takes none without")

    def _limits(self, topic: str, waits: bool) -> tuple[int, bool]:
        known = self._known.get(topic)
        if known is None or known[0] < time.monotonic():
            known = self._known[topic] = (time.monotonic() + CHECK_SECS, *self._ask(topic, waits))
        return known[1:]

    def _ask(self, topic: str, waits: bool) -> tuple[int, bool]:
        kafka = client_library()
        if self._clients is None:
            # A producer asks for topics as the one that commits does: a broker may then create them.
            settings = self._settings
            producer = settings.new("Producer", settings.producer(), self._causes.hear)
            self._clients = producer, settings.new("AdminClient", settings.admin())
        producer, admin = self._clients
        where = self._settings.where
        if self._away is not None and self._away[0] > time.monotonic():
            raise Unavailable(self._away[1])
        try:
            found = producer.list_topics(topic, timeout=self._secs).topics[topic]
        except kafka.KafkaException as error:
            self._causes.listen(producer)
            cause = self._causes.cause()
            self._causes.forget()
            text = f"no answer from Kafka at {where}: {self._settings.text_of(error)}" if cause is None else cause.text
            self._away = time.monotonic() + AGAIN_SECS, text
            raise Unavailable(text) from None
        exists = topic_exists(found)
        if not exists:
            said = f"topic {topic!r} at {where}: {self._settings.scrub(topic_text(found))}"
            if waits or exists is None:
                raise Unavailable(said)
            raise ValueError(said)
        config = config_of(admin, "TOPIC", topic, self._secs)
        size = int(config.get("max.message.bytes", self._bytes_max))
        return min(size, self._bytes_max), "compact" in config.get("cleanup.policy", "")
