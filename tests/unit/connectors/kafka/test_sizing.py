"""How many offsets fit into a number of bytes, and where a range is cut that has more. No broker."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given
from hypothesis import strategies as st

from sparkbolt.connectors.kafka import partition_reader as reading
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.message_sizes import GROWTH, READS, Sizes
from sparkbolt.errors import EnoughRead

MIB = 1 << 20


def known(max_bytes: int, **means: int) -> Sizes:
    """Sizes that know so many bytes per offset of each source."""
    sizes = Sizes(max_bytes)
    for source, mean in means.items():
        for _ in range(READS):
            sizes.learn(source, 10, 10 * mean)
    return sizes


def test_unread_source_counts_as_large_so_reading_starts_small():
    assert Sizes(64 * MIB).fit({"a": 100_000, "b": 100_000}) == {"a": 32, "b": 32}


def test_an_estimate_rises_a_hundredfold_at_once_and_stays_while_the_read_is_a_recent_one():
    sizes = known(MIB, a=100)
    sizes.learn("a", 50, 50 * 10_000)
    assert sizes.of("a") == 10_000
    for _ in range(READS - 1):
        sizes.learn("a", 50, 50 * 100)
    assert sizes.of("a") == 10_000
    sizes.learn("a", 50, 50 * 100)
    assert sizes.of("a") == 10_000 / GROWTH


def test_large_messages_of_one_kafka_partition_do_not_take_the_bytes_of_the_others():
    sizes = known(1000, a=400, b=10)
    assert sizes.fit({"a": 500, "b": 500}) == {"a": 1, "b": 60}


sources = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 300), st.integers(1, 2000)), min_size=1)


@given(max_bytes=st.integers(1, 10_000), of=sources)
def test_planned_messages_are_within_max_bytes_unless_there_is_only_one(max_bytes, of):
    sizes = known(max_bytes, **{source: mean for source, (_, mean) in of.items()})
    wanted = {source: count for source, (count, _) in of.items()}
    found = sizes.fit(wanted)
    assert all(1 <= count <= wanted[source] for source, count in found.items())
    total = sum(count * sizes.of(source) for source, count in found.items())
    assert total <= max_bytes or list(found.values()) == [1]
    cheapest = min((sizes.of(source) for source in found if found[source] < wanted[source]), default=None)
    if cheapest is not None and len(found) == len(wanted):
        assert total + cheapest > max_bytes, "bytes are left for one more"


@dataclass(frozen=True)
class Message:
    """As much of a client's message as a reader looks at."""

    at: int
    size: int
    code: int | None = None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return b"k" * (self.size // 2) if self.size % 3 else None

    def __len__(self) -> int:
        return self.size - len(self.key() or b"")

    def error(self) -> Any:
        return None if self.code is None else SimpleNamespace(code=lambda: self.code)


class Consumer:
    """A consumer that gives what is in a log in pieces of any lengths, and says once where the log ends."""

    def __init__(self, log: list[Message], pieces: list[int]) -> None:
        self.log, self.pieces = log, itertools.cycle(pieces)
        self.rest: list[Message] = []
        self.seeks: list[int] = []

    def assign(self, places: list[Any]) -> None:
        self.seek(places[0])

    def seek(self, place: Any) -> None:
        self.seeks.append(place.offset)
        self.rest = [message for message in self.log if message.at >= place.offset]

    def consume(self, count: int, wait_secs: float) -> list[Message]:
        most = min(count, next(self.pieces))
        given, self.rest = self.rest[:most], self.rest[most:]
        return given


def read_in_steps(log: list[Message], pieces: list[int], ends: list[int], enough: int) -> list[tuple[int, list[int]]]:
    """(where it began, the offsets) of each read, until all ranges are read; ``ends`` rise."""
    consumer = Consumer(log, pieces)
    ticks = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientSettings, "new", lambda *_: consumer)
        reader = reading.PartitionReader(
            ClientSettings("localhost:1"),
            "g",
            KafkaPartition("orders", 0),
            read_committed=True,
            max_bytes=enough,
            clock=lambda: float(next(ticks)),  # a consumer that has nothing more to give is noticed at once
        )
    found: list[tuple[int, list[int]]] = []
    start = 0
    for end in ends:
        while start < end:
            offsets: list[int] = []
            found.append((start, offsets))
            try:
                for chunk in reader.chunks(start, end, enough):
                    assert isinstance(chunk, reading.MessageChunk)
                    assert chunk.size == sum(message.size for message in chunk.messages)
                    offsets.extend(chunk.offsets.tolist())
                start = end
            except EnoughRead as error:
                start = error.position
    assert consumer.seeks == [0], "it reads on where it was"
    return found


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 50)), min_size=1, max_size=30),
    gap=st.integers(0, 2),
    pieces=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    cuts=st.sets(st.integers(1, 89), max_size=3),
    enough=st.integers(1, 120),
)
@example(sizes=[(1, 5), (1, 0), (1, 3)], gap=0, pieces=[3], cuts=set(), enough=5)
@example(sizes=[(1, 5), (1, 5)], gap=2, pieces=[3], cuts=set(), enough=5)
def test_cut_of_a_range_depends_on_its_messages_and_not_on_their_arrival(sizes, gap, pieces, cuts, enough):
    at, log = -1, []
    for step, size in sizes:
        at += step
        log.append(Message(at, size))
    last = at + 1 + gap
    ends = sorted({cut for cut in cuts if cut < last} | {last})
    end_of_log = Message(last, 0, code=KafkaError._PARTITION_EOF)
    found = read_in_steps([*log, end_of_log], pieces, ends, enough)
    assert [offset for _, offsets in found for offset in offsets] == [message.at for message in log]
    of = {message.at: message.size for message in log}
    for (_, offsets), (start, _) in itertools.pairwise(found):
        read = sum(of[offset] for offset in offsets)
        assert read - (of[offsets[-1]] if offsets else 0) < enough, "it ends with the first message that is enough"
        assert start in ends or (read >= enough and start in of), "and not before, but at the range's end"
    assert found == read_in_steps([*log, end_of_log], [1], ends, enough)
