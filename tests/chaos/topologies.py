"""The topologies that are killed, by name: the diamond, every kind of window, and one that reads Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkbolt import Config, Topology
from sparkbolt.spouts import TextSpout
from tests.chaos import diamond, kafka
from tests.windows.shapes import shapes, topology_of

UNIT_MS = 150
"""Windows by time are some of these long: on arrival some end in every micro-batch, others are open over a restart."""
SHAPES = shapes(UNIT_MS)
CONFIG = Config(
    message_timeout_secs=600,
    micro_batch_bytes_max=4_000,
    compact_every=4,
    restarts_max=1000,
    restart_backoff_secs=0.1,
)
"""Small micro-batches, frequent compaction."""


def windows(directory: str) -> Topology:
    """Every kind of window over one file that grows."""
    return topology_of(list(SHAPES.values()), TextSpout(f"{directory}/text", follow=True), directory, CONFIG)


TOPOLOGIES: Mapping[str, Callable[[str], Topology]] = {
    "diamond": diamond.build,
    "windows": windows,
    "kafka": kafka.build,
}
