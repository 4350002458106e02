"""Topic: dead letters in a Kafka topic, ``kafka:HOST:PORT/TOPIC``.

A message is replayed unchanged, with its key and headers, to its own kafka_partition, or to the topic that ``--into``
names. The ids of replayed letters are noted in the topic of the letters. Properties of the client, such as those of
SASL and TLS, come from a file and are never printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.control.letters.common import (
    ID_CHARACTERS_SHOWN,
    LettersFound,
    Replay,
    letters_named,
    newest_letters,
)
from sparkbolt.errors import WrongUseError


def client_properties(path: str) -> dict[str, str]:
    """Read properties from a file with a line ``key=value`` for each, as Kafka's tools do; ``#`` begins a comment line.

    Raises:
        WrongUseError: the file cannot be read, or a line is not a property. Lines are never shown: they may contain a
            secret.
    """
    found: dict[str, str] = {}
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise WrongUseError(f"--client-config {path} cannot be read: {why}") from None
    for number, line in enumerate(lines, 1):
        key, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals or not key.strip():
                raise WrongUseError(f"--client-config {path}: line {number} is not a property, expected key=value")
            found[key.strip()] = value.strip()
    return found


KAFKA = "kafka:"
"""The prefix of a location that is a Kafka topic."""


class LetterTopic:
    """A topic of letters, as ``dead_letters="TOPIC"`` of a ``KafkaSpout`` writes it."""

    def __init__(self, where: str, client: Mapping[str, str] | None = None) -> None:
        """Split the location into brokers and topic.

        Args:
            where: ``HOST:PORT/TOPIC``; several brokers are separated by commas.
            client: further properties of Kafka's client.

        Raises:
            WrongUseError: the brokers or the topic are missing.
            ConfigError: a property of the client is not allowed.
        """
        from sparkbolt.connectors.kafka.client_settings import ClientSettings

        brokers, _, topic = where.rpartition("/")
        if not brokers or not topic:
            raise WrongUseError(f"kafka:{where} names no topic of dead letters: expected kafka:HOST:PORT/TOPIC")
        self._settings = ClientSettings(brokers, client or {})
        self._topic = topic

    def letters(self) -> LettersFound:
        """All letters of the topic."""
        from sparkbolt.connectors.kafka.kafka_dead_letters import read_topic

        found = read_topic(self._settings, self._topic)
        self._replayed, self._discarded = found.replayed, found.discarded
        letters = sorted(found.letters, key=lambda letter: letter.last.ended_ms)
        return LettersFound(letters, found.repeated, found.damaged, "message")

    def replayed(self) -> set[str]:
        """The ids of the letters that are noted as replayed."""
        if not hasattr(self, "_replayed"):
            self.letters()
        return self._replayed

    def discarded(self) -> set[str]:
        """The ids of the letters that are noted as discarded."""
        self.replayed()
        return self._discarded

    def discard(self, ids: Collection[str]) -> None:
        """Note letters as seen to, in the topic of the letters."""
        from sparkbolt.connectors.kafka.kafka_dead_letters import discard

        discard(self._settings, self._topic, sorted(ids))
        if hasattr(self, "_discarded"):
            self._discarded.update(ids)

    def mark_replayed(self, ids: Collection[str]) -> None:
        """Note letters as replayed, in the topic of the letters."""
        from sparkbolt.connectors.kafka.kafka_dead_letters import mark_replayed

        mark_replayed(self._settings, self._topic, sorted(ids))
        if hasattr(self, "_replayed"):
            self._replayed.update(ids)

    def newest(self, last: int, wanted: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
        """The newest letters that are wanted."""
        return newest_letters(self.letters().letters, last, wanted)

    def named(self, ids: Collection[str]) -> list[DeadLetter]:
        """The letters with these ids."""
        return letters_named(self.letters().letters, ids)

    def replay(self, letters: Sequence[DeadLetter], into: str | None) -> Replay:
        """Write the messages again to their own topics, or to the topic ``into``.

        Raises:
            WrongUseError: ``into`` is the topic of the letters.
        """
        from sparkbolt.connectors.kafka.kafka_dead_letters import replay

        if into == self._topic:
            raise WrongUseError(
                f"--into {into} is the topic that the dead letters are read from: name the topic that the "
                "topology reads, or omit --into to use the original topic of each message"
            )
        return _replayed(letters, replay(self._settings, self._topic, _as_they_came(letters), into))


def give_again(letters: Sequence[DeadLetter], where: str, client: Mapping[str, str]) -> Replay:
    """Write the messages of letters from another store to Kafka; ``where`` is ``HOST:PORT`` or ``HOST:PORT/TOPIC``."""
    from sparkbolt.connectors.kafka import kafka_dead_letters as dead_letters
    from sparkbolt.connectors.kafka.client_settings import ClientSettings

    brokers, _, topic = where.partition("/")
    settings = ClientSettings(brokers, client)
    return _replayed(letters, dead_letters.give_again(settings, _as_they_came(letters), topic or None))


def _as_they_came(letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """The letters that contain their original Kafka message."""
    return [letter for letter in letters if letter.raw is not None and letter.end is None]


def _replayed(letters: Sequence[DeadLetter], refused: Mapping[str, str]) -> Replay:
    """The result of a replay.

    Args:
        letters: all letters that were to be replayed.
        refused: by the ids of letters, why a topic refuses the message.
    """
    good = {letter.id for letter in _as_they_came(letters)}
    elsewhere = "it did not come from a Kafka topic"
    whys = {one.id: f"its message is not available ({one.note or elsewhere})" for one in letters if one.id not in good}
    whys |= refused
    done = [letter for letter in letters if letter.id not in whys]
    return Replay(
        tuples=sum(max(1, len(letter.tuples)) for letter in done),
        ids=[letter.id for letter in done],
        left_out=[
            f"{letter.id[:ID_CHARACTERS_SHOWN]} {letter.where}: {whys[letter.id]}"
            for letter in letters
            if letter.id in whys
        ],
    )
