"""Stopped: what an operator changes of a topology that does not run, in its checkpoint, for its next start."""

from __future__ import annotations

import time

from sparkbolt.base.file_access import Files
from sparkbolt.control.books import EVENTS_FILE, EventBook
from sparkbolt.control.description import Description
from sparkbolt.control.documents import Answer, done
from sparkbolt.control.intent import CONTROL_FILE, Intent, Scale


class StoppedTopology:
    """A topology that does not run; verbs with ``when_stopped`` get it instead of ``Steering``."""

    def __init__(self, files: Files, where: str) -> None:
        """Read the requests of operators; ``files`` are the checkpoint's, and may be changed."""
        self._files = files
        self.intent = Intent.loads(files.read(CONTROL_FILE), where)
        self.components = [one["id"] for one in Description.read(files).components if one["kind"] != "system"]
        """The ids of the last start."""

    def rebalance(self, scale: Scale, by: str) -> Answer:
        """Remember other numbers of tasks and partitions, or take back a rebalance with which nothing is committed."""
        intent = self.intent.rebalance(scale)
        if intent == self.intent:
            return done(f"no change is needed: the topology starts {self._words(scale)}")
        taken_back = self.intent.before is not None and intent.before is None
        what = "the rebalance is taken back: the topology starts" if taken_back else "the topology starts"
        text = f"{what} {self._words(scale)}"
        self._files.write(CONTROL_FILE, intent.dumps())
        self.intent = intent
        events = EventBook(self._files.read(EVENTS_FILE))
        events.add("rebalanced", text, by, time.time_ns() // 1_000_000)
        self._files.write(EVENTS_FILE, events.dumps())
        return done(f"{text}; `sparkbolt check` with its code and this checkpoint shows what moves")

    @staticmethod
    def _words(scale: Scale) -> str:
        tasks = ", ".join(f"{name}={number}" for name, number in sorted(scale.executors.items()))
        partitions = scale.spark_partitions
        parts = [f"with {tasks}"] * bool(tasks) + [f"in {partitions} partitions of Spark"] * (partitions is not None)
        return " ".join(parts) or "with the numbers of its code"
