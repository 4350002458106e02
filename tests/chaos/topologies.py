"""The topologies that are killed, by name: the diamond, and one that reads Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkbolt import Topology
from tests.chaos import diamond, kafka
from tests.windows.shapes import shapes

UNIT_MS = 150
"""Windows by time are some of these long: on arrival some end in every micro-batch, others are open over a restart."""
SHAPES = shapes(UNIT_MS)


TOPOLOGIES: Mapping[str, Callable[[str], Topology]] = {
    "diamond": diamond.build,
    "kafka": kafka.build,
}
