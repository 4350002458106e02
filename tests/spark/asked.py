"""Asks the topology that runs, in this process or in another one, as an operator does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sparkbolt.control.documents import TopologyDocument, TopologyState
from sparkbolt.control.operator import Operator
from sparkbolt.spark.checkpoint_files import open_files
from tests.patience import PATIENCE_SECS


class Asked:
    """The topology of this home that was started last."""

    def __init__(self) -> None:
        self.operator = Operator(open_files=open_files)

    def until(self, condition: Callable[[TopologyDocument], Any]) -> TopologyDocument:
        """What the topology itself answers, as soon as the condition holds."""
        limit, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
        while True:
            entries = self.operator.topologies()
            if entries:
                found = self.operator.document(entries[0]["id"])
                if found["live"] and condition(found):
                    return found
                assert found["entry"]["state"] not in (TopologyState.DEAD, TopologyState.FAILED), found["entry"]
            assert time.monotonic() < limit, entries
            pause.wait(0.1)

    def end(self) -> None:
        """End what a test has left."""
        for entry in self.operator.topologies(ended=False):
            if entry["control"] is not None:
                self.operator.change(entry["id"], "kill", wait_secs=0, by="the test")
