"""KafkaDeadLetters: a Kafka topic of dead letters that keep the original messages.

Key, value and headers are those of the original message, so a reader of its topic can read this one. Additional headers
hold the story: those of Kafka Streams' dead letter topics (KIP-1034), and the whole letter as JSON. A letter counts
once by its id, however often it is in the topic.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from sparkbolt.api.arguments import PROPERTIES, checked
from sparkbolt.api.causes import Cause
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.dead_letters import DeadLetter, RawMessage
from sparkbolt.connectors.kafka.client_causes import Causes
from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
from sparkbolt.connectors.kafka.kafka_cluster import topic_exists, topic_text
from sparkbolt.connectors.kafka.kafka_partition import Source, is_topic
from sparkbolt.connectors.kafka.kafka_sender import Sender, is_refusal
from sparkbolt.connectors.letters_read import LettersRead
from sparkbolt.errors import ConfigError, SparkboltError

STREAMS = "__streams.errors."
LETTER = "sparkbolt.letter"
TIMESTAMP = "sparkbolt.timestamp"
"""The original message's timestamp in ms since the epoch; the letter's own is its time of writing, for retention."""
REPLAYED, DISCARDED = "sparkbolt.replayed", "sparkbolt.discarded"
"""Headers of messages that note an operator's action on the letter of this id."""
GONE = "sparkbolt.gone"
"""Header of letters without an original message: the letter has no key and value and is never replayed."""
LETTER_BYTES_MAX = 262_144
"""A letter whose JSON is longer than this, in bytes, is written without its tuples: the message has them."""
LONG = {"message.max.bytes": 1_000_000_000}
"""The topic limits the length of messages, so the client does not."""
CUTS = 3
"""How many forms a letter's message has: the whole one, and shorter ones for topics that refuse it."""
DELIVER_SECS = 30.0
READ_SECS = 10.0
"""How long the brokers may give no answer, in seconds."""
WAIT_SECS = 0.1


class LettersNotTakenError(SparkboltError):
    """The brokers did not accept some letters; they are written again later."""


class KafkaDeadLetters:
    """Writes dead letters to a Kafka topic: use it as ``dead_letters=`` of any spout.

    For a ``KafkaSpout``, ``dead_letters="topic"`` creates this sink with the brokers and ``client`` of the spout.
    ``client`` takes further client properties, such as those for SASL and TLS; they are never printed.

    >>> KafkaDeadLetters("localhost:9092", "orders.dlq").topic
    'orders.dlq'
    """

    @checked
    def __init__(
        self, brokers: str, topic: str, *, client: Annotated[Mapping[str, Any], PROPERTIES] | None = None
    ) -> None:
        """Check and store the arguments; no connection is opened.

        Raises:
            ConfigError: The name of the topic is invalid, a client property cannot be given, or the client library is
                not installed.
        """
        if not is_topic(topic):
            raise ConfigError(f"topic={topic!r}: expected the name of a topic for dead letters")
        self.settings = ClientSettings(brokers, dict(client or {}))
        self.topic = topic
        client_library()

    def open(self, context: TopologyContext) -> None:
        """Create the producer."""
        self._sender: Any = _sender(self.settings)

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write the letters and wait until the brokers have acknowledged them.

        A letter that the topic refuses is written in a shorter form.

        Raises:
            LettersNotTakenError: Some or all letters may have been written; it is safe to write them again.
        """
        left, why = list(letters), ""
        for cut in range(CUTS):
            refused = send(self.settings, self._sender, [(self.topic, message_of(one, cut), None) for one in left])
            left, why = [left[number] for number in refused], next(iter(refused.values()), "")
        if left:
            raise LettersNotTakenError(f"topic {self.topic!r} does not take the story of {left[0].where}: {why}")

    def close(self) -> None:
        """Release the producer."""
        self._sender = None


Sent = tuple[str, RawMessage, int | None]
"""A topic, a message for it, and its kafka_partition, if one is given."""


def _sender(settings: ClientSettings) -> Sender:
    return Sender(settings, DELIVER_SECS, LONG)


def send(settings: ClientSettings, sender: Sender, messages: Iterable[Sent]) -> dict[int, str]:
    """Write messages and wait until the brokers have acknowledged them.

    Returns:
        The messages that their topic refuses, by index, and why.

    Raises:
        LettersNotTakenError: Other messages were not acknowledged.
    """
    refused: dict[int, str] = {}
    failed: list[tuple[str, Any]] = []

    def report(number: int, error: Any) -> None:
        if error is not None and is_refusal(error):
            refused[number] = settings.text_of(error)
        elif error is not None:
            failed.append((sent[number][0], error))

    sent = list(messages)
    for number, (topic, message, place) in enumerate(sent):
        options: dict[str, Any] = {} if place is None else {"partition": place}
        options |= {"value": message.value, "key": message.key, "headers": list(message.headers)}
        sender.send(topic, options, partial(report, number))
    sender.flush()
    if failed:
        why, _ = sender.why(*failed[0])
        raise LettersNotTakenError(f"Kafka did not take {len(failed)} message(s) of dead letters: {why}")
    return dict(sorted(refused.items()))


def message_of(letter: DeadLetter, cut: int = 0) -> RawMessage:
    """Return the message for a letter.

    Args:
        letter: The dead letter.
        cut: 0: everything; 1: without tuples and tracebacks; 2: also without the original message.
    """
    raw = letter.raw
    if cut:
        attempts = tuple(replace(attempt, traceback=None) for attempt in letter.attempts)
        letter = replace(letter, attempts=attempts, tuples=())
    if cut > 1 and raw is not None:
        note = f"the message of {len(raw.value or b'')} bytes is not here: with its story the topic does not take it"
        letter, raw = replace(letter, note="; ".join(filter(None, (letter.note, note)))), None
    last = letter.last
    told = {"exception": last.reason.split(":", 1)[0] if last.cause == Cause.EXCEPTION else last.cause}
    told |= {"message": last.reason, "stacktrace": last.traceback or ""}
    source = Source.of(letter.source)
    if source is not None and letter.position is not None:
        told |= {"topic": source.topic, "partition": str(source.number), "offset": str(letter.position)}
    # A reason may hold the cause of a decoding error, such as a lone surrogate.
    streams = [(STREAMS + name, text.encode(errors="backslashreplace")) for name, text in told.items()]
    line = replace(letter, raw=None).to_line().encode()
    if raw is not None and len(line) > LETTER_BYTES_MAX:
        line = replace(letter, raw=None, tuples=(), note="its tuples are in the message alone").to_line().encode()
    if raw is None:
        return RawMessage(None, headers=(*streams, (GONE, b""), (LETTER, line)))
    since = [] if raw.timestamp_ms is None else [(TIMESTAMP, str(raw.timestamp_ms).encode())]
    return replace(raw, headers=(*raw.headers, *streams, *since, (LETTER, line)))


def letter_of(message: RawMessage) -> DeadLetter:
    """Return the letter of a message: undoes ``message_of``.

    Raises:
        ValueError: The message is not a dead letter.
    """
    headers = dict(message.headers)
    if headers.get(LETTER) is None:
        raise ValueError("the message has no letter in its headers")
    letter = DeadLetter.from_json(json.loads(headers[LETTER] or b""))
    if GONE in headers:
        return letter
    own = tuple(
        pair for pair in message.headers if pair[0] not in (LETTER, TIMESTAMP) and not pair[0].startswith(STREAMS)
    )
    since = headers.get(TIMESTAMP)
    return replace(letter, raw=replace(message, headers=own, timestamp_ms=int(since) if since else None))


@dataclass
class TopicRead(LettersRead[str]):
    """The contents of a topic of dead letters; ``damaged`` are places such as ``partition 0, offset 17``."""

    replayed: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)


def read_topic(settings: ClientSettings, topic: str) -> TopicRead:
    """Read all letters of a topic up to its present end; those of one kafka_partition are in order.

    Raises:
        ConfigError: There is no such topic.
        LettersNotTakenError: The brokers do not answer.
    """
    kafka = client_library()
    causes, found = Causes(settings), TopicRead()
    consumer = settings.new("Consumer", settings.consumer("sparkbolt-dlq"), causes.hear)
    try:
        about = consumer.list_topics(topic, timeout=READ_SECS).topics[topic]
        exists = topic_exists(about)
        if exists is None:
            raise LettersNotTakenError(f"topic {topic!r} cannot be read at present: {topic_text(about)}")
        if not exists:
            raise ConfigError(f"there is no topic {topic!r} of dead letters at {settings.where}")
        consumer.assign([kafka.TopicPartition(topic, number, kafka.OFFSET_BEGINNING) for number in about.partitions])
        ended: set[int] = set()
        until = time.monotonic() + READ_SECS
        while len(ended) < len(about.partitions):
            came = consumer.consume(1000, WAIT_SECS)  # it waits for all of them, however many have arrived
            if any(message.error() is None for message in came):
                until = time.monotonic() + READ_SECS
            elif time.monotonic() > until:
                raise LettersNotTakenError(f"the Kafka brokers do not answer while {topic!r} is read")
            for message in came:
                error = message.error()
                if error is None:
                    _sort(found, message)
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    except kafka.KafkaException as error:
        causes.listen(consumer)
        cause = causes.cause()
        raise LettersNotTakenError(settings.text_of(error) if cause is None else cause.text) from None
    finally:
        consumer.close()
    return found


def _sort(found: TopicRead, message: Any) -> None:
    raw = raw_of(message)
    headers = dict(raw.headers)
    for header, ids in ((REPLAYED, found.replayed), (DISCARDED, found.discarded)):
        noted = headers.get(header)
        if noted is not None:
            ids.add(noted.decode())
            return
    found.add(f"partition {message.partition()}, offset {message.offset()}", partial(letter_of, raw))


def replay(settings: ClientSettings, topic: str, letters: Sequence[DeadLetter], into: str | None) -> dict[str, str]:
    """Write the messages of letters again, and record this in the topic of the letters.

    Returns:
        By the ids of the letters, why a topic refuses a message; this is not recorded.

    Raises:
        LettersNotTakenError: Some messages were not accepted; the next try may write unrecorded ones a second time.
    """
    refused = give_again(settings, letters, into)
    _note(settings, topic, REPLAYED, [letter.id for letter in letters if letter.id not in refused])
    return refused


def discard(settings: ClientSettings, topic: str, ids: Sequence[str]) -> None:
    """Record in the topic of the letters that an operator has seen to them.

    Raises:
        LettersNotTakenError: Some notes were not accepted.
    """
    _note(settings, topic, DISCARDED, ids)


def mark_replayed(settings: ClientSettings, topic: str, ids: Sequence[str]) -> None:
    """Record in the topic of the letters that letters were given back to their spout.

    Raises:
        LettersNotTakenError: Some notes were not accepted.
    """
    _note(settings, topic, REPLAYED, ids)


def _note(settings: ClientSettings, topic: str, header: str, ids: Sequence[str]) -> None:
    notes = [RawMessage(None, headers=((header, id_.encode()),)) for id_ in ids]
    refused = send(settings, _sender(settings), [(topic, note, None) for note in notes])
    for why in refused.values():
        raise LettersNotTakenError(f"topic {topic!r} does not take {len(refused)} note(s) on dead letters: {why}")


def give_again(settings: ClientSettings, letters: Sequence[DeadLetter], into: str | None) -> dict[str, str]:
    """Write the original messages of letters again, to their own topics or to another topic.

    Returns:
        By the ids of the letters, why a topic refuses a message.

    Raises:
        LettersNotTakenError: Some messages were not accepted.
    """
    again: list[Sent] = []
    for letter in letters:
        source = Source.parse(letter.source or "")
        number = None if into is not None else source.number
        again.append((into or source.topic, letter.raw or RawMessage(None), number))
    refused = send(settings, _sender(settings), again)
    return {letters[number].id: f"topic {again[number][0]!r} refuses it: {why}" for number, why in refused.items()}


def raw_of(message: Any) -> RawMessage:
    """Return a message of the client library as a ``RawMessage``."""
    kind, milliseconds = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return RawMessage(message.value(), message.key(), headers, int(milliseconds) if kind else None)
