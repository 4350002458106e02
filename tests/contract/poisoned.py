"""Messages that are trouble in one way each, among messages that are none; on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkbolt import BasicBolt, Bolt, Spout, TopologyBuilder
from tests.contract.parts import Messages, note, phase
from tests.unit.poison import EXCEPTIONS, UNSENDABLE, TwoArgumentsError, nested, raised

COUNT = 60
QUEUED = 12


def keep(bolt: Any, tup: Any, thing: Any) -> None:
    bolt.things[tup["n"]] = thing


def put(bolt: Any, tup: Any, thing: Any) -> None:
    bolt.state.put(tup["n"], thing)


def throw(error: BaseException) -> None:
    raise error


TROUBLE: dict[int, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    3: ("fail", lambda bolt, tup, collector: collector.fail(tup, raised(ValueError("no such user")))),
    7: ("fail", lambda bolt, tup, collector: collector.fail(tup, b"no")),
    11: ("emit", lambda bolt, tup, collector: collector.reset_timeout(None)),
    15: ("emit", lambda bolt, tup, collector: TwoArgumentsError(1, "no")),
    19: ("emit", lambda bolt, tup, collector: nested(20_000)),
    23: ("emit", lambda bolt, tup, collector: "x" * 3_000_000),
    27: ("state", lambda bolt, tup, collector: keep(bolt, tup, TwoArgumentsError(1, "no"))),
    31: ("state", lambda bolt, tup, collector: keep(bolt, tup, UNSENDABLE["lock"]())),
    35: ("state", lambda bolt, tup, collector: put(bolt, tup, UNSENDABLE["refusing"]())),
    39: ("exception", lambda bolt, tup, collector: throw(EXCEPTIONS["exit"]())),
    43: ("exception", lambda bolt, tup, collector: throw(EXCEPTIONS["base"]())),
    47: ("exception", lambda bolt, tup, collector: throw(EXCEPTIONS["odd text"]())),
}
"""By message: as what it fails, and what is done; what that gives is emitted."""


class Troubled(Bolt):
    outputs = ["n", "thing"]
    transient = ["state"]

    def prepare(self, context: Any) -> None:
        self.things: dict[int, Any] = {}
        self.total = 0

    def init_state(self, state: Any) -> None:
        self.state = state

    def execute(self, tup: Any, collector: Any) -> None:
        _, do = TROUBLE.get(tup["n"], ("", lambda *_: None))
        thing = do(self, tup, collector)
        self.total += 1
        collector.emit([tup["n"], thing], anchors=tup)
        if tup["n"] not in (3, 7):
            collector.ack(tup)


class Seen(BasicBolt):
    """Notes what came through."""

    stateless = True

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        note(self.directory, "seen", tup["n"])


class Queue(Spout):
    """A queue, some of whose messages cannot be sent to another task; from phase 1 on."""

    outputs = ["n", "thing"]

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.emitted = 0
        self.heard = 0

    def next_tuple(self, collector: Any) -> None:
        if self.emitted == QUEUED or not phase(self.directory):
            return
        n, self.emitted = self.emitted, self.emitted + 1
        thing = {3: UNSENDABLE["lock"], 6: lambda: nested(20_000), 9: UNSENDABLE["refusing"]}.get(n, lambda: None)()
        collector.emit([1000 + n, thing], message_id=n)

    def ack(self, message_id: Any) -> None:
        self.heard += 1
        note(self.directory, "queue", "ack", message_id)

    def fail(self, message_id: Any) -> None:
        self.heard += 1
        note(self.directory, "queue", "fail", message_id)

    @property
    def exhausted(self) -> bool:
        return self.heard == QUEUED


def poisoned(builder: TopologyBuilder, directory: str) -> None:
    """Add messages to a bolt that stumbles over some, half of them in phases 1 and 2; and a queue."""
    limits = [0, COUNT // 2, COUNT // 2]
    builder.set_spout("messages", Messages(directory, COUNT, per_micro_batch=20, limits=limits), max_attempts=1)
    builder.set_spout("poisoned-queue", Queue(directory))
    builder.set_bolt("troubled", Troubled()).shuffle_grouping("messages")
    seen = builder.set_bolt("seen", Seen(directory), parallelism=2).shuffle_grouping("troubled")
    seen.shuffle_grouping("poisoned-queue")
