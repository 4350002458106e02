"""Sessions of a click stream: what each user looked at, until there was no click for half an hour.

    python examples/sessions.py
    sparkbolt run examples.sessions:topology

Each user has windows of their own; a session fires when the clicks of all users have gone half an hour beyond it.
"""

from __future__ import annotations

import random

from sparkbolt import Session, TopologyBuilder, WindowedBolt, minutes
from sparkbolt.bolts import PrintBolt
from sparkbolt.spouts import GeneratorSpout

PAGES = ("home", "search", "shoes", "hats", "cart", "pay")
START_MS = 1_767_225_600_000
CLICKS = 5000
MINUTE_MS = 60_000


def clicks():
    """A click of one of fifty users, a few seconds after the one before."""
    chance = random.Random(11)
    at = START_MS
    for _ in range(CLICKS):
        at += chance.randrange(2 * MINUTE_MS)
        yield [f"user-{chance.randrange(50):02}", at, chance.choice(PAGES)]


class Sessions(WindowedBolt):
    """A session in a line: who, how long, and the way through the pages."""

    outputs = ["user", "minutes", "clicks", "bought"]
    window = Session(gap=minutes(30), timestamp="at", key="user")

    def execute(self, window, collector):
        pages = window.column("page").to_pylist()
        lasted = (window.end_ms - window.start_ms) / MINUTE_MS - 30
        collector.emit([window.key, round(lasted, 1), len(pages), "pay" in pages])


def build():
    """The topology: clicks, sessions, print."""
    builder = TopologyBuilder("sessions")
    builder.set_spout("clicks", GeneratorSpout(clicks, outputs=["user", "at", "page"], count=CLICKS))
    builder.set_bolt("sessions", Sessions(), parallelism=2).fields_grouping("clicks", ["user"])
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("sessions")
    return builder.build()


topology = build()

if __name__ == "__main__":
    topology.run()
