"""Watcher: the driver's thread that talks to the brokers.

Only this thread waits for brokers: the driver reads the last ``Look`` and hands over offsets to store. The thread
stores only the latest offsets, at most once per interval, and once more at the end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from sparkbolt.base.intervals import Intervals
from sparkbolt.connectors.kafka.kafka_cluster import BrokersAwayError, Cluster, LoginRefusedError, Topics
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.offset_planner import Look, PartitionLog, TopicIds
from sparkbolt.connectors.kafka.offset_stores import OffsetsStore, OtherTopology, Owner, Scope, Stored
from sparkbolt.connectors.kafka.start_offsets import Start, StartAt, Where
from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_SECS = 2.0
"""How often topics, and the first offsets of logs, are requested, in seconds."""
ENDS_SECS = 0.5
"""How often the ends of logs are requested while there is enough to read, in seconds."""
ENDS_SECS_MIN = 0.05
"""How often they are requested while the driver waits for them, in seconds."""
TELL_SECS = 1.0
TELL_AGAIN_SECS = 3600.0
"""How often unchanged offsets are stored again, in seconds: brokers delete a group's offsets after days without one."""
AWAY_SECS = 1.0
OPEN_AGAIN_SECS = 5.0
"""How long ``open`` retries when a request raises, in seconds."""
CLOSE_SECS = 15.0


@dataclass(frozen=True)
class Wish:
    """The part of the user's arguments that concerns the driver."""

    topics: Topics
    start: Start
    owner: Owner
    other_topology: OtherTopology
    id_before: str | None = None
    """The id of the owner before the spout got another id; None if it has not."""


class Watcher:
    """Asks the brokers and stores offsets, in its own thread."""

    def __init__(self, cluster: Cluster, store: OffsetsStore, wish: Wish, scope: Scope) -> None:
        """Store the arguments; no request is made yet."""
        self.look = Look()
        self._cluster = cluster
        self._store = store
        self._wish = wish
        self._scope = scope
        self._changed = threading.Condition()
        self._wanted = self._stopped = self._opened = False
        self._to_tell: dict[KafkaPartition, Stored] = {}
        self._was_told: dict[KafkaPartition, Stored] = {}
        self._calls = self._told = 0
        self._error: Exception | None = None
        self._next_look = self._next_tell = 0.0
        self._next_tell_again = time.monotonic() + TELL_AGAIN_SECS
        self._first: dict[KafkaPartition, int] = {}
        self._ids: dict[str, str] = {}
        """The id of each topic when it was known last."""
        self._stored_ids: dict[KafkaPartition, str] = {}
        self._warned: dict[str, set[str]] = {}
        """The names in the last warning of each kind."""
        self._silent_at_first: frozenset[KafkaPartition] = frozenset()
        """Silent at the first look; they are not new when they answer later."""
        self._thread = threading.Thread(target=self._live, name="kafka-watcher", daemon=True)

    # The driver calls these.

    def open(self, wait_secs: float) -> None:
        """Start the thread and wait for the first look; at most ``OPEN_AGAIN_SECS`` if requests raise.

        Raises:
            ConfigError: An argument does not fit the brokers or the store, or the brokers refuse the login.
            BrokersAwayError: No broker answered in time.
        """
        self._thread.start()
        away_s = time.monotonic() + OPEN_AGAIN_SECS

        def is_known() -> bool:
            away = self._error is not None and time.monotonic() >= away_s
            return self._opened or self.look.problem is not None or away

        with self._changed:
            self._changed.wait_for(is_known, wait_secs)
            error = self.look.problem or (None if self._opened else self._error)
        if error is None and self._opened:
            return
        self.close()
        if isinstance(error, LoginRefusedError):
            raise ConfigError(str(error))
        raise error or BrokersAwayError(f"the Kafka brokers did not answer within {wait_secs:.0f} s")

    def want(self) -> None:
        """Ask for the ends of logs soon, because nothing is left to read."""
        with self._changed:
            self._wanted = True
            self._changed.notify_all()

    def tell(self, offsets: Mapping[KafkaPartition, Stored], *, soon: bool = False) -> int:
        """Store these offsets soon or later; return the number of the call, for ``has_told``.

        Args:
            offsets: The offsets to store.
            soon: Whether a caller waits until it is stored.
        """
        with self._changed:
            self._to_tell.update(offsets)
            self._calls += 1
            if soon:
                self._next_tell, self._wanted = 0.0, True
                self._changed.notify_all()
            return self._calls

    def has_told(self, call: int) -> bool:
        """Whether the store has the offsets of that call of ``tell``, or of a later one."""
        return call <= self._told

    def close(self) -> None:
        """Store the remaining offsets and end the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECS)
        if self._thread.is_alive():
            with self._changed:
                self._to_tell = {}  # stored later, they might replace what another life has stored by then
            if self._opened:
                log.error("the Kafka brokers do not answer: the last finished offsets may not have been told to them")

    # The thread.

    def _live(self) -> None:
        try:
            while not self._stopped:
                wait_secs = self._once()
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, ENDS_SECS_MIN)
                    self._changed.wait_for(lambda: self._stopped or self._wanted, wait_secs)
                    self._wanted = False
            if self._to_tell:
                self._tell()
        except Exception as error:  # noqa: BLE001  an unexpected end of the thread is reported, whatever the cause
            log.error("the last finished offsets were not told: %s; the next start may read some again", error)
        finally:
            self._store.close()
            self._cluster.close()

    def _once(self) -> float:
        """Ask and store once; return how many seconds to wait then."""
        was_opened = self._opened  # until then ``open`` reports errors
        try:
            self._step()
        except ConfigError as problem:
            self._publish(replace(self.look, problem=problem))
            return AWAY_SECS
        except Exception as error:  # noqa: BLE001  brokers, ZooKeeper or a disk failed: each may recover
            if self._error is None and was_opened:
                log.error("%s; nothing new is read or told until that is mended, it is tried again and again", error)
            with self._changed:
                self._error = error
                self._changed.notify_all()
            return AWAY_SECS
        if self._error is not None and was_opened:
            log.warning("the Kafka brokers answer again: reading goes on")
        self._error = None
        return ENDS_SECS

    def _step(self) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECS if self._look_around() else now
        else:
            before = self.look.logs
            ends, ids, created_again = self._ends(before.keys())
            logs = {
                place: PartitionLog(log.first, ends.get(place, log.end))
                for place, log in before.items()
                if place.topic not in created_again
            }
            told_ids = TopicIds(ids, self.look.ids.stored)
            self._publish(replace(self.look, logs=logs, problem=None, ids=told_ids, asked_s=now))
            if created_again:
                self._next_look = now
        if now >= self._next_tell_again:
            with self._changed:
                self._to_tell = {**self._was_told, **self._to_tell}
            self._next_tell_again = now + TELL_AGAIN_SECS
        if self._to_tell and now >= self._next_tell:
            self._tell()
            self._next_tell = now + TELL_SECS

    def _look_around(self) -> bool:
        """Look up the kafka_partitions, the offsets of their logs, and where to begin with new ones.

        Returns:
            False if a topic was created again meanwhile, so that nothing is known of it yet.
        """
        if not self._opened:
            self._store.open(self._scope)
        places = self._cluster.kafka_partitions(self._wish.topics)
        self._say_what_is_missing(places)
        now_s = time.monotonic()
        self._ids |= self._cluster.ids({place.topic for place in places} - self._ids.keys())
        firsts = self._cluster.firsts(places)
        ends, ids, created_again = self._ends(places)
        places = [place for place in places if place.topic not in created_again]
        logs = {place: log for place, log in self.look.logs.items() if place in places}
        logs |= {
            place: PartitionLog(firsts[place], ends[place]) for place in places if place in firsts and place in ends
        }
        silent = frozenset(places) - logs.keys()
        self._warn("no broker answers for %s, which may have no leader: it is read as soon as one does", silent)
        if not self._opened:
            self._silent_at_first = silent
        fresh = [place for place in logs if place not in self._first]
        finished = dict(self.look.finished)
        if fresh:
            self._begin_with(fresh, logs, finished)
        told_ids = TopicIds(ids, dict(self._stored_ids))
        self._publish(Look(logs, dict(self._first), finished, silent=silent, ids=told_ids, asked_s=now_s))
        return not created_again

    def _ends(
        self, places: Collection[KafkaPartition]
    ) -> tuple[Mapping[KafkaPartition, int], Mapping[str, str], Set[str]]:
        """Return the ends of logs, the ids of their topics, and the topics that were created again meanwhile.

        The ends are those of the topic whose id was known before they were requested and is answered after them. With
        another id nothing is known of the topic, and the caller looks it up again.
        """
        ends, ids = self._cluster.ends(places), self._cluster.ids({place.topic for place in places})
        created_again = {topic for topic, topic_id in ids.items() if self._ids.get(topic, topic_id) != topic_id}
        self._ids |= ids
        return ends, ids, created_again

    def _begin_with(
        self,
        fresh: Sequence[KafkaPartition],
        logs: Mapping[KafkaPartition, PartitionLog],
        finished: dict[KafkaPartition, Intervals],
    ) -> None:
        wish = self._wish
        stored = {
            place: replace(found, owner=wish.owner) if found.owner and found.owner.id == wish.id_before else found
            for place, found in self._store.load(fresh).items()
        }
        known = {place.topic for place, found in stored.items() if found.owner and found.owner.id == wish.owner.id}
        wheres: dict[KafkaPartition, Where] = {}
        for place in fresh:
            new = self._opened and place not in self._silent_at_first
            new = new or (place.topic in known and place not in stored)
            found = stored.get(place)
            wheres[place] = wish.start.where(place, found, wish.owner, other=wish.other_topology, new=new)
            if found is not None and wheres[place] == StartAt.STORED:
                wheres[place], finished[place] = found.offset, found.finished
                if found.topic_id is not None:
                    self._stored_ids[place] = found.topic_id
        times = {place: logs[place].end for place, where in wheres.items() if where == StartAt.TIME}
        since = self._cluster.since(times, wish.start.timestamp_ms or 0) if times else {}
        begun: dict[KafkaPartition, int] = {}
        for place, where in wheres.items():
            if isinstance(where, int):
                begun[place] = where
            elif where != StartAt.TIME:
                begun[place] = logs[place].first if where == StartAt.FIRST else logs[place].end
            elif place in since:
                begun[place] = since[place]
        # Stored at once: the next start must not evaluate "latest" again.
        ids = self._stored_ids
        told = {p: Stored(at, wish.owner, finished.get(p, ()), p.topic, ids.get(p)) for p, at in begun.items()}
        self._store.save(told)
        self._was_told |= told
        self._first |= begun

    def _say_what_is_missing(self, places: Sequence[KafkaPartition]) -> None:
        topics = self._wish.topics
        if isinstance(topics, tuple):
            missing = set(topics) - {place.topic for place in places}
            self._warn("topic %s does not exist: it is read as soon as it does; is the name right?", map(repr, missing))
        else:
            pattern = [] if places else [repr(topics.pattern)]
            self._warn("no topic matches %s as a whole: it is read as soon as one does; is the pattern right?", pattern)
        if not self._opened:
            self._warn(
                "start= names %s, which the brokers do not have: this has no effect; a kafka_partition that is created "
                "later is read from its first message",
                set(self._wish.start.offsets or ()) - set(places),
            )

    def _warn(self, text: str, things: Iterable[object]) -> None:
        """Log a warning that names some things, unless the last one with this text has named all of them."""
        names = set(map(str, things))
        if names - self._warned.get(text, set()):
            log.warning(text, ", ".join(sorted(names)))
        self._warned[text] = names

    def _publish(self, look: Look) -> None:
        with self._changed:
            self.look = look
            self._opened = self._opened or look.problem is None
            self._changed.notify_all()

    def _tell(self) -> None:
        with self._changed:
            told, self._to_tell = self._to_tell, {}
            calls = self._calls
        try:
            self._store.save(told)
        except Exception:
            with self._changed:
                self._to_tell = {**told, **self._to_tell}
            raise
        self._was_told |= told
        self._told = calls
