"""The smallest topology that Storm's users know: every word gets exclamation marks, twice.

python examples/exclamation.py
"""

from __future__ import annotations

import random

from sparkbolt import TopologyBuilder, bolt
from sparkbolt.bolts import PrintBolt
from sparkbolt.spouts import GeneratorSpout

NAMES = ["nathan", "mike", "jackson", "golda", "bertels"]


def names():
    """A hundred names; the same ones each time, since a source that can be read again must be."""
    chosen = random.Random(7)
    for _ in range(100):
        yield [chosen.choice(NAMES)]


@bolt(outputs=["word"])
def exclaim(tup):
    """Add three exclamation marks."""
    yield [tup["word"] + "!!!"]


def build():
    """The topology: word, exclaim1, exclaim2, print."""
    builder = TopologyBuilder("exclamation")
    builder.set_spout("word", GeneratorSpout(names, outputs=["word"], count=100))
    builder.set_bolt("exclaim1", exclaim, parallelism=3).shuffle_grouping("word")
    builder.set_bolt("exclaim2", exclaim, parallelism=2).shuffle_grouping("exclaim1")
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("exclaim2")
    return builder.build()


topology = build()

if __name__ == "__main__":
    topology.run()
