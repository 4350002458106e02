"""Lag: computes how far a spout's stored offsets are behind, whether the topology runs or not. It only reads."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkbolt.base.intervals import clip, size
from sparkbolt.connectors.kafka.kafka_cluster import Cluster
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
