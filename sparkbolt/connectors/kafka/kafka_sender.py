"""Sender: sends messages so that the brokers deliver or refuse each of them by itself.

Brokers refuse a whole batch of a producer because of one of its messages. So the messages of a refused batch are sent
again, behind the others of the same ``flush``: first in smaller batches, and then each in a batch of its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from sparkbolt.connectors.kafka.client_causes import Causes
from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
from sparkbolt.connectors.kafka.kafka_cluster import topic_exists, topic_text

log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[Any], None]
"""Takes None if the brokers have acknowledged the message, else the error of the client library."""

FULL_SECS = 0.1
"""How long one poll waits, in seconds, when the producer's queue is full."""
LOOK_SECS = 5.0
"""How long to wait for an answer about a topic that takes no message, in seconds."""
NEW_TOPIC_SECS = 5.0
"""How long a topic that does not exist may take to be created by its first message, in seconds."""
POLL_EVERY = 256
"""The sender polls for acknowledgements once per this many messages."""
SMALLER = {None: 100, 100: 1}
"""How many messages a batch has when those of a refused batch are sent again; None is the client's default."""
AGAIN_AT_ONCE = 1000
"""How many messages are sent again at once, so that none waits long for the others."""


def is_refusal(error: Any) -> bool:
    """Whether brokers refuse a message, or the batch that it is in, for what it contains."""
    codes = client_library().KafkaError
    return error.code() in (
        codes.MSG_SIZE_TOO_LARGE,
        codes.RECORD_LIST_TOO_LARGE,
        codes.INVALID_MSG_SIZE,
        codes.INVALID_MSG,
        codes.INVALID_RECORD,
        codes._INVALID_DIFFERENT_RECORD,
        codes.INVALID_TIMESTAMP,
        codes.POLICY_VIOLATION,
    )


class Sender:
    """Sends messages with an idempotent producer, which connects in the background."""

    def __init__(
        self,
        settings: ClientSettings,
        deliver_secs: float,
        properties: Mapping[str, Any] | None = None,
        *,
        batch: int | None = None,
        causes: Causes | None = None,
    ) -> None:
        """Create the producer.

        Args:
            settings: The brokers, and the user's client properties.
            deliver_secs: How long the brokers may take to acknowledge a message.
            properties: Further properties, which the user's replace.
            batch: How many messages a batch has at most; None: as the client library and the user's properties say.
            causes: Gets the errors that the producer reports.

        Raises:
            ConfigError: The client library refuses a property.
        """
        self._settings, self._secs, self._batch = settings, deliver_secs, batch
        self._causes = causes or Causes(settings)
        new_topic_ms = int(NEW_TOPIC_SECS * 1000)
        defaults = {"linger.ms": 5, "topic.metadata.propagation.max.ms": new_topic_ms, **(properties or {})}
        self._properties = settings.producer(**defaults)
        self._properties["message.timeout.ms"] = int(deliver_secs * 1000)
        if batch is not None:
            self._properties["batch.num.messages"] = batch
        self._sent = self._in_flight = 0
        self._refused: list[tuple[str, Mapping[str, Any], Report]] = []
        """Messages of refused batches."""
        self._is_silent = False
        """Whether brokers did not answer a question about a topic after the last ``flush``."""
        self._smaller: Sender | None = None
        """Sends these; created for the first one."""
        self._connect()

    def _connect(self) -> None:
        self._producer: Any = self._settings.new("Producer", self._properties, self._causes.hear)

    def send(self, topic: str, message: Mapping[str, Any], report: Report) -> None:
        """Pass a message to the producer.

        Args:
            topic: The topic.
            message: Arguments of the client library's ``produce``: value, key, headers, partition.
            report: Called once, by this or a later call.
        """
        answer = partial(self._answer, topic, message, report)
        while True:
            try:
                self._producer.produce(topic, **message, on_delivery=answer)
                break
            except BufferError:  # the producer's queue is full
                self._call(self._producer.poll, FULL_SECS)
            except client_library().KafkaException as error:
                if error.args[0].code() != client_library().KafkaError._FATAL:
                    report(error.args[0])
                    return
                self._renew(error)
        self._in_flight += 1
        self._sent += 1
        if self._sent % POLL_EVERY == 0:
            self._call(self._producer.poll, 0)

    def flush(self) -> None:
        """Wait until each message is acknowledged or has failed."""
        self._causes.forget()
        self._is_silent = False
        while self._in_flight:
            if self._call(self._producer.flush, self._secs) == 0:
                break  # no message is left that could still be reported
        self._in_flight = 0
        refused, self._refused = self._refused, []
        if refused and self._smaller is None:
            self._smaller = Sender(
                self._settings, self._secs, self._properties, batch=SMALLER[self._batch], causes=self._causes
            )
        for start in range(0, len(refused), AGAIN_AT_ONCE):
            assert self._smaller is not None
            for topic, message, report in refused[start : start + AGAIN_AT_ONCE]:
                self._smaller.send(topic, message, report)
            self._smaller.flush()

    def why(self, topic: str, error: Any) -> tuple[str, bool]:
        """Return why brokers did not acknowledge a message, and whether they say that its topic does not exist."""
        self._causes.listen(self._producer)
        cause = None if error.code() == client_library().KafkaError._UNKNOWN_TOPIC else self._causes.cause(error)
        if cause is not None:
            return cause.text, False
        if not self._is_silent:
            try:
                about = self._producer.list_topics(topic, timeout=LOOK_SECS).topics[topic]
                if topic_exists(about) is False:
                    return f"topic {topic!r} at {self._settings.where}: {topic_text(about)}", True
            except client_library().KafkaException:
                self._is_silent = True
        return f"Kafka did not take its message: {self._settings.text_of(error)}", False

    def _answer(self, topic: str, message: Mapping[str, Any], report: Report, error: Any, _: Any) -> None:
        self._in_flight -= 1
        if error is not None and self._batch in SMALLER and is_refusal(error):
            self._refused.append((topic, message, report))
        else:
            report(error)

    def _call(self, call: Callable[[float], int], wait_secs: float) -> int | None:
        """Call the producer so that it reports messages; return None if it had to be replaced."""
        try:
            return call(wait_secs)
        except SystemError as error:  # the library raises this for a fatal error during ``flush``
            self._renew(error)
        except client_library().KafkaException as error:
            if not error.args[0].fatal():
                raise
            self._renew(error)
        return None

    def _renew(self, error: Exception) -> None:
        """Replace the producer: after a fatal error it accepts no message and fails those in flight."""
        why = self._settings.text_of(error)
        log.warning("Kafka's producer cannot go on (%s): the messages in flight fail, and a new one is created", why)
        old, left = self._producer, 1
        while self._in_flight and left:
            with contextlib.suppress(client_library().KafkaException, SystemError):  # it may raise the same error again
                left = old.flush(self._secs)
        self._connect()
