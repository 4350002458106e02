"""PartitionReader: reads the messages of a range of offsets, on executors.

Rule 1: a consumer is assigned once and keeps its position; it seeks only if a range begins elsewhere.
Rule 2: a range ends when the log proves it, not when its last offset was seen: compaction, deleted records and the
markers of transactions leave offsets without a message. A message after the range's end, or the end of the log after
it, proves that the range has no more messages.
Rule 3: offsets that are gone become a ``BadRecord``, which is reported and counted; if the brokers do not answer,
``SourceUnavailable`` is raised.
Rule 4: where an oversized range is cut depends only on its messages, not on how they arrive.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkbolt.api.ranges import BadRecord
from sparkbolt.base.ids import I64
from sparkbolt.connectors.kafka.client_causes import Causes
from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.message_decoder import all_of
from sparkbolt.errors import EnoughRead, SourceUnavailable

CHUNK_MESSAGES = 10_000
"""The most messages that are taken from the client at once."""
WAIT_SECS = 0.005
"""How long a call waits for messages, in seconds; it returns at once when it has as many as it asked for."""
AWAY_SECS = 10.0
"""After this many seconds without an answer the brokers count as unavailable."""
DROP_MAX = 2000
DROP_BYTES_MAX = 262_144
"""A consumer that is behind by at most this many bytes (and ``DROP_MAX`` offsets) drops messages instead of seeking."""
FETCHING = {
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 50,
    "queued.max.messages.kbytes": 16_384,
}
"""A fetch that waits for new records delays the seek of the next range. When enough is fetched ahead, the client by
default postpones the next fetch by a whole second, which costs nine tenths of the rate. The amount fetched ahead is
bounded, since every worker has one consumer for each kafka_partition."""
FETCHING_ALONE = {**FETCHING, "fetch.message.max.bytes": 262_144, "queued.min.messages": 1}
"""For single messages that are read again: little else is fetched with them."""
FETCHED_SHARE = 8
"""If a micro-batch has a limit in bytes, a consumer fetches at most 1/8 of it ahead."""
FETCHED_BYTES_MIN = 65_536
FETCHED_AT_ONCE = 1_048_576
"""How many bytes of a kafka_partition the client fetches at once by default."""


def fetching(max_bytes: int | None, *, alone: bool) -> dict[str, int]:
    """Return the properties of a consumer that limit how much it fetches ahead.

    >>> fetching(4_194_304, alone=False)["queued.max.messages.kbytes"]
    512
    """
    properties = dict(FETCHING_ALONE if alone else FETCHING)
    if max_bytes is not None:
        most = fetched_ahead(max_bytes)
        queued, fetched = "queued.max.messages.kbytes", "fetch.message.max.bytes"
        properties[queued] = min(properties[queued], most // 1024)
        # The queue may exceed its limit by one fetch. A consumer has one kafka_partition: this limits the whole fetch.
        properties[fetched] = min(properties.get(fetched, FETCHED_AT_ONCE), most)
    return properties


def fetched_ahead(max_bytes: int) -> int:
    """Return how many bytes a consumer fetches ahead at most, if a micro-batch reads about ``max_bytes``."""
    return max(max_bytes // FETCHED_SHARE, FETCHED_BYTES_MIN)


def size_of(messages: Sequence[Any]) -> int:
    """Return the number of bytes in the keys and values of messages."""
    keys = all_of(messages, "key") if messages else ()
    return sum(map(len, messages)) + sum(len(key) for key in keys if key is not None)


@dataclass
class MessageChunk:
    """Messages in the order of their offsets (``int64[messages]``)."""

    messages: list[Any]
    offsets: I64
    size: int = 0
    """Bytes of keys and values; counted only if a micro-batch has a limit in bytes."""


@dataclass
class _RangeProgress:
    """The progress of reading one range."""

    begin: int
    """Every message below this offset is done."""
    end: int
    at: int
    """Position of the consumer; below ``begin`` while messages are dropped."""
    messages: list[Any] = field(default_factory=list)
    size: int = 0
    """Bytes of the gathered messages."""
    total: int = 0
    """Bytes of all messages read of the range."""

    def reach(self, offset: int) -> None:
        """Record that no message follows below this offset, which may be beyond the range."""
        self.begin = max(self.begin, min(offset, self.end))
        self.at = max(self.at, min(offset, self.end))

    def gathered(self) -> Iterator[MessageChunk]:
        """Yield the gathered messages, if any, and start an empty chunk."""
        if self.messages:
            yield MessageChunk(self.messages, _offsets_of(self.messages), self.size)
            self.messages, self.size = [], 0


def _offsets_of(messages: Sequence[Any]) -> I64:
    """Return the offsets (``int64[messages]``); without gaps, the first and the last one determine all."""
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == len(messages) - 1:
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(all_of(messages, "offset"), dtype=np.int64, count=len(messages))


class PartitionReader:
    """Reads ranges of one kafka_partition with its own consumer."""

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        place: KafkaPartition,
        *,
        read_committed: bool,
        alone: bool = False,
        max_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the consumer; it connects at its first read.

        Args:
            settings: The client's settings.
            group: The consumer group, by which brokers identify the client; nothing is committed.
            place: The kafka_partition.
            read_committed: Whether to skip records of open and aborted transactions.
            alone: Whether it reads single messages, far from each other.
            max_bytes: The limit of a micro-batch; it determines how much is fetched ahead and the size of chunks.
            clock: Returns seconds and never goes back.
        """
        self._kafka = client_library()
        self._settings = settings
        self._place = place
        self._clock = clock
        self._causes = Causes(settings)
        properties = settings.consumer(group, **fetching(max_bytes, alone=alone))
        properties["isolation.level"] = "read_committed" if read_committed else "read_uncommitted"
        self._consumer = settings.new("Consumer", properties, self._causes.hear)
        self._at: int | None = None
        """End of the last range; the next messages are in ``_held``, then in the consumer. None: unknown."""
        self._held: list[Any] = []
        """Messages after the last range's end that had arrived already."""
        self._seen_end: int | None = None
        """End of the log when the consumer reached it. The consumer reports it once, and the next range may lie between
        the last message and this end."""
        self._assigned = False
        self._chunk_bytes = fetched_ahead(max_bytes) if max_bytes is not None else None
        self._message_bytes = 0
        """Bytes of the value of the message that was read last."""
        self.seeks = 0

    @property
    def at(self) -> int | None:
        """The end of the last range, from which reading continues without a seek."""
        return self._at

    def chunks(self, start: int, end: int, enough: int | None = None) -> Iterator[MessageChunk | BadRecord]:
        """Yield the messages of [start, end), in chunks.

        Raises:
            SourceUnavailable: The brokers do not answer.
            EnoughRead: ``enough`` bytes were read, and there are more messages.
        """
        self._causes.forget()
        at, self._at = self._at, None  # unknown until the range is read to its end
        if at is None or not self._reads_on(at, start):
            self._seek(start)
            at = start
        walk = _RangeProgress(start, end, at)
        if self._seen_end is not None and not self._held:
            walk.reach(self._seen_end)
        silent_since = self._clock()
        while walk.begin < end:
            came = self._held or self._consumer.consume(min(CHUNK_MESSAGES, end - walk.at), WAIT_SECS)
            self._held = []
            if not came:
                if self._clock() - silent_since > AWAY_SECS:
                    yield from walk.gathered()
                    raise self._away(walk.begin, end)
                continue
            before, where = len(walk.messages), walk.begin + walk.at
            trouble = self._take(came, walk)
            left = self._weigh(walk, before, enough) if self._chunk_bytes is not None else None
            if left is not None:
                yield from walk.gathered()
                # Everything from there on counts as not yet arrived: messages, the end of the log, an error.
                self._held = came[next(place for place, one in enumerate(came) if one is left) :]
                self._at = left.offset()
                raise EnoughRead(left.offset(), f"{walk.total:,} bytes of it are read, more than were expected")
            full = len(walk.messages) >= CHUNK_MESSAGES or walk.size >= (self._chunk_bytes or walk.size + 1)
            if trouble is not None or full:
                yield from walk.gathered()
            if trouble is not None:
                gone = self._on_error(trouble, walk)
                if gone is not None:
                    yield gone
            if walk.begin + walk.at > where:  # the consumer of the chunk may have been slow
                silent_since = self._clock()
            elif trouble is not None and self._clock() - silent_since > AWAY_SECS:  # the same error again and again
                raise self._away(walk.begin, end)
        yield from walk.gathered()
        self._at = end if self._assigned else None

    def _reads_on(self, at: int, start: int) -> bool:
        """Whether to read on from ``at`` and drop messages, instead of seeking to ``start``."""
        return at <= start <= at + DROP_MAX and (start - at) * self._message_bytes <= DROP_BYTES_MAX

    def _take(self, came: list[Any], walk: _RangeProgress) -> Any:
        """Sort the messages that the consumer returned; return the error that ends the range, if there is one."""
        last = came[-1].offset()
        if came[0].offset() >= walk.begin and last < walk.end and not any(all_of(came, "error")):
            walk.messages += came
            walk.begin = walk.at = last + 1
            self._message_bytes = len(came[-1])
            return None
        for index, message in enumerate(came):
            offset, error = message.offset(), message.error()
            if error is None:
                if offset >= walk.end:
                    self._held = came[index:]
                    walk.begin = walk.end
                    return None
                walk.at = max(walk.at, offset + 1)
                if offset >= walk.begin:
                    walk.messages.append(message)
                    walk.begin = offset + 1
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._seen_end = offset
                walk.reach(offset)
            else:
                return error
        return None

    def _weigh(self, walk: _RangeProgress, before: int, enough: int | None) -> Any:
        """Count the bytes of the latest messages, those from ``before`` on.

        Returns:
            The first message beyond the limit, or None; it and those after it are removed from the gathered ones.
        """
        came = walk.messages[before:]
        size, left = size_of(came), None
        if enough is not None and walk.total + size >= enough:
            before_each = itertools.accumulate((size_of([message]) for message in came), initial=walk.total)
            kept = next((place for place, total in enumerate(before_each) if total >= enough), len(came))
            left = came[kept] if kept < len(came) else None
            size = size_of(came[:kept])
            del walk.messages[before + kept :]
        walk.size += size
        walk.total += size
        return left

    def _seek(self, start: int) -> None:
        self.seeks += 1
        self._held = []
        self._seen_end = None
        target = self._kafka.TopicPartition(*self._place, start)
        try:
            if self._assigned:
                self._consumer.seek(target)
                return
        except self._kafka.KafkaException:
            pass  # the consumer does not fetch, as after an error: it is assigned again
        self._consumer.assign([target])
        self._assigned = True

    def _on_error(self, error: Any, walk: _RangeProgress) -> BadRecord | None:
        """Return the result of a consumer's error for the rest of a range: a ``BadRecord`` if offsets are gone."""
        codes = self._kafka.KafkaError
        begin, end = walk.begin, walk.end
        self._assigned = False
        if error.code() not in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            raise self._away(begin, end, error)
        first, last = self._log(begin, end)
        if first <= begin < last:  # it exists after all: another leader has answered
            resume = begin
        else:
            resume = min(first, end) if first > begin else end
        walk.begin = walk.at = resume
        if resume < end:
            self._seek(resume)
        if resume == begin:
            return None
        reason = (
            f"{self._place}: offsets {begin} to {resume - 1} were planned and are gone, the brokers have "
            f"{first} to {last}: retention, a deletion, or a topic that was made again"
        )
        return BadRecord(begin, reason, skipped=resume - begin)

    def _log(self, begin: int, end: int) -> tuple[int, int]:
        place = self._kafka.TopicPartition(*self._place)
        try:
            low, high = self._consumer.get_watermark_offsets(place, timeout=AWAY_SECS)
        except self._kafka.KafkaException as error:
            raise self._away(begin, end, error) from None
        if min(low, high) < 0:  # no answer
            raise self._away(begin, end)
        return low, high

    def _away(self, begin: int, end: int, error: Any = None) -> SourceUnavailable:
        cause = self._causes.cause(error)
        if cause is not None:
            return SourceUnavailable(f"{self._place}@{begin} to {end} cannot be read: {cause.text}")
        said = "" if error is None else f": {self._settings.text_of(error)}"
        return SourceUnavailable(
            f"no answer from the Kafka brokers at {self._settings.where} while reading "
            f"{self._place}@{begin} to {end}{said}"
        )

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
