"""The driver's half of the Kafka spout: which offsets come next.

Which question it answers: given how far each kafka_partition was planned and what the brokers have of it, which
offsets does the next micro-batch read, and what if those that come next are not there any more?

Rule 1: a plan covers at most its budget, spread evenly over the kafka_partitions that have something, and of that no
more than fits into ``max_bytes``, as far as ``Sizes`` can tell.
Rule 2: nothing is left out in silence: what is gone is a ``Gap`` with its size.
Rule 3: positions of a source only rise. Where the brokers' offsets went back (a topic made again, an unclean
leader), reading goes on as another source.
Rule 4: a topic that has another id than the one that was read is another topic, even if it has grown beyond what was
read already.

Pure: what the brokers have, and the time, are arguments.
Read before: ``intervals``, ``sources``, ``sizing``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sparkbolt.core.base.intervals import Intervals, first_outside, subtract
from sparkbolt.core.model.components import Range
from sparkbolt.spouts.kafka.driver.sizing import Sizes
from sparkbolt.spouts.kafka.sources import KafkaPartition, Source, mark_of, marked

OutOfRange = Literal["earliest", "latest", "match", "fail"]

BACKWARDS_SECS = 10.0
"""How long the brokers must say that a log ends before what was read of it, until that is believed: a leader that is
new may know less for a moment."""


@dataclass(frozen=True)
class PartitionLog:
    """What the brokers have of a kafka_partition: offsets ``first`` (inclusive) to ``end`` (exclusive)."""

    first: int
    end: int

    def up_to(self, end: int) -> PartitionLog:
        """The log as if it ended there."""
        return PartitionLog(self.first, max(self.first, min(self.end, end)))


@dataclass(frozen=True)
class TopicIds:
    """What tells topics apart from others of their names, as far as it is known."""

    now: Mapping[str, str] = field(default_factory=dict)
    """By name, of the topics that are there; empty where nobody can say, missing where it was not said yet."""
    stored: Mapping[KafkaPartition, str] = field(default_factory=dict)
    """Of the topics that first positions are of, where that was stored with them."""


NO_IDS = TopicIds()


@dataclass(frozen=True)
class Gap:
    """Offsets that come next and are not there."""

    source: Source
    start: int
    """What came next."""
    log: PartitionLog
    resume: Source | None
    """Where reading goes on; None: nowhere, since ``out_of_range`` is ``fail``."""
    offset: int = 0
    """From which offset on."""
    ids: tuple[str, str] | None = None
    """Where it is another topic of the same name: the id of the one that was read, and of this one."""

    @property
    def skipped(self) -> int:
        """How many offsets of the log that is there are left out.

        What another topic held before is not among them, nor what a leader that had more: nobody knows it any more.
        """
        if self.ids is not None and self.resume is not None:
            return self.offset - self.log.first
        return max(0, self.offset - self.start) if self.resume == self.source else 0

    def __str__(self) -> str:
        """The whole story, as the end of a log line."""
        have = f"the brokers have offsets {self.log.first} to {self.log.end}"
        if self.ids is not None:
            old, new = self.ids
            what = (
                f"{self.source}: offset {self.start} comes next, but the topic was made again (its id was {old} and is "
                f"{new}), {have}: what was not read of the old one is gone"
            )
        elif self.start < self.log.first:
            what = f"{self.source}: offset {self.start} comes next, but {have}: retention or a deletion took the others"
        else:
            what = (
                f"{self.source}: offset {self.start} comes next, but {have}: the topic was made again, or a leader "
                "was elected that had less"
            )
        if self.resume is None:
            return f"{what}; out_of_range is 'fail'"
        skipped = f"{self.skipped} offsets are skipped; " if self.skipped else ""
        return f"{what}; {skipped}reading goes on at offset {self.offset}"


@dataclass
class OffsetPlanner:
    """Plans ranges of offsets; keeps only what follows from a ``Gap`` until it is in the ledger's progress.

    >>> planner = OffsetPlanner(parallelism=2)
    >>> place = KafkaPartition("orders", 0)
    >>> planner.plan({"orders/0": 40}, {place: PartitionLog(0, 100)}, {}, {}, budget=1000, now_s=0.0)
    ([Range(task=0, source='orders/0', start=40, end=100)], [])
    """

    parallelism: int
    out_of_range: OutOfRange = "earliest"
    max_poll_records: int | None = None
    sizes: Sizes | None = None
    """What a micro-batch may read in bytes; None: as much as the budget allows."""
    _resumes: dict[Source, int] = field(default_factory=dict)
    """Where reading goes on after a gap."""
    _behind_since: dict[Source, float] = field(default_factory=dict)
    _turn: int = 0

    def current(self, place: KafkaPartition, progress: Mapping[str, int]) -> Source:
        """The source that stands for a kafka_partition now."""
        source = Source(*place)
        while True:
            later = source._replace(turn=source.turn + 1)
            if str(later) not in progress and later not in self._resumes:
                return source
            source = later

    def plan(
        self,
        progress: Mapping[str, int],
        logs: Mapping[KafkaPartition, PartitionLog],
        firsts: Mapping[KafkaPartition, int],
        finished: Mapping[KafkaPartition, Intervals],
        *,
        budget: int,
        now_s: float,
        ids: TopicIds = NO_IDS,
    ) -> tuple[list[Range], list[Gap]]:
        """The next ranges, and what was found missing.

        Args:
            progress: of each source that was ever planned, the end of what was planned.
            logs: what the brokers have.
            firsts: where to begin with a kafka_partition that was never planned; one that is not named waits.
            finished: offsets that need not be read, because an earlier run has finished them.
            budget: how many offsets all ranges may cover.
            now_s: a monotonic clock.
            ids: of the topics.
        """
        known = marked(progress)
        gaps: list[Gap] = []
        places = sorted(logs)
        room: dict[int, tuple[Source, int, int]] = {}
        for index, place in enumerate(places):
            source = self.current(place, progress)
            start = self._next_of(source, progress, firsts)
            if start < 0:
                continue
            log = logs[place]
            was, now = _id_of(source, known, ids), ids.now.get(place.topic)
            other = (was, now) if was and now and was != now else None
            gap = self._made_again(source, start, log, other) if other else self._gap(source, start, log, now_s)
            if gap is not None:
                gaps.append(gap)
                if gap.resume is None:
                    continue
                source, start = gap.resume, gap.offset
                self._resumes[source] = start
            start = first_outside(start, finished.get(place, ()) if source.turn == 0 else ())
            most = min(log.end - start, self.max_poll_records or log.end)
            if most > 0:
                room[index] = (source, start, most)
        shares = self._shares({index: most for index, (_, _, most) in room.items()}, budget)
        if self.sizes is not None:
            fits = self.sizes.fit({str(room[index][0]): share for index, share in shares.items()})
            shares = {index: fits[str(room[index][0])] for index in shares if str(room[index][0]) in fits}
        ranges: list[Range] = []
        for index in sorted(shares):
            source, start, _ = room[index]
            done = finished.get(source.place, ()) if source.turn == 0 else ()
            for first, end in subtract([(start, start + shares[index])], done):
                ranges.append(Range(index % self.parallelism, str(source), first, end))
        return ranges, gaps

    def _next_of(self, source: Source, progress: Mapping[str, int], firsts: Mapping[KafkaPartition, int]) -> int:
        """The offset that comes next of a source; -1 if that is not known."""
        start = max(progress.get(str(source), -1), self._resumes.get(source, -1))
        return start if start >= 0 else firsts.get(source.place, -1)

    def planned_to(
        self,
        ends: Mapping[KafkaPartition, int],
        progress: Mapping[str, int],
        firsts: Mapping[KafkaPartition, int],
        finished: Mapping[KafkaPartition, Intervals],
        *,
        places: Container[KafkaPartition],
        ids: TopicIds,
    ) -> bool:
        """Whether everything up to these ends is planned, of the topics that are there now.

        Where it is known of which topic the positions are, and one is there (``places``), it is waited for what ``ids``
        will say of that one.

        >>> planner, place = OffsetPlanner(parallelism=1), KafkaPartition("orders", 0)
        >>> progress = {"orders/0": 9, "orders/0#Xk5q": 1}
        >>> for now in ({}, {"orders": "Xk5q"}, {"orders": "Yw8a"}):
        ...     planner.planned_to({place: 9}, progress, {}, {}, places=[place], ids=TopicIds(now))
        False
        True
        False
        """
        known = marked(progress)
        for place, end in ends.items():
            source = self.current(place, progress)
            was, now = _id_of(source, known, ids), ids.now.get(place.topic)
            done = finished.get(place, ()) if source.turn == 0 else ()
            if first_outside(self._next_of(source, progress, firsts), done) < end:
                return False
            if was and place in places and now not in ("", was):
                return False
        return True

    def marks(
        self,
        progress: Mapping[str, int],
        ranges: Sequence[Range],
        places: Iterable[KafkaPartition],
        ids: TopicIds,
    ) -> list[Range]:
        """Ranges without records, which tell the ledger of which topic the positions of sources are.

        Each is planned once, with the first ranges of its source or, where the id was not known then, when it is.

        >>> planner, place = OffsetPlanner(parallelism=2), KafkaPartition("orders", 0)
        >>> planner.marks({}, [Range(0, "orders/0", 0, 9)], [place], TopicIds({"orders": "Xk5q"}))
        [Range(task=0, source='orders/0#Xk5q', start=0, end=1)]
        """
        known = marked(progress)
        begun = progress.keys() | {range_.source for range_ in ranges}
        found = []
        for index, place in enumerate(sorted(places)):
            source = self.current(place, progress)
            topic_id = _id_of(source, {}, ids) or ids.now.get(place.topic)
            if topic_id and str(source) in begun and (str(place), source.turn) not in known:
                mark = mark_of(source, topic_id)
                found.append(Range(index % self.parallelism, mark, source.turn, source.turn + 1))
        return found

    def _made_again(self, source: Source, start: int, log: PartitionLog, ids: tuple[str, str]) -> Gap:
        """It is another topic, and what comes next of the old one is gone, whatever offsets the new one has."""
        self._behind_since.pop(source, None)
        if self.out_of_range == "fail":
            return Gap(source, start, log, None, ids=ids)
        nearest = max(log.first, min(start, log.end))
        offset = {"earliest": log.first, "latest": log.end}.get(self.out_of_range, nearest)
        return Gap(source, start, log, source._replace(turn=source.turn + 1), offset, ids)

    def _gap(self, source: Source, start: int, log: PartitionLog, now_s: float) -> Gap | None:
        """What is missing, if what comes next is not there; decided by ``out_of_range``."""
        if start > log.end:
            since = self._behind_since.setdefault(source, now_s)
            if now_s - since < BACKWARDS_SECS:
                return None
            del self._behind_since[source]
            if self.out_of_range == "fail":
                return Gap(source, start, log, None)
            later = source._replace(turn=source.turn + 1)
            return Gap(source, start, log, later, log.first if self.out_of_range == "earliest" else log.end)
        self._behind_since.pop(source, None)
        if start >= log.first:
            return None
        if self.out_of_range == "fail":
            return Gap(source, start, log, None)
        return Gap(source, start, log, source, log.end if self.out_of_range == "latest" else log.first)

    def _shares(self, room: Mapping[int, int], budget: int) -> dict[int, int]:
        """Spread the budget evenly: who has less than an even share leaves the rest to the others."""
        if sum(room.values()) <= budget:
            return dict(room)
        if budget < len(room):  # not enough for all: they take turns
            order = sorted(room, key=lambda index: (index < self._turn, index))[:budget]
            self._turn = order[-1] + 1
            return dict.fromkeys(order, 1)
        shares: dict[int, int] = {}
        left = budget
        for done, index in enumerate(sorted(room, key=lambda index: room[index])):
            shares[index] = min(room[index], left // (len(room) - done))
            left -= shares[index]
        return shares


def _id_of(source: Source, known: Mapping[tuple[str, int], str], ids: TopicIds) -> str | None:
    """Of which topic the positions of a source are: as the ledger knows, else as its first one was stored."""
    first = ids.stored.get(source.place) if source.turn == 0 else None
    return known.get((str(source.place), source.turn), first)
