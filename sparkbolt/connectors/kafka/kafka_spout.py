"""KafkaSpout: reads Kafka topics. The driver plans offsets and never sees a message; executors read them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from sparkbolt.api.arguments import POSITIVE, PROPERTIES, checked, field_names, text, verify, whole
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.dead_letters import DeadLetters, DeadLetterSink, RawMessage
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.outside import UsesOutside
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.reports import SourceView
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.trace_context import traceparent_of
from sparkbolt.base.intervals import Intervals, clip, first_outside, size, union
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.connectors.column_source import ColumnSource
from sparkbolt.connectors.kafka.broker_watcher import Watcher, Wish
from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
from sparkbolt.connectors.kafka.kafka_cluster import Cluster, Topics
from sparkbolt.connectors.kafka.kafka_dead_letters import KafkaDeadLetters, raw_of
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition, Source, is_mark, is_topic, marked
from sparkbolt.connectors.kafka.message_decoder import (
    DEFAULT_FIELDS,
    PARTS,
    PLAIN,
    Decoding,
    Schemas,
    Shaper,
    Translator,
    check_decoding,
)
from sparkbolt.connectors.kafka.message_sizes import Sizes
from sparkbolt.connectors.kafka.offset_planner import Look, OffsetPlanner, OutOfRange
from sparkbolt.connectors.kafka.offset_stores import (
    OtherTopology,
    Owner,
    RehearsedOffsets,
    Scope,
    Stored,
    fitting,
    store_of,
)
from sparkbolt.connectors.kafka.partition_reader import MessageChunk, PartitionReader
from sparkbolt.connectors.kafka.start_offsets import Start, StartSpec
from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

Guarantee = Literal["at-least-once", "at-most-once", "none"]
MAX_UNCOMMITTED = 10_000_000
ENOUGH = 2
"""A range is read up to this many times ``max_bytes``. If its messages are larger than expected, the rest waits."""
INTERVALS_MAX = 1000
"""The most finished intervals beyond the committed offset that are stored."""


class KafkaSpout(UsesOutside, PicklesArguments, ColumnSource):
    """Emits the messages of Kafka topics and tracks each of them until it is finished.

    ``topics`` is a name, a list of names, or a compiled pattern for whole names. Topics and kafka_partitions that are
    created while the topology runs are found within seconds and read from their first message. Each kafka_partition
    is a source, ``topic/number``; a position is an offset.

    Fields: without ``outputs`` they are ``topic``, ``partition``, ``offset``, ``key`` and ``value``. ``key=`` and
    ``value=`` set the decoding: ``bytes``, ``text`` (UTF-8), ``json``, ``avro``, ``protobuf``, or a function of the
    bytes. ``avro`` and ``protobuf`` need ``schema_registry``, its URL or the properties of its client; ``protobuf``
    also needs ``protobuf_type``, the generated class. With ``bytes`` and ``text``, ``outputs`` names parts of the
    message (those above, ``timestamp`` in milliseconds, ``headers``) and may give the value one other name. With the
    other decodings ``outputs`` names fields of the decoded object; a field is None if it is missing or the message
    has no value. ``translate`` is a function that takes a ``KafkaMessage`` and returns a list of values for each
    tuple. The message is finished when all of its tuples are, or at once if there are none. A message that cannot be
    decoded fails without a retry.

    Where it begins: within one checkpoint, it continues where it stopped. With a new checkpoint it begins at the
    offsets that ``offsets`` holds for this spout of this topology. If there are none, ``start`` decides: ``earliest``,
    ``latest``, a datetime, offsets by ``"topic/number"`` (kafka_partitions that they do not name begin at their first
    message), or ``uncommitted-earliest`` and ``uncommitted-latest``, which also use offsets that another client has
    committed. Offsets that another topology stored are refused, unless
    ``other_topology`` is ``take_over`` (continue from them) or ``start_over`` (begin as ``start`` says). ``offsets``
    is ``group`` (the consumer group ``group``), ``file:PATH``, or ``ZooKeeperOffsets``; finished offsets are stored
    there after each commit.

    If offsets are gone, ``out_of_range`` decides: continue at the ``earliest`` existing offset, at the ``latest``, at
    the nearest (``match``), or ``fail``. Skipped offsets are reported in an ERROR line and counted.

    ``guarantee`` is ``at-least-once``, ``at-most-once`` (offsets are stored before their messages are read) or
    ``none``. ``retry`` is the policy for failed messages; None means that of the topology's settings. ``dead_letters``
    is the place for messages that are given up; a plain name is a topic of the same brokers.

    Four arguments limit reading. ``max_poll_records`` is the most offsets of one kafka_partition in a
    micro-batch. ``max_bytes`` is about the number of bytes of keys and values in a micro-batch over all
    kafka_partitions. It is a target: sizes are estimated from earlier reads. When messages suddenly grow, up to twice
    as much may be read of each kafka_partition, and a single larger message is read whole. ``max_records_per_sec`` is
    the most offsets per second over all kafka_partitions. ``max_uncommitted`` is how far reading may be ahead of the
    first unfinished message of a kafka_partition, in offsets.

    ``isolation`` is Kafka's isolation level. With ``stop_at_end`` the spout ends where the topics ended when it
    started. ``request_secs`` limits one request to the brokers, in seconds. ``client`` takes further client properties,
    such as those for SASL and TLS; they are never printed.

    >>> KafkaSpout("localhost:9092", ["orders"], group="billing", value="json", outputs=["customer"]).outputs
    ['customer']
    """

    position_unit = "messages"
    _opened = ("_watcher", "_readers", "_shaper", "_reserved", "_single", "_chunk", "_planner", "_sizes")

    first_budget = 100

    @checked
    def __init__(
        self,
        brokers: str,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        group: Annotated[str, text("the name of a consumer group")],
        outputs: Fields | None = None,
        key: Decoding = "bytes",
        value: Decoding = "bytes",
        translate: Translator | None = None,
        schema_registry: str | Mapping[str, Any] | None = None,
        protobuf_type: Any = None,
        start: StartSpec = "uncommitted-earliest",
        stop_at_end: bool = False,
        out_of_range: OutOfRange = "earliest",
        guarantee: Guarantee = "at-least-once",
        retry: RetryPolicy | None = None,
        dead_letters: DeadLetters | None = None,
        offsets: Any = "group",
        other_topology: OtherTopology = "refuse",
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        max_poll_records: Annotated[int, whole()] | None = None,
        max_bytes: Annotated[int, whole()] | None = None,
        max_records_per_sec: Annotated[float, POSITIVE] | None = None,
        max_uncommitted: Annotated[int, whole()] | None = MAX_UNCOMMITTED,
        request_secs: Annotated[float, POSITIVE] = 10.0,
        client: Annotated[Mapping[str, Any], PROPERTIES] | None = None,
    ) -> None:
        """Check and store the arguments; no connection is opened.

        Raises:
            ConfigError: An argument is invalid, or the client library is not installed.
        """
        self.settings = ClientSettings(brokers, dict(client or {}))
        self.topics = topics_of(topics)
        self.group = group
        if schema_registry is not None and not isinstance(schema_registry, str):
            verify("schema_registry", schema_registry, PROPERTIES)
        self.schemas = Schemas(schema_registry, protobuf_type)
        check_decoding("key", key, self.schemas)
        check_decoding("value", value, self.schemas)
        self.key, self.value, self.translate = key, value, translate
        self.outputs = self.fields = fields_of(outputs, translate)
        self.whole = set(self.fields) <= PARTS or (isinstance(value, str) and value in PLAIN)
        if self.whole and translate is None and len(set(self.fields) - PARTS) + ("value" in self.outputs) > 1:
            raise ConfigError(
                f"outputs={self.outputs}: value={value!r} has one value; expected one name for it besides "
                f"{', '.join(sorted(PARTS))}"
            )
        self.start = Start.parse(start, self.topics)
        self.stop_at_end = stop_at_end
        self.out_of_range = out_of_range
        self.tracked = guarantee == "at-least-once"
        self.once = guarantee == "at-most-once"
        self.retry, self.dead_letters = retry, dead_letters
        self.offsets = offsets
        store_of(offsets)
        self.other_topology = other_topology
        self.read_committed = isolation == "read_committed"
        self.max_poll_records = max_poll_records
        self.max_bytes = max_bytes
        self.max_records_per_sec = max_records_per_sec
        self.max_uncommitted = max_uncommitted
        self.request_secs = request_secs
        client_library()
        self._begin()

    def _begin(self) -> None:
        self._watcher: Watcher | None = None
        self._readers: dict[tuple[KafkaPartition, bool], PartitionReader] = {}
        self._shaper: Shaper | None = None
        self._reserved: tuple[list[Range], int] | None = None
        """At most once: ranges to read once the offsets store has them, and the number of the call that stores them."""
        self._single: tuple[Range, Any] | None = None
        """The last message that was read by a range of one offset."""
        self._chunk: MessageChunk | None = None
        """The messages that are being read."""
        self._enough: int | None = None
        """After this many bytes the rest of a range is left for later; None without ``max_bytes``."""
        self._read_bytes = 0
        """Bytes of keys and values of the range that was read last."""

    # In the driver.

    def open(self, context: TopologyContext) -> None:
        """Ask the brokers for the topics and the ends of their logs; a thread then asks again and again.

        Raises:
            ConfigError: The stored offsets belong to another topology, or the client refuses its properties.
            BrokersAwayError: No broker answers.
        """
        self._owner = Owner(f"{context.topology}/{context.component}", context.topology, context.version)
        self._sizes = Sizes(self.max_bytes) if self.max_bytes is not None else None
        self._planner = OffsetPlanner(context.parallelism, self.out_of_range, self.max_poll_records, self._sizes)
        cluster = Cluster(self.settings, self.group, read_committed=self.read_committed, request_secs=self.request_secs)
        names = None if isinstance(self.topics, re.Pattern) else self.topics
        scope = Scope(cluster, self.group, names)
        before = f"{context.topology}/{context.renamed_from}" if context.renamed_from is not None else None
        wish = Wish(self.topics, self.start, self._owner, self.other_topology, before)
        store = store_of(self.offsets)
        if context.rehearsal_directory is not None:
            store = RehearsedOffsets(store)
        self._watcher = Watcher(cluster, store, wish, scope)
        self._watcher.open(3 * self.request_secs)
        self._stop_at = {place: log_.end for place, log_ in self._watcher.look.logs.items()}
        self._stop_later = set(self._watcher.look.silent)
        """Kafka_partitions whose end was unknown at the start: each is read up to the end that it reports first."""
        self._positions: dict[Source, int] = {}
        self._turns: dict[KafkaPartition, int] = {}
        """The newest turn of each kafka_partition among these sources."""
        self._elsewhere: set[KafkaPartition] = set()
        """Kafka_partitions for which the store has progress of another checkpoint that ours does not have."""
        self._tokens, self._tokens_at = float(self.max_records_per_sec or 0), time.monotonic()
        self._asked: Sequence[Range] = ()
        self._skipped = 0
        self._not_stored: dict[Source, int] = {}
        """How many finished messages the last warning said that the offsets store has no room for."""
        self._topic_ids: dict[tuple[str, int], str] = {}
        """Ids of the topics whose offsets the ledger has, by kafka_partition and turn."""

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Plan the next offsets of each kafka_partition that has messages.

        Raises:
            ConfigError: Reading cannot continue: offsets are gone and ``out_of_range`` is ``fail``, for example.
        """
        assert self._watcher is not None
        if self._watcher.look.problem is not None:
            raise self._watcher.look.problem
        look = self._look()
        if self._reserved is not None:
            ranges = self._take_reserved()
            return [*ranges, *self._planner.marks(progress, ranges, look)]
        budget = self._allowed(progress, budget)
        if budget < 1:
            return []
        ranges, gaps = self._planner.plan(progress, look, budget=budget)
        for gap in gaps:
            log.error("%s", gap)
            self._skipped += gap.skipped
            if gap.resume is None:
                raise ConfigError(str(gap))
        if not ranges:
            self._watcher.want()
        self._tokens -= _length(ranges)
        self._asked = ranges
        if self.once and ranges:
            self._reserved = ranges, self._watcher.tell(self._stored({r.source: r.end for r in ranges}), soon=True)
            return []
        return [*ranges, *self._planner.marks(progress, ranges, look)]

    def _look(self) -> Look:
        """Return the brokers' state for this checkpoint, without the parts that the checkpoint knows better."""
        assert self._watcher is not None
        look = self._watcher.look
        finished = {place: spans for place, spans in look.finished.items() if place not in self._elsewhere}
        logs = look.logs
        if self.stop_at_end:
            self._stop_at |= {place: logs[place].end for place in self._stop_later & logs.keys()}
            self._stop_later &= look.silent
            logs = {place: log_.up_to(self._stop_at.get(place, 0)) for place, log_ in logs.items()}
        return replace(look, logs=logs, finished=finished)

    def _take_reserved(self) -> list[Range]:
        """Return the reserved ranges, as soon as the offsets store has them."""
        assert self._watcher is not None
        assert self._reserved is not None
        ranges, call = self._reserved
        if not self._watcher.has_told(call):
            return []
        self._reserved = None
        return ranges

    def _stored(self, positions: Mapping[str, int]) -> dict[KafkaPartition, Stored]:
        """Convert positions of sources to entries of the offsets store."""
        sources = [(Source.parse(name), position) for name, position in positions.items()]
        return {source.place: self._told_as(source, position) for source, position in sources}

    def _told_as(self, source: Source, position: int, finished: Intervals = ()) -> Stored:
        return Stored(
            position, self._owner, finished, source.topic, self._topic_ids.get((str(source.place), source.turn))
        )

    def _allowed(self, progress: Mapping[str, int], budget: int) -> int:
        """Return how much of the budget ``max_records_per_sec`` leaves."""
        rate = self.max_records_per_sec
        if rate is None:
            return budget
        now = time.monotonic()
        refused = [range_ for range_ in self._asked if progress.get(range_.source, -1) < range_.end]
        self._asked = ()
        tokens = self._tokens + _length(refused) + rate * (now - self._tokens_at)
        # At most one second's worth may be read at once, but always one record.
        self._tokens, self._tokens_at = min(max(1.0, rate), tokens), now
        return min(budget, int(self._tokens))

    def on_read(self, reads: Sequence[tuple[Range, int]]) -> None:
        """Learn the sizes of messages from ranges that executors have read."""
        for range_, bytes_ in reads:
            if self._sizes is not None and not is_mark(range_.source):
                self._sizes.learn(range_.source, range_.end - range_.start, bytes_)

    def finished(self, progress: Mapping[str, int]) -> bool:
        """With ``stop_at_end``, whether everything is planned that existed when the topology started."""
        if not self.stop_at_end or self._watcher is None or self._stop_later:
            return False
        return self._planner.planned_to(self._stop_at, progress, self._look())

    def unread(self, progress: Mapping[str, int]) -> dict[str, bool]:
        """List the kafka_partitions and whether they have messages now; without those read to their ends."""
        sources = self._planner.unread(progress, self._look())
        return {source: more for source, more in sources.items() if more or not self.stop_at_end}

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        """Let the thread store in the offsets store how far the sources are finished."""
        assert self._watcher is not None
        look = self._watcher.look
        news: dict[KafkaPartition, Stored] = {}
        self._topic_ids |= marked({name: view.planned for name, view in sources.items()})
        for name, view in sources.items():
            if is_mark(name):
                continue
            source = Source.parse(name)
            if source not in self._positions and look.firsts.get(source.place, 0) > view.finished:
                self._elsewhere.add(source.place)
            counts = source.turn == 0 and source.place not in self._elsewhere
            earlier = look.finished.get(source.place, ()) if counts else ()
            position = self._positions[source] = first_outside(view.finished, earlier)
            newest = self._turns[source.place] = max(source.turn, self._turns.get(source.place, 0))
            if newest > source.turn:
                continue
            done = view.done(INTERVALS_MAX)
            finished = clip(union(done, earlier), start=position)
            news[source.place] = self._told_as(source, position, finished)
            cut = view.planned - done[-1][1] if len(done) == INTERVALS_MAX else 0
            self._say_what_is_not_stored(source, news[source.place], cut)
        if not self.once:
            self._watcher.tell(news)

    def _say_what_is_not_stored(self, source: Source, told: Stored, cut: int) -> None:
        """Warn of finished messages that are not stored; again when there are more than ten times as many.

        Args:
            source: Their source.
            told: The entries for the store; the group keeps as many of its intervals as have room.
            cut: How many offsets behind those intervals may be finished, too.
        """
        kept = fitting(told) if self.offsets == "group" else len(told.finished)
        lost = size(told.finished[kept:]) + cut
        if lost > 10 * self._not_stored.get(source, 0):
            self._not_stored[source] = lost
            log.warning(
                "%s: only the first %d finished intervals behind the committed offset are stored; a new checkpoint "
                "would process up to %d finished messages again",
                source,
                kept,
                lost,
            )

    def lag(self) -> dict[str, int]:
        """Return the number of unfinished offsets by source, from the brokers' last answer."""
        look = self._watcher.look if self._watcher is not None else None
        if look is None:
            return {}
        known = {source.place: (source, position) for source, position in sorted(self._positions.items())}
        found = {}
        for place, log_ in look.logs.items():
            source, position = known.get(place, (Source(*place), look.firsts.get(place, log_.first)))
            found[str(source)] = max(0, log_.end - position)
        return found

    def take_skipped(self) -> int:
        """Return how many offsets were skipped since the last call."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    def close(self) -> None:
        """Store the finished offsets and close the clients."""
        if self._watcher is not None:
            if self._reserved is not None:  # they will not be read in this life
                self._watcher.tell(self._stored({r.source: r.start for r in reversed(self._reserved[0])}))
            self._watcher.close()
            self._watcher = None

    # On executors.

    def prepare(self, context: TopologyContext) -> None:
        """Create the decoders; each consumer is created when it is first needed."""
        if self.max_bytes is not None and context.config.acker_tasks != 0:  # else the rest would never be read
            self._enough = ENOUGH * self.max_bytes
        self._shaper = Shaper(
            self.fields,
            key=self.key,
            value=self.value,
            schemas=self.schemas,
            translate=self.translate,
            whole=self.whole,
        )

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        """Yield the messages of the range as columns, with their offsets: ``int64[messages]``."""
        assert self._shaper is not None
        self._read_bytes = 0
        if is_mark(range_.source):
            return
        for chunk in self._reader(range_).chunks(range_.start, range_.end, self._enough):
            if isinstance(chunk, BadRecord):
                yield chunk
                continue
            self._read_bytes += chunk.size
            self._chunk = chunk
            if range_.end - range_.start == 1:
                self._single = range_, chunk.messages[0]
            for shaped in self._shaper.shape(chunk.messages, chunk.offsets):
                if isinstance(shaped, BadRecord):
                    yield shaped
                else:
                    yield np.asarray(shaped[0], dtype=np.int64), shaped[1]
        self._chunk = None  # it may be large, and the next range may be read much later

    def trace_parents(self, positions: Sequence[int]) -> dict[int, str]:
        """Return the ``traceparent`` of each of these messages that has a valid header of that name."""
        if self._chunk is None:
            return {}
        wanted = np.array(positions, dtype=np.int64)
        places = np.searchsorted(self._chunk.offsets, wanted)
        found = {}
        for place, offset in zip(places.tolist(), positions, strict=True):
            if place < len(self._chunk.offsets) and self._chunk.offsets[place] == offset:
                text = traceparent_of(self._chunk.messages[place].headers() or ())
                if text is not None:
                    found[offset] = text
        return found

    def trace_attributes(self, source: str | None, position: int | None) -> dict[str, str | int]:
        """Return the topic, kafka_partition, offset and group."""
        if source is None:
            return {}
        place = Source.parse(source).place
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.destination.name": place.topic,
            "messaging.destination.partition.id": str(place.number),
            "messaging.consumer.group.name": self.group,
        }
        return attributes if position is None else {**attributes, "messaging.kafka.offset": position}

    def __str__(self) -> str:
        return f"KafkaSpout(group {self.group!r} at {self.settings.where})"

    def read_bytes(self) -> int | None:
        """Return the bytes of keys and values of the range that was read last; None without ``max_bytes``."""
        return self._read_bytes if self.max_bytes is not None else None

    def _reader(self, range_: Range) -> PartitionReader:
        """Return the consumer for a range; distant single messages use a second one, to spare the main one a seek."""
        place = Source.parse(range_.source).place
        main = self._readers.get((place, False))
        alone = range_.end - range_.start == 1 and main is not None and main.at != range_.start
        reader = self._readers.get((place, alone))
        if reader is None:
            reader = self._readers[place, alone] = PartitionReader(
                self.settings,
                self.group,
                place,
                read_committed=self.read_committed,
                alone=alone,
                max_bytes=self.max_bytes,
            )
        return reader

    def raw(self, range_: Range) -> RawMessage | None:
        """Return the original message of a range of one offset."""
        if self._single is None or self._single[0] != range_:
            for _ in self.read_columns(range_):
                pass
        return raw_of(self._single[1]) if self._single is not None and self._single[0] == range_ else None

    def dead_letter_sink(self, name: str) -> DeadLetterSink | None:
        """Return a sink for a topic of the same brokers if ``name`` is a valid topic name, else None."""
        return KafkaDeadLetters(self.settings.brokers, name, client=self.settings.options) if is_topic(name) else None

    def cleanup(self) -> None:
        """Close the consumers."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def _length(ranges: Iterable[Range]) -> int:
    return sum(range_.end - range_.start for range_ in ranges)


def topics_of(topics: Any) -> Topics:
    """Return the topics that ``topics`` names.

    Raises:
        ConfigError: It names no topic, or an invalid one.
    """
    if isinstance(topics, re.Pattern):
        return topics
    names = (topics,) if isinstance(topics, str) or not isinstance(topics, Iterable) else tuple(topics)
    if not names or not all(is_topic(name) for name in names):
        raise ConfigError(
            f"topics={topics!r}: expected the name of a topic, a list of names, or a compiled pattern for whole names"
        )
    return tuple(dict.fromkeys(names))


def fields_of(outputs: Any, translate: Translator | None) -> list[str]:
    """Return the fields that ``outputs`` declares.

    Raises:
        ConfigError: ``outputs`` is not a list of names, or is missing although ``translate`` is given.
    """
    if outputs is None:
        if translate is not None:
            raise ConfigError("translate= needs outputs=, the fields of the tuples that it makes")
        return list(DEFAULT_FIELDS)
    return field_names("outputs", outputs)
