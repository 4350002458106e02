"""OffsetPlanner: plans, in the driver, which offsets are read next.

Rule 1: a plan covers at most its budget, spread evenly over the kafka_partitions that have messages, and no more than
fits into ``max_bytes`` according to ``Sizes``.
Rule 2: nothing is skipped silently: offsets that are gone become a ``Gap`` with its size.
Rule 3: positions of a source only rise. If the brokers' offsets went back (the topic was created again, or an unclean
leader was elected), reading continues as another source.
Rule 4: a topic with another id than the one that was read is another topic, even if it has already grown beyond the
part that was read.

The planner is pure: the brokers' answers, with their time, are an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sparkbolt.api.ranges import Range
from sparkbolt.base.intervals import Intervals, first_outside, subtract
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition, Source, mark_of, marked
from sparkbolt.connectors.kafka.message_sizes import Sizes
from sparkbolt.errors import ConfigError

OutOfRange = Literal["earliest", "latest", "match", "fail"]

BACKWARDS_SECS = 10.0
"""How long the brokers must report that a log ends before the part that was read, until this is believed, in seconds: a
new leader may know less for a moment. Time in which the brokers give no answer does not count."""

UNNAMED_SECS = 10.0
"""How long nothing more is planned of a topic because the brokers do not report its id, in seconds of their answers."""


@dataclass(frozen=True)
class PartitionLog:
    """Offsets that the brokers have of a kafka_partition: ``first`` (inclusive) to ``end`` (exclusive)."""

    first: int
    end: int

    def up_to(self, end: int) -> PartitionLog:
        """Return the log as if it ended at ``end``."""
        return PartitionLog(self.first, max(self.first, min(self.end, end)))


@dataclass(frozen=True)
class TopicIds:
    """The known ids of topics; they distinguish topics of the same name."""

    now: Mapping[str, str] = field(default_factory=dict)
    """Ids of existing topics by name; empty if the brokers know none, missing if they have not answered yet."""
    stored: Mapping[KafkaPartition, str] = field(default_factory=dict)
    """Ids of the topics to which first positions belong, if they were stored with the positions."""


NO_IDS = TopicIds()


@dataclass(frozen=True)
class Look:
    """The brokers' state when they were last asked."""

    logs: Mapping[KafkaPartition, PartitionLog] = field(default_factory=dict)
    firsts: Mapping[KafkaPartition, int] = field(default_factory=dict)
    """Where to begin with each kafka_partition that the checkpoint does not know; if it is missing here, it waits."""
    finished: Mapping[KafkaPartition, Intervals] = field(default_factory=dict)
    """Offsets that need not be read, because an earlier run has finished them."""
    problem: ConfigError | None = None
    """Why reading is impossible for good; None if it is possible."""
    silent: frozenset[KafkaPartition] = frozenset()
    """Kafka_partitions that exist but whose end is unknown yet, because they have no leader, for example."""
    ids: TopicIds = NO_IDS
    """The topics' ids; never newer than ``logs``, and missing while the topic may be another one than before."""
    asked_s: float = 0.0
    """When the brokers were asked for the ends of ``logs``, in seconds of the monotonic clock."""

    def id_of(self, named: SourceNames, known: Mapping[tuple[str, int], str]) -> str | None:
        """Return the id of the topic to which a source's positions belong: the known one, else as stored at the start.

        Args:
            named: the source.
            known: the ids that the ledger has, by kafka_partition and turn.
        """
        source = named.source
        first = self.ids.stored.get(source.place) if source.turn == 0 else None
        return known.get((named.place, source.turn), first)

    def done(self, source: Source) -> Intervals:
        """Return the offsets of a source that need not be read."""
        return self.finished.get(source.place, ()) if source.turn == 0 else ()


@dataclass(frozen=True)
class Gap:
    """The next offsets, which do not exist any more."""

    source: Source
    start: int
    """The next offset."""
    log: PartitionLog
    resume: Source | None
    """The source that is read next; None if ``out_of_range`` is ``fail``."""
    offset: int = 0
    """The offset at which reading continues."""
    ids: tuple[str, str] | None = None
    """If it is another topic of the same name: the id of the topic that was read, and of this one."""

    @property
    def skipped(self) -> int:
        """How many offsets of the existing log are skipped.

        Offsets that an earlier topic held, or a leader with more records, do not count: their number is unknown.
        """
        if self.ids is not None and self.resume is not None:
            return self.offset - self.log.first
        return max(0, self.offset - self.start) if self.resume == self.source else 0

    def __str__(self) -> str:
        """Return the whole story, as the end of a log line."""
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


class SourceNames(NamedTuple):
    """A source with its names, which are needed at each poll, for each kafka_partition."""

    source: Source
    name: str
    place: str
    """The name of the kafka_partition."""
    later: Source
    """The source that would follow, if the topic were made again."""
    later_name: str

    @classmethod
    def of(cls, source: Source) -> SourceNames:
        """Return the names of a source."""
        later = source._replace(turn=source.turn + 1)
        return cls(source, str(source), str(source.place), later, str(later))


@dataclass
class OffsetPlanner:
    """Plans ranges of offsets; its only state follows from a ``Gap``, until the ledger's progress has it.

    Everywhere ``progress`` is the end of the planned part of each source that was ever planned.

    >>> planner, place = OffsetPlanner(parallelism=2), KafkaPartition("orders", 0)
    >>> planner.plan({"orders/0": 40}, Look({place: PartitionLog(0, 100)}), budget=1000)
    ([Range(task=0, source='orders/0', start=40, end=100)], [])
    """

    parallelism: int
    out_of_range: OutOfRange = "earliest"
    max_poll_records: int | None = None
    sizes: Sizes | None = None
    """Limits a micro-batch in bytes; None: only the budget is a limit."""
    _resumes: dict[Source, int] = field(default_factory=dict)
    """Where reading continues after a gap, until the progress shows it."""
    _behind_since: dict[Source, float] = field(default_factory=dict)
    _unnamed_since: dict[KafkaPartition, float] = field(default_factory=dict)
    """Since when the id of a kafka_partition's topic is unknown, although it was known before."""
    _turn: int = 0
    _first: dict[KafkaPartition, SourceNames] = field(default_factory=dict)
    """The first source of each kafka_partition that was ever planned."""

    def plan(self, progress: Mapping[str, int], look: Look, *, budget: int) -> tuple[list[Range], list[Gap]]:
        """Return the next ranges, of at most ``budget`` offsets in all, and the gaps that were found."""
        known = marked(progress)
        gaps: list[Gap] = []
        room: dict[int, tuple[Source, int, int]] = {}
        for index, place in enumerate(sorted(look.logs)):
            named, start = self._next(place, progress, look)
            source, log = named.source, look.logs[place]
            if start < 0:
                continue
            was, now = look.id_of(named, known), look.ids.now.get(place.topic)
            if self._awaits_id(place, was, now, look.asked_s):
                continue
            gap = self._gap(source, start, log, look.asked_s, (was, now) if was and now and was != now else None)
            if gap is not None:
                gaps.append(gap)
                if gap.resume is None:
                    continue
                source, start = gap.resume, gap.offset
                self._resumes[source] = start
            start = first_outside(start, look.done(source))
            most = min(log.end - start, self.max_poll_records or log.end)
            if most > 0:
                room[index] = (source, start, most)
        shares = self._shares({index: most for index, (_, _, most) in room.items()}, budget)
        if self.sizes is not None:
            names = {index: str(room[index][0]) for index in shares}
            fits = self.sizes.fit({names[index]: share for index, share in shares.items()})
            shares = {index: fits[name] for index, name in names.items() if name in fits}
        ranges: list[Range] = []
        for index in sorted(shares):
            source, start, _ = room[index]
            for first, end in subtract([(start, start + shares[index])], look.done(source)):
                ranges.append(Range(index % self.parallelism, str(source), first, end))
        return ranges, gaps

    def unread(self, progress: Mapping[str, int], look: Look) -> dict[str, bool]:
        """Return the source of each kafka_partition, and whether the brokers have messages of it behind ``progress``.

        >>> planner, place = OffsetPlanner(parallelism=1), KafkaPartition("orders", 0)
        >>> planner.unread({"orders/0": 9}, Look({place: PartitionLog(0, 10)}))
        {'orders/0': True}
        """
        found = {}
        for place, log in look.logs.items():
            named, start = self._next(place, progress, look)
            found[named.name] = first_outside(max(start, log.first), look.done(named.source)) < log.end
        return found

    def planned_to(self, ends: Mapping[KafkaPartition, int], progress: Mapping[str, int], look: Look) -> bool:
        """Whether everything up to these ends is planned, for the topics that exist now.

        If the topic id of the positions is known, and the kafka_partition exists, the answer is False until the
        existing topic's id is known.

        >>> planner, place = OffsetPlanner(parallelism=1), KafkaPartition("orders", 0)
        >>> progress, logs = {"orders/0": 9, "orders/0#Xk5q": 1}, {place: PartitionLog(0, 9)}
        >>> for now in ({}, {"orders": "Xk5q"}, {"orders": "Yw8a"}):
        ...     planner.planned_to({place: 9}, progress, Look(logs, ids=TopicIds(now)))
        False
        True
        False
        """
        known = marked(progress)
        for place, end in ends.items():
            named, start = self._next(place, progress, look)
            was, now = look.id_of(named, known), look.ids.now.get(place.topic)
            is_doubtful = was and place in look.logs and now not in ("", was)
            if is_doubtful or first_outside(start, look.done(named.source)) < end:
                return False
        return True

    def marks(self, progress: Mapping[str, int], ranges: Sequence[Range], look: Look) -> list[Range]:
        """Return marks: ranges without records that record to which topic the positions of sources belong.

        Each mark is planned once: with the first ranges of its source, or as soon as the id is known.

        >>> planner, look = OffsetPlanner(2), Look({KafkaPartition("orders", 0): PartitionLog(0, 9)})
        >>> planner.marks({}, [Range(0, "orders/0", 0, 9)], Look(look.logs, ids=TopicIds({"orders": "Xk5q"})))
        [Range(task=0, source='orders/0#Xk5q', start=0, end=1)]
        """
        known = marked(progress)
        begins = {range_.source for range_ in ranges}
        found = []
        for index, place in enumerate(sorted(look.logs)):
            named = self._current(place, progress)
            turn = named.source.turn
            if (named.place, turn) in known or (named.name not in progress and named.name not in begins):
                continue
            topic_id = look.id_of(named, {}) or look.ids.now.get(place.topic)
            if topic_id:
                found.append(Range(index % self.parallelism, mark_of(named.source, topic_id), turn, turn + 1))
        return found

    def _current(self, place: KafkaPartition, progress: Mapping[str, int]) -> SourceNames:
        """Return the current source of a kafka_partition."""
        named = self._first.get(place)
        if named is None:
            named = self._first[place] = SourceNames.of(Source(*place))
        while named.later_name in progress or named.later in self._resumes:
            named = SourceNames.of(named.later)
        return named

    def _next(self, place: KafkaPartition, progress: Mapping[str, int], look: Look) -> tuple[SourceNames, int]:
        """Return the current source of a kafka_partition, and its next offset; -1 if it is unknown."""
        named = self._current(place, progress)
        start = max(progress.get(named.name, -1), self._resumes.get(named.source, -1))
        return named, start if start >= 0 else look.firsts.get(place, -1)

    def _awaits_id(self, place: KafkaPartition, was: str | None, now: str | None, now_s: float) -> bool:
        """Whether the brokers may still report another topic than the one that was read."""
        if not was or now is not None:
            self._unnamed_since.pop(place, None)
            return False
        return now_s - self._unnamed_since.setdefault(place, now_s) < UNNAMED_SECS

    def _gap(
        self, source: Source, start: int, log: PartitionLog, now_s: float, ids: tuple[str, str] | None
    ) -> Gap | None:
        """Return the gap if the next offset does not exist, or is of another topic (``ids``)."""
        is_behind = ids is None and start > log.end
        if is_behind and now_s - self._behind_since.setdefault(source, now_s) < BACKWARDS_SECS:
            return None
        self._behind_since.pop(source, None)
        if ids is None and log.first <= start <= log.end:
            return None
        if self.out_of_range == "fail":
            return Gap(source, start, log, None, ids=ids)
        nearest = max(log.first, min(start, log.end))
        offset = {"earliest": log.first, "latest": log.end}.get(self.out_of_range, nearest)
        resume = source if ids is None and not is_behind else source._replace(turn=source.turn + 1)
        return Gap(source, start, log, resume, offset, ids)

    def _shares(self, room: Mapping[int, int], budget: int) -> dict[int, int]:
        """Spread the budget evenly; a kafka_partition that has less than an even share leaves the rest to others."""
        if sum(room.values()) <= budget:
            return dict(room)
        if budget < len(room):  # there is not enough for all: they take turns
            order = sorted(room, key=lambda index: (index < self._turn, index))[:budget]
            self._turn = order[-1] + 1
            return dict.fromkeys(order, 1)
        shares: dict[int, int] = {}
        left = budget
        for done, index in enumerate(sorted(room, key=lambda index: room[index])):
            shares[index] = min(room[index], left // (len(room) - done))
            left -= shares[index]
        return shares
