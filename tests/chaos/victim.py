"""The program that is killed: ``python -m tests.chaos.victim DIRECTORY TOPOLOGY``, started by the campaign.

It makes a Spark session, waits for ``go`` on its standard input, and runs the topology with the checkpoint of the
directory. A query that fails is started again in the same process. ``MOMENT VICTIM`` on the standard input, such as
``staged jvm``, has the victim killed when a micro-batch next comes to that moment; ``stop`` ends it, and ``drain`` ends
it when no tree is open. Each thing that happens is a JSON object on a line of its standard output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from pyspark import SparkContext

from sparkbolt.spark.session import jvm_lives, make_session
from tests.chaos.moments import MOMENTS, plant
from tests.chaos.topologies import TOPOLOGIES

POLL_SECS = 0.1
DRAIN_SECS = 60.0


def say(**event: Any) -> None:
    """Tell the campaign."""
    print(json.dumps(event), flush=True)


class Orders:
    """What the campaign has asked for."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.stop = threading.Event()
        self.drain = False
        self._aimed: tuple[str, str] | None = None

    def listen(self) -> None:
        """Read the standard input to its end, which is an order to stop."""
        for line in sys.stdin:
            words = line.split()
            if words == ["go"]:
                self.go.set()
            elif words == ["stop"]:
                break
            elif words == ["drain"]:
                self.drain = True
                break
            else:
                self._aimed = (words[0], words[1])
        self.stop.set()
        self.go.set()

    def reached(self, moment: str, number: int) -> None:
        """A micro-batch has come to a moment."""
        if self._aimed is None or self._aimed[0] != moment:
            return
        victim, self._aimed = self._aimed[1], None
        say(event="aimed", moment=moment, victim=victim, micro_batch_id=number)
        gateway = SparkContext._gateway
        assert gateway is not None
        os.kill(os.getpid() if victim == "driver" else gateway.proc.pid, signal.SIGKILL)


def tell(report: Any) -> None:
    """One promotion, in numbers."""
    lines, metrics = report.metrics.components["lines"], report.metrics
    numbers = {"emitted": lines.emitted, "acked": lines.acked, "failed": lines.failed, "open": metrics.open_trees}
    say(event="promoted", micro_batch_id=report.promotion.micro_batch_id, **numbers)


def run(directory: str, topology: str, session: Any, orders: Orders) -> None:
    """Run the topology once, until it fails or is to stop."""
    running = TOPOLOGIES[topology](directory).start(checkpoint=f"{directory}/state", spark=session)
    running.on_micro_batch(tell)
    say(event="started")
    try:
        while not orders.stop.wait(POLL_SECS):
            if running.failure is not None or not running.is_running:
                say(event="failed", why=running.failure)
                return
        if orders.drain:
            say(event="drained", whole=running.stop(timeout_secs=DRAIN_SECS))
    finally:
        running.close()


def main(directory: str, topology: str) -> int:
    """Run until told to stop; 3 if the JVM is gone, without which nothing can be started again."""
    orders = Orders()
    for moment in MOMENTS:
        plant(moment, lambda number, moment=moment: orders.reached(moment, number))
    threading.Thread(target=orders.listen, daemon=True).start()
    session = make_session("chaos", "local[2]")
    gateway = SparkContext._gateway
    assert gateway is not None
    say(event="ready", jvm=gateway.proc.pid)
    orders.go.wait()
    while not orders.stop.is_set():
        try:
            run(directory, topology, session, orders)
        except Exception as error:
            if jvm_lives(session):
                say(event="refused", why=f"{type(error).__name__}: {error}")
                raise
        if not jvm_lives(session):
            os._exit(3)  # what is left of PySpark would wait for the JVM
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
