"""Lag: computes how far a spout's stored offsets are behind, whether the topology runs or not. It only reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkbolt.base.intervals import clip, size
from sparkbolt.connectors.kafka.kafka_cluster import Cluster
from sparkbolt.connectors.kafka.kafka_partition import Source
from sparkbolt.connectors.kafka.kafka_spout import KafkaSpout
from sparkbolt.connectors.kafka.offset_stores import Scope, store_of


@dataclass(frozen=True)
class Lag:
    """One kafka_partition: its stored offset, and the offsets that the brokers have."""

    source: str
    stored: int | None
    """The stored offset; None if nothing is stored."""
    first: int | None
    end: int | None
    """``first`` and ``end`` are None if no broker answers for it, because it has no leader, for example."""
    ahead: int
    """How many offsets beyond ``stored`` are finished already."""
    owner: str
    """Id of the owner that stored it; empty if unknown."""

    @property
    def lag(self) -> int | None:
        """How many existing offsets are not finished; None if it is unknown."""
        if self.first is None or self.end is None:
            return None
        begin = self.first if self.stored is None else max(self.stored, self.first)
        return max(0, self.end - begin - self.ahead)


def lags_of(spout: KafkaSpout) -> list[Lag]:
    """Return the lag of each kafka_partition of a spout's topics, from the store and the brokers' present answer.

    Raises:
        BrokersAwayError: No broker answered.
    """
    cluster = Cluster(spout.settings, spout.group, read_committed=spout.read_committed, request_secs=spout.request_secs)
    store = store_of(spout.offsets)
    try:
        store.open(Scope(cluster, spout.group, None if isinstance(spout.topics, re.Pattern) else spout.topics))
        places = cluster.kafka_partitions(spout.topics)
        firsts, ends, stored = cluster.firsts(places), cluster.ends(places), store.load(places)
    finally:
        store.close()
        cluster.close()
    found = []
    for place in places:
        known = stored.get(place)
        end = ends.get(place)
        ahead = size(clip(known.finished, end=end)) if known else 0
        owner = known.owner.id if known and known.owner else ""
        found.append(Lag(str(place), known.offset if known else None, firsts.get(place), end, ahead, owner))
    return found


def missing_topics(spout: KafkaSpout, lags: Sequence[Lag]) -> list[str]:
    """Return a sentence for each topic of a spout that does not exist, or for a pattern that matches none.

    Args:
        spout: The spout.
        lags: All that ``lags_of`` has returned for it.
    """
    where, topics = spout.settings.where, spout.topics
    if isinstance(topics, re.Pattern):
        text = f"no topic at {where} matches {topics.pattern!r} as a whole: is the pattern right?"
        return [] if lags else [text]
    found = {Source.parse(lag.source).topic for lag in lags}
    return [f"topic {name!r} does not exist at {where}: is the name right?" for name in topics if name not in found]
