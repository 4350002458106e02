"""Cluster: the driver's requests to the brokers.

Every call blocks, up to a timeout, so only a separate thread makes it. A missing answer never counts as an answer: for
a request that timed out the client may return a negative offset instead of an error, and a topic does not count as
missing only because the brokers do not answer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeAlias

from sparkbolt.connectors.kafka.client_causes import Causes
from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.errors import SourceUnavailable

Topics: TypeAlias = tuple[str, ...] | re.Pattern[str]
"""Topics by name, or those whose whole name matches a pattern."""


def is_among(topics: Topics, name: str) -> bool:
    """Whether ``topics`` names a topic, or matches its name; a pattern matches none of Kafka's own topics.

    >>> is_among(("orders",), "invoices"), is_among(re.compile("o.*"), "orders")
    (False, True)
    """
    if isinstance(topics, re.Pattern):
        return topics.fullmatch(name) is not None and not name.startswith("__")
    return name in topics


LISTEN_SECS = 1.0
"""After how long without an answer the first request for topics looks for its cause, in seconds."""
NONE_SO_LATE = -1
"""The offset that brokers return for a time if all records are older."""
ID_SECS = 1.0
"""How long reading waits for the answer to a request for ids."""
NO_ID = "A" * 22
"""The id that brokers older than Kafka 2.8 return for every topic: they know no ids."""


class BrokersAwayError(SourceUnavailable):
    """The brokers did not answer, or not with the requested information; the problem may pass."""


class LoginRefusedError(BrokersAwayError):
    """The brokers refuse the login, or the client refuses their certificate: waiting does not help."""


class Cluster:
    """A client of the brokers that makes one request at a time."""

    def __init__(self, settings: ClientSettings, group: str, *, read_committed: bool, request_secs: float) -> None:
        """Create the clients; they connect at the first request.

        Raises:
            ConfigError: The client library is missing, or refuses a property.
        """
        self._kafka = client_library()
        self._settings = settings
        self._secs = request_secs
        self._level = getattr(self._kafka.IsolationLevel, "READ_COMMITTED" if read_committed else "READ_UNCOMMITTED")
        self._specs = client_library("confluent_kafka.admin").OffsetSpec
        self._group = group
        self._causes = Causes(settings)
        self.leaders: dict[KafkaPartition, tuple[str, int]] = {}
        """Host and port of the leader of each kafka_partition that was ever requested."""
        self._tells_ids = False
        self._late: dict[str, Future[Any]] = {}
        """Requests for ids that had no answer in time, by topic."""
        self._admin = settings.new("AdminClient", settings.admin(), self._causes.hear)
        # A consumer asks for topics, since an admin client's request would create missing topics.
        self._consumer = settings.new("Consumer", settings.consumer(group), self._causes.hear)

    def kafka_partitions(self, topics: Topics) -> list[KafkaPartition]:
        """Return the kafka_partitions of the topics that exist, sorted.

        Raises:
            LoginRefusedError: The brokers refuse the login.
            BrokersAwayError: No broker answered, or the brokers do not say whether a topic exists.
        """
        known: dict[str, Any] = {}
        if isinstance(topics, re.Pattern):
            every = self._topics(None)
            known = {name: every[name] for name in every if is_among(topics, name)}
        else:
            for name in topics:
                known |= self._topics(name)
        found: list[KafkaPartition] = []
        for name, topic in known.items():
            exists = topic_exists(topic)
            if exists is None:
                raise BrokersAwayError(
                    f"no answer from the Kafka brokers at {self._settings.where}: topic {name!r}: {topic_text(topic)}"
                )
            found += [KafkaPartition(name, number) for number in topic.partitions if exists]
        return sorted(found)

    def _listed(self, name: str | None) -> Any:
        """Return the brokers' metadata of one topic or of all.

        Raises:
            KafkaException: No broker answered; after ``LISTEN_SECS`` if they refuse the login.
        """
        names = [] if name is None else [name]
        try:
            return self._consumer.list_topics(*names, timeout=min(LISTEN_SECS, self._secs))
        except self._kafka.KafkaException:
            self._listen()
            cause = self._causes.cause()
            if cause is not None and cause.is_refusal:
                raise
        return self._consumer.list_topics(*names, timeout=self._secs)

    def _listen(self) -> None:
        self._causes.listen(self._consumer, self._admin)

    def _topics(self, name: str | None) -> Mapping[str, Any]:
        self._listen()
        self._causes.forget()
        try:
            found = self._listed(name)
        except self._kafka.KafkaException as error:
            raise self._away(error) from None
        for topic in found.topics.values():
            for number, known in topic.partitions.items():
                if known.leader in found.brokers:
                    leader = found.brokers[known.leader]
                    self.leaders[KafkaPartition(topic.topic, number)] = leader.host, leader.port
        topics: Mapping[str, Any] = found.topics
        return topics

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of topics, which distinguish successive topics of one name; empty if brokers know none.

        Only an answer to this call counts, within ``ID_SECS``. The client asks the controller, which may be away while
        brokers are not: nothing waits for it until it has answered once, and no topic is requested twice at a time.
        """
        self._tells_ids |= any(asked.done() and asked.exception() is None for asked in self._late.values())
        self._late = {name: asked for name, asked in self._late.items() if not asked.done()}
        names = sorted(set(topics) - self._late.keys())
        if not names:
            return {}
        asked = self._admin.describe_topics(self._kafka.TopicCollection(names), request_timeout=self._secs)
        wait(asked.values(), min(ID_SECS, self._secs) if self._tells_ids else 0.0)
        self._late |= {name: answer for name, answer in asked.items() if not answer.done()}
        answers = [name for name in names if name not in self._late and asked[name].exception() is None]
        topic_ids = {name: str(asked[name].result().topic_id) for name in answers}
        return {name: "" if topic_id == NO_ID else topic_id for name, topic_id in topic_ids.items()}

    def committed(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, tuple[int, str]]:
        """Return the group's offsets with their metadata, for kafka_partitions that have one.

        Raises:
            BrokersAwayError: No broker answered.
        """
        try:
            asked = [self._kafka.TopicPartition(*place) for place in places]
            answers = self._consumer.committed(asked, timeout=self._secs) if asked else []
        except self._kafka.KafkaException as error:
            raise self._away(error) from None
        broken = next((answer.error for answer in answers if answer.error is not None), None)
        if broken is not None:
            raise self._away(self._kafka.KafkaException(broken))
        return {
            KafkaPartition(answer.topic, answer.partition): (answer.offset, (answer.metadata or "").rstrip("\0"))
            for answer in answers
            if answer.offset >= 0
        }

    def commit(self, offsets: Mapping[KafkaPartition, tuple[int, str]]) -> None:
        """Commit the group's offsets with their metadata.

        Raises:
            BrokersAwayError: The commit may have failed or not.
        """
        told = [self._kafka.TopicPartition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=told, asynchronous=False)
            broken = next((answer.error for answer in answers if answer.error is not None), None)
            if broken is not None:
                raise self._kafka.KafkaException(broken)
        except self._kafka.KafkaException as error:
            if error.args[0].code() in (
                self._kafka.KafkaError.UNKNOWN_MEMBER_ID,
                self._kafka.KafkaError.ILLEGAL_GENERATION,
                self._kafka.KafkaError.REBALANCE_IN_PROGRESS,
            ):
                raise BrokersAwayError(self._taken()) from None
            raise self._away(error) from None

    def _taken(self) -> str:
        """Describe a group whose offsets only its members may commit."""
        members: list[str] = []
        with contextlib.suppress(self._kafka.KafkaException, TimeoutError):
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=self._secs)[self._group]
            members = [f"{member.client_id!r} at {member.host}" for member in asked.result(self._secs + 1).members]
        named = f", {members[0]}," if members else ","
        return (
            f"the group {self._group!r} has a live member{named} so that no offsets can be stored in it: stop it, or "
            "use another group="
        )

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()

    def ends(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the end of each log: the offset of its next record, or the first offset of an open transaction."""
        return self._offsets(places, self._specs.latest())

    def firsts(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """Return the first offset of each log."""
        return self._offsets(places, self._specs.earliest())

    def since(self, ends: Mapping[KafkaPartition, int], timestamp_ms: int) -> dict[KafkaPartition, int]:
        """Return the first offset whose record is not older than the time; the log's end if all are older.

        Args:
            ends: The ends of the logs as they were before, so that no record that arrives meanwhile is skipped.
            timestamp_ms: The time, in milliseconds since the epoch.
        """
        found = self._offsets(ends, self._specs.for_timestamp(timestamp_ms), least=NONE_SO_LATE)
        return {place: ends[place] if offset == NONE_SO_LATE else offset for place, offset in found.items()}

    def _offsets(self, places: Iterable[KafkaPartition], spec: Any, least: int = 0) -> dict[KafkaPartition, int]:
        """Return the offsets of the kafka_partitions that answered; those without an answer are left out.

        Args:
            places: The kafka_partitions.
            spec: The requested offsets.
            least: The least offset that is an answer.

        Raises:
            BrokersAwayError: None answered.
        """
        asked = {self._kafka.TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        found: dict[KafkaPartition, int] = {}
        last: Exception = TimeoutError(f"none within {self._secs:g} s")
        unknown: set[str] = set()
        answers = self._admin.list_offsets(asked, isolation_level=self._level, request_timeout=self._secs)
        for place, answer in answers.items():
            try:
                offset = answer.result(timeout=self._secs + 1).offset
            except (self._kafka.KafkaException, TimeoutError) as error:
                last, offset = error, self._kafka.OFFSET_INVALID
            if offset >= least:
                found[KafkaPartition(place.topic, place.partition)] = offset
            else:
                unknown.add(place.topic)
        for topic in unknown:  # the client has cached old metadata: there is a new leader or a new kafka_partition
            with contextlib.suppress(self._kafka.KafkaException):
                self._admin.list_topics(topic, timeout=self._secs)
        if not found:
            raise self._away(last)
        return found

    def _away(self, error: Exception) -> BrokersAwayError:
        self._listen()
        cause = self._causes.cause(error)
        if cause is not None:
            return (LoginRefusedError if cause.is_refusal else BrokersAwayError)(cause.text)
        where, text = self._settings.where, self._settings.text_of(error)
        if text.startswith("Broker: "):
            return BrokersAwayError(f"the Kafka brokers at {where} answer with an error: {text}")
        return BrokersAwayError(f"no answer from the Kafka brokers at {where}: {text}")


def topic_exists(topic: Any) -> bool | None:
    """Return whether a topic exists for this client, by its metadata; None if the brokers give no answer at present."""
    if topic.error is None:
        return True if topic.partitions else None
    codes = client_library().KafkaError
    missing = (codes.UNKNOWN_TOPIC_OR_PART, codes.TOPIC_EXCEPTION, codes.TOPIC_AUTHORIZATION_FAILED)
    return False if topic.error.code() in missing else None


def topic_text(topic: Any) -> str:
    """Return why a topic cannot be used, by its metadata, with what to do if it is missing."""
    if topic.error is None:
        return "it has no kafka_partitions yet"
    codes = client_library().KafkaError
    mends = {
        codes.UNKNOWN_TOPIC_OR_PART: "it does not exist: create it",
        codes.TOPIC_EXCEPTION: "this is no name that a topic can have",
        codes.TOPIC_AUTHORIZATION_FAILED: "this user must not see it: give the user the rights to it",
    }
    return mends.get(topic.error.code(), str(topic.error.str()))


def config_of(admin: Any, kind: str, name: str, secs: float) -> Mapping[str, str]:
    """Return the configuration of a ``BROKER`` or a ``TOPIC``; empty if the brokers do not show it to this client."""
    library = client_library("confluent_kafka.admin")
    asked = library.ConfigResource(getattr(library.ResourceType, kind), name)
    try:
        answer = admin.describe_configs([asked], request_timeout=secs)[asked].result(secs + 1)
    except (client_library().KafkaException, TimeoutError):  # such as: no right to ask
        return {}
    return {key: entry.value for key, entry in answer.items() if entry.value is not None}
