"""A moving average: the mean of the last 20 seconds of each sensor, every 10 seconds, in event time.

    python examples/moving_average.py
    sparkbolt run examples.moving_average:topology

Readings come up to five seconds out of order; what comes later than that is printed as late.
"""

from __future__ import annotations

import random

import pyarrow.compute as pc

from sparkbolt import Sliding, TopologyBuilder, WindowedBolt, bolt, seconds
from sparkbolt.bolts import PrintBolt
from sparkbolt.spouts import GeneratorSpout

SENSORS = ("cellar", "roof", "garden")
START_MS = 1_767_225_600_000
READINGS = 3000


def readings():
    """A reading of some sensor every 100 ms, out of order; one in a thousand comes a minute late."""
    chance = random.Random(7)
    for number in range(READINGS):
        delay_ms = 60_000 if chance.random() < 0.001 else chance.randrange(4000)
        at = START_MS + 100 * number - delay_ms
        yield [chance.choice(SENSORS), at, round(20 + 5 * chance.random(), 2)]


class MovingAverage(WindowedBolt):
    """The mean of a window's values."""

    outputs = ["sensor", "average", "end"]
    window = Sliding(seconds=20, every=seconds(10), timestamp="at", lag=seconds(5), late="late", key="sensor")

    def execute(self, window, collector):
        values = window.column("value")
        collector.emit([window.key, round(pc.mean(values).as_py(), 2), window.end_ms])


@bolt(outputs=["late"])
def tell_late(tup):
    """What came too late for every window."""
    reading = tup["late_tuple"]
    yield [f"late: {reading['sensor']} at {reading['at']}"]


def build():
    """The topology: readings, average, print."""
    builder = TopologyBuilder("moving-average")
    builder.set_spout("readings", GeneratorSpout(readings, outputs=["sensor", "at", "value"], count=READINGS))
    builder.set_bolt("average", MovingAverage(), parallelism=2).fields_grouping("readings", ["sensor"])
    builder.set_bolt("late", tell_late).shuffle_grouping("average", "late")
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("average").shuffle_grouping("late")
    return builder.build()


topology = build()

if __name__ == "__main__":
    topology.run()
