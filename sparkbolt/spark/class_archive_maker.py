"""Class archive's maker: a process that runs a small topology, so that its JVM can archive the loaded classes.

    python -m sparkbolt.spark.class_archive_maker         make it now if there is none, and print its path
    python -m sparkbolt.spark.class_archive_maker PATH    make it in the background, at the lowest priority

Its topology is not registered, and its files are removed afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from sparkbolt.api.components import BasicBolt, PartitionedSpout, TopologyContext
from sparkbolt.api.interfaces import BasicCollector
from sparkbolt.api.ranges import Range
from sparkbolt.api.topology import TopologyDeclarer
from sparkbolt.api.tuples import Tuple
from sparkbolt.control.control import CONTROL_ENV
from sparkbolt.control.home import HOME_ENV
from sparkbolt.errors import EngineError, SparkboltError
from sparkbolt.spark.class_archive import CACHE_ENV, MAKING, OFF, ClassArchive, is_private
from sparkbolt.spark.jvm import LOG_ENV
from sparkbolt.spark.session import JAVA_OPTIONS, LOCAL_SETTINGS, make_session, own_class_archive
from sparkbolt.spark.starting import start

FINISH_SECS = 600.0
NUMBERS = 100


class _Numbers(PartitionedSpout):
    """The numbers below ``NUMBERS``."""

    outputs = ["number"]

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        begin = progress.get("numbers", 0)
        end = min(NUMBERS, begin + budget)
        return [Range(0, "numbers", begin, end)] if end > begin else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= NUMBERS

    def read(self, range_: Range) -> Iterator[tuple[int, list[Any]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


class _Digits(BasicBolt):
    """Counts numbers by their last digit."""

    outputs = ["digit", "count"]

    def prepare(self, context: TopologyContext) -> None:
        self.counts: dict[int, int] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        digit = tup["number"] % 10
        self.counts[digit] = self.counts.get(digit, 0) + 1
        collector.emit([digit, self.counts[digit]])


def make(archive: ClassArchive, in_background: bool = False) -> None:
    """Run a topology to its end, and then its JVM to its end.

    Args:
        archive: the archive to make.
        in_background: everything else on the machine goes first.

    Raises:
        EngineError: others may write to the folder, Spark cannot run, or its JVM has written nothing, or not in time.
            The JVM has ended then.
    """
    archive.make_folder()
    if not is_private(archive.folder):
        raise EngineError(f"{archive.folder} is not yours alone to write to: chmod go-w it, or set {CACHE_ENV}")
    with tempfile.TemporaryDirectory(prefix=MAKING, dir=archive.folder) as directory:
        os.environ.update({HOME_ENV: f"{directory}/home", CONTROL_ENV: "off", CACHE_ENV: OFF})
        os.environ.pop(LOG_ENV, None)
        written = f"{directory}/classes.jsa"
        options = f"{LOCAL_SETTINGS[JAVA_OPTIONS]} {archive.recording_option(written)}"
        builder = TopologyDeclarer("classes")
        builder.set_spout("numbers", _Numbers())
        builder.set_bolt("digits", _Digits(), parallelism=2).fields_grouping("numbers", ["number"])
        settings = {JAVA_OPTIONS: options, "spark.driver.memory": "1g"}
        session = make_session("classes", "local[2,4]", settings)
        gateway = SparkContext._gateway
        assert gateway is not None
        if in_background:
            _weigh_least(gateway.proc.pid)
        try:
            running = start(builder.build(), spark=session, checkpoint=f"{directory}/checkpoint")
            finished = running.await_finished(timeout_secs=FINISH_SECS)
            running.stop(drain=False)
            if not finished:
                raise EngineError(
                    f"its topology has not finished in {FINISH_SECS:.0f} s: the machine has too much to do"
                )
            session.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(FINISH_SECS)
        except subprocess.TimeoutExpired:
            raise EngineError(f"the JVM has not written its classes in {FINISH_SECS:.0f} s") from None
        finally:
            if gateway.proc.poll() is None:
                gateway.proc.kill()
                gateway.proc.wait()
        if gateway.proc.returncode or not os.path.exists(written):
            raise EngineError(f"the JVM ended with {gateway.proc.returncode} and has written no archive of its classes")
        archive.made(written)


def _weigh_least(pid: int) -> None:
    """Let a process's session go behind all others: Linux weighs sessions first, and by niceness only within them."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text("19")
    except OSError:
        pass  # a kernel that does not weigh sessions


def main(arguments: list[str]) -> int:
    """Make the archive; see the head of this module."""
    archive = ClassArchive(arguments[0]) if arguments else own_class_archive()
    if archive is None:
        print(
            f"no class archive is made: {CACHE_ENV} is {OFF!r}, or SPARK_SUBMIT_OPTS names another one, or there is no "
            "OpenJDK with JAVA_HOME or on the PATH",
            file=sys.stderr,
        )
        return 1
    if arguments:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.nice(19)
        _weigh_least(os.getpid())
    if archive.option() is None:
        print("noting which classes Spark loads (half a minute, once)", file=sys.stderr)
        try:
            make(archive, in_background=bool(arguments))
        except (SparkboltError, OSError) as error:
            print(f"no class archive is made: {error}", file=sys.stderr)
            return 1
    print(archive.path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
