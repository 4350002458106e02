"""A topology that is killed with a dead letter in its hands: a program of its own, started by ``test_dead_letters``.

    python -m tests.spark.dying TEXT LETTERS CHECKPOINT MOMENT

``MOMENT`` is ``written`` (there are letters in the file, the micro-batch that wrote them is staged, Spark has not
committed it: the program kills itself with SIGKILL), or ``never``.
"""

from __future__ import annotations

import os
import signal
import sys

from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.spouts import TextSpout
from tests.chaos.moments import plant


class Picky(BasicBolt):
    """Takes no line with poison in it."""

    def execute(self, tup, collector):
        if "poison" in tup["line"]:
            raise ValueError("no poison")


def build(text: str, letters: str) -> Topology:
    """Lines that are acked, but for some."""
    builder = TopologyBuilder("dying", Config(max_attempts=2, dead_letters=f"file:{letters}"))
    builder.set_spout("lines", TextSpout(text), parallelism=2)
    builder.set_bolt("picky", Picky(), parallelism=2, fuse=False).shuffle_grouping("lines")
    return builder.build()


def main() -> None:
    """Run to the end, or to the kill."""
    text, letters, checkpoint, moment = sys.argv[1:]

    def die(_: int) -> None:
        if moment == "written" and os.path.exists(letters):
            print("killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    plant("staged", die)
    running = build(text, letters).start(checkpoint=checkpoint, master="local[2]")
    running.await_finished()
    counts = running.metrics().of("lines")
    print(f"acked {counts.acked} failed {counts.failed} set aside {counts.set_aside} letters {counts.dead_letters}")
    running.stop()


if __name__ == "__main__":
    main()
