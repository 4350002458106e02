"""A topology that writes lines to a database and is killed: a program of its own, started by ``test_sql_killed``.

    python -m tests.services.sql_lines URL TEXT DIRECTORY MOMENT

``MOMENT`` is where the driver kills itself: ``staged:3`` (its rows are committed, Spark has not committed),
``committed:3``, or ``never``. Each worker process that meets the line ``deadly`` for the first time dies after
``flush`` has committed, so the micro-batch of that task runs again in another process.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sparkbolt import Config, Topology, TopologyBuilder
from sparkbolt.bolts import SqlBolt
from sparkbolt.spouts import TextSpout
from tests.chaos.moments import plant


class Dying(SqlBolt):
    """Kills its worker once, when its rows are committed and nobody knows of it."""

    died: Path

    def execute(self, tup: Any, collector: Any) -> None:
        self.deadly = getattr(self, "deadly", False) or tup["line"] == "deadly"
        super().execute(tup, collector)

    def flush(self) -> None:
        super().flush()
        if self.deadly and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def build(url: str, text: str, directory: Path) -> Topology:
    config = Config(message_timeout_secs=600, micro_batch_bytes_max=20_000, max_attempts=2)
    builder = TopologyBuilder("sql-lines", config)
    builder.set_spout("lines", TextSpout(text), parallelism=2)
    rows = Dying(url, "lines", columns=["offset", "line"])
    rows.died = directory / "died"
    builder.set_bolt("rows", rows, parallelism=2).shuffle_grouping("lines")
    lengths = SqlBolt(
        url, "lengths", "merge", keys=["size"], combine={"n": "add"},
        columns={"size": lambda tup: len(tup["line"]), "n": lambda tup: 1}, create=True,
    )  # fmt: skip
    builder.set_bolt("lengths", lengths, parallelism=2).shuffle_grouping("lines")
    return builder.build()


def main() -> None:
    url, text, directory, moment = sys.argv[1:]
    if moment != "never":
        where, _, number = moment.partition(":")

        def act(reached: int) -> None:
            if reached >= int(number):
                print("killed", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        plant(where, act)
    topology = build(url, text, Path(directory))
    running = topology.start(checkpoint=f"{directory}/checkpoint", master="local[2,4]")
    running.await_finished()
    lines = running.metrics().components["lines"]
    print(f"lines {lines.emitted} acked {lines.acked} failed {lines.failed}", flush=True)
    running.stop()


if __name__ == "__main__":
    main()
