"""A Kafka topic of dead letters: written as the messages came, with their story in the headers.

Which question it answers: how is a dead letter a message, and what is read back from one?

Rule 1: key, value and headers are those of the message that was given up, so that whoever can read its topic can read
this one. The story is in headers more: those of Kafka Streams' dead letter topics by its names, and the whole letter
as JSON. Where there is no message as it came (of a spout of another kind, or gone), that is all.
Rule 2: a letter counts once by its id, however often it stands in the topic. That it was replayed is a message too.

Prior art: the dead letter queue of Kafka Streams (KIP-1034). Read before: ``core.model.dead_letters``, ``settings``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sparkbolt.core.model import arguments
from sparkbolt.core.model.causes import Cause
from sparkbolt.core.model.components import TopologyContext
from sparkbolt.core.model.dead_letters import DeadLetter, RawMessage
from sparkbolt.errors import ConfigError, SparkboltError
from sparkbolt.spouts.kafka.driver.cluster import error_text, made
from sparkbolt.spouts.kafka.settings import ClientSettings, client_library
from sparkbolt.spouts.kafka.sources import Source, is_topic

STREAMS = "__streams.errors."
LETTER = "sparkbolt.letter"
TIMESTAMP = "sparkbolt.timestamp"
"""The message's own, in milliseconds since the epoch: the letter has that of its writing, by which brokers keep it."""
REPLAYED = "sparkbolt.replayed"
GONE = "sparkbolt.gone"
"""A header of letters whose message is not there: what stands in its place is none, and is never replayed."""
LETTER_BYTES_MAX = 262_144
"""A letter that is longer as JSON is written without its tuples: the message has them."""
LONG = {"message.max.bytes": 1_000_000_000}
"""How long a message may be is for its topic to say, not for the client."""
CUTS = 3
"""How many forms a letter's message has: whole, and shorter ones for topics that do not take that."""
DELIVER_SECS = 30.0
READ_SECS = 10.0
"""How long the brokers may say nothing."""
WAIT_SECS = 0.1


class LettersNotTakenError(SparkboltError):
    """The brokers did not take letters; they are written again later."""


class KafkaDeadLetters:
    """Writes dead letters to a Kafka topic: ``dead_letters=`` of any spout.

    A plain name as ``dead_letters=`` of a ``KafkaSpout`` stands for it, with the brokers and ``client`` of the spout.
    ``client`` takes further properties of the client, such as those of SASL and TLS; they are never printed.

    >>> KafkaDeadLetters("localhost:9092", "orders.dlq").topic
    'orders.dlq'
    """

    def __init__(self, brokers: str, topic: str, *, client: Mapping[str, Any] | None = None) -> None:
        """Keep what was given; nothing is connected.

        Raises:
            ConfigError: no topic can be called so, a client property cannot be given, or the client library is not
                installed.
        """
        if not is_topic(topic):
            raise ConfigError(f"topic={topic!r}: expected the name of a topic for dead letters")
        self.settings = ClientSettings(brokers, arguments.properties("client", client))
        self.topic = topic
        client_library()

    def open(self, context: TopologyContext) -> None:
        """Make the producer."""
        properties = self.settings.producer(**{"linger.ms": 5, **LONG})
        properties["message.timeout.ms"] = int(DELIVER_SECS * 1000)
        kafka = client_library()
        self._producer: Any = made(self.settings, kafka.Producer, {**properties, "error_cb": lambda _: None})

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Write the letters, and wait until the brokers have acknowledged them.

        Raises:
            LettersNotTakenError: they may have been written or not; writing them again is no harm.
        """
        for number in send(
            self.settings, self._producer, [(self.topic, message_of(letter), None) for letter in letters]
        ):
            self._write_alone(letters[number])

    def _write_alone(self, letter: DeadLetter) -> None:
        """Write a letter that the topic did not take with others: whole if it can be, else what is most worth."""
        for cut in range(CUTS):
            if not send(self.settings, self._producer, [(self.topic, message_of(letter, cut), None)]):
                return
        raise LettersNotTakenError(f"topic {self.topic!r} is for shorter messages than the story of {letter.where}")

    def close(self) -> None:
        """Let the producer go."""
        self._producer = None


Sent = tuple[str, RawMessage, int | None]
"""A topic, a message for it, and its kafka_partition, if that is told."""


def send(settings: ClientSettings, producer: Any, messages: Iterable[Sent]) -> list[int]:
    """Write messages, and wait until the brokers have acknowledged them.

    Returns:
        The indexes of those that are longer than their topic takes, or that came with others that are.

    Raises:
        LettersNotTakenError: others of them were not acknowledged.
    """
    kafka = client_library()
    too_long: list[int] = []
    refused: list[str] = []

    def hear(number: int, error: Any, _: Any = None) -> None:
        if error is not None and error.code() == kafka.KafkaError.MSG_SIZE_TOO_LARGE:
            too_long.append(number)
        elif error is not None:
            refused.append(settings.scrub(error_text(error)))

    for number, (topic, message, place) in enumerate(messages):
        options: dict[str, Any] = {} if place is None else {"partition": place}
        options |= {"headers": list(message.headers), "on_delivery": partial(hear, number)}
        while True:
            try:
                producer.produce(topic, message.value, message.key, **options)
                break
            except BufferError:  # as many are under way as may be
                producer.poll(WAIT_SECS)
            except kafka.KafkaException as error:
                hear(number, error.args[0])
                break
        producer.poll(0)
    left = producer.flush(DELIVER_SECS + 1)
    if left or refused:
        why = refused[0] if refused else "no answer"
        raise LettersNotTakenError(f"Kafka did not take {left + len(refused)} message(s) of dead letters: {why}")
    return too_long


def message_of(letter: DeadLetter, cut: int = 0) -> RawMessage:
    """The message that stands for a letter.

    Args:
        letter: what is told.
        cut: for topics that do not take all of it, 1: without tuples and tracebacks, 2: without the message, too.
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
    # A reason may hold what poisoned the message, such as half a character.
    streams = [(STREAMS + name, text.encode(errors="backslashreplace")) for name, text in told.items()]
    line = replace(letter, raw=None).to_line().encode()
    if raw is not None and len(line) > LETTER_BYTES_MAX:
        line = replace(letter, raw=None, tuples=(), note="its tuples are in the message alone").to_line().encode()
    if raw is None:
        return RawMessage(None, headers=(*streams, (GONE, b""), (LETTER, line)))
    since = [] if raw.timestamp_ms is None else [(TIMESTAMP, str(raw.timestamp_ms).encode())]
    return replace(raw, headers=(*raw.headers, *streams, *since, (LETTER, line)))


def letter_of(message: RawMessage) -> DeadLetter:
    """The inverse of ``message_of``.

    Raises:
        ValueError: the message is no dead letter.
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
class TopicRead:
    """What a topic of dead letters holds."""

    letters: list[DeadLetter] = field(default_factory=list)
    """Each id once."""
    repeated: int = 0
    damaged: list[str] = field(default_factory=list)
    """Where the messages stand that are no letters: ``partition 0, offset 17``."""
    replayed: set[str] = field(default_factory=set)


def read_topic(settings: ClientSettings, topic: str) -> TopicRead:
    """All letters of a topic, as far as it reaches now; those of one kafka_partition in order.

    Raises:
        ConfigError: there is no such topic.
        LettersNotTakenError: the brokers do not answer.
    """
    kafka = client_library()
    consumer = made(settings, kafka.Consumer, settings.consumer("sparkbolt-dlq"))
    found = TopicRead()
    known: set[str] = set()
    try:
        about = consumer.list_topics(topic, timeout=READ_SECS).topics[topic]
        if about.error is not None or not about.partitions:
            raise ConfigError(f"there is no topic {topic!r} of dead letters at {settings.scrub(settings.brokers)}")
        consumer.assign([kafka.TopicPartition(topic, number, kafka.OFFSET_BEGINNING) for number in about.partitions])
        ended: set[int] = set()
        until = time.monotonic() + READ_SECS
        while len(ended) < len(about.partitions):
            came = consumer.consume(1000, WAIT_SECS)  # it waits for all of them, however many have come
            if any(message.error() is None for message in came):
                until = time.monotonic() + READ_SECS
            elif time.monotonic() > until:
                raise LettersNotTakenError(f"the Kafka brokers do not answer while {topic!r} is read")
            for message in came:
                error = message.error()
                if error is None:
                    _sort(found, known, message)
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    except kafka.KafkaException as error:
        raise LettersNotTakenError(settings.scrub(error_text(error))) from None
    finally:
        consumer.close()
    return found


def _sort(found: TopicRead, known: set[str], message: Any) -> None:
    raw = raw_of(message)
    replayed = dict(raw.headers).get(REPLAYED)
    if replayed is not None:
        found.replayed.add(replayed.decode())
        return
    try:
        letter = letter_of(raw)
    except (ValueError, RecursionError):
        found.damaged.append(f"partition {message.partition()}, offset {message.offset()}")
        return
    if letter.id in known:
        found.repeated += 1
        return
    known.add(letter.id)
    found.letters.append(letter)


def replay(settings: ClientSettings, topic: str, letters: Sequence[DeadLetter], into: str | None) -> None:
    """Write the messages of letters again, and note it in the topic of the letters.

    Raises:
        LettersNotTakenError: not all were taken; those that were not noted may be there twice after the next try.
    """
    producer = give_again(settings, letters, into)
    notes = [RawMessage(None, headers=((REPLAYED, letter.id.encode()),)) for letter in letters]
    send(settings, producer, [(topic, note, None) for note in notes])


def give_again(settings: ClientSettings, letters: Sequence[DeadLetter], into: str | None) -> Any:
    """Write the messages of letters again, as they came, to where they came from or to another topic.

    Returns:
        The producer that has done it.

    Raises:
        LettersNotTakenError: not all were taken.
    """
    kafka = client_library()
    producer = made(settings, kafka.Producer, settings.producer(**LONG))
    again: list[Sent] = []
    for letter in letters:
        source = Source.parse(letter.source or "")
        number = None if into is not None else source.number
        again.append((into or source.topic, letter.raw or RawMessage(None), number))
    too_long = send(settings, producer, again)
    if too_long:
        sizes = ", ".join(str(len(again[number][1].value or b"")) for number in too_long[:5])
        raise LettersNotTakenError(f"{len(too_long)} message(s) are longer than their topic takes: {sizes} bytes ...")
    return producer


def raw_of(message: Any) -> RawMessage:
    """A message of the client as it came."""
    kind, milliseconds = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return RawMessage(message.value(), message.key(), headers, int(milliseconds) if kind else None)
