"""A standalone cluster: modules travel to its executors; kill -9 of an executor and of a worker, and counts stay exact.

The topology is in a module that nobody but the driver can import, with a helper beside it in a package of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cluster import Cluster, is_alive

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

ROOT = Path(__file__).parents[2]
LINES = 5_000
TOPOLOGY = """
from collections import Counter
from pathlib import Path

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import TextSpout

from helping.words import words_of
import helping.words
import extra_words  # in no folder that the driver looks in by itself: --py-files brings it

HERE = str(Path.cwd())


class Split(BasicBolt):
    outputs = ["word"]

    def execute(self, tup, collector):
        for word in words_of(tup["line"]):
            collector.emit([word])


class Count(BasicBolt):
    outputs = ["word", "count", "module", "helper", "extra"]

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup, collector):
        self.counts[tup["word"]] += 1
        places = [__file__, helping.words.__file__, extra_words.__file__]
        collector.emit([tup["word"], self.counts[tup["word"]], *places])


def topology():
    builder = TopologyBuilder("on-cluster", Config(message_timeout_secs=600, micro_batch_bytes_max=15_000))
    builder.set_spout("lines", TextSpout(HERE + "/text.txt"), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("out", JsonLinesBolt(HERE + "/out"), parallelism=2).shuffle_grouping("count")
    return builder.build()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as a user has it, and one more module elsewhere."""
    (tmp_path / "project" / "helping").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "extra_words.py").write_text("")
    project = tmp_path / "project"
    (project / "counting_words.py").write_text(TOPOLOGY)
    (project / "helping" / "__init__.py").write_text("")
    (project / "helping" / "words.py").write_text("def words_of(line):\n    return line.split()\n")
    words = random.Random(5)
    lines = [" ".join(f"w{words.randrange(200)}" for _ in range(5)) for _ in range(LINES)]
    (project / "text.txt").write_text("\n".join(lines) + "\n")
    return project


def sparkbolt(cluster: Cluster, project: Path, *options: str) -> subprocess.Popen[str]:
    """``sparkbolt run`` on the cluster."""
    run = [sys.executable, "-m", "sparkbolt", "run", "counting_words:topology", "--json", "--master", cluster.master]
    environment = {**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    extra = str(project.parent / "elsewhere" / "extra_words.py")
    return subprocess.Popen([*run, "--py-files", extra, *options], cwd=project, env=environment, **pipes)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_counts_are_exact_after_kill_9_of_an_executor_and_of_a_worker(cluster: Cluster, project: Path) -> None:
    due = {1: "executor", 5: "worker"}
    events = []
    with sparkbolt(cluster, project, "--checkpoint", f"file://{project}/state") as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            events.append(json.loads(line))
            victim = due.pop(events[-1].get("micro_batch_id", -1), None)
            if victim == "executor":
                (pid,) = cluster.executors("worker1")
                kill(pid)
            elif victim == "worker":
                kill(cluster.pids["worker2"])
        _, said = driver.communicate()

    assert driver.returncode == 0, said[-4000:]
    assert not due
    sums = list((project / "state/spark").rglob(".*.crc"))
    assert not sums, "executors write Spark's files as the driver does, flushed; Hadoop's own way has sums beside them"
    assert not is_alive(cluster.pids["worker2"])
    lines = events[-1]["components"]["lines"]
    assert {"emitted": LINES, "acked": LINES, "failed": 0, "pending": 0}.items() <= lines.items()
    found: Counter[tuple[str, int]] = Counter()
    places: dict[str, set[str]] = {"module": set(), "helper": set(), "extra": set()}
    for file in (project / "out").glob("*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            found[row["word"], row["count"]] += 1
            for name in places:
                places[name].add(row[name])
    true = Counter((project / "text.txt").read_text().split())
    assert found == {(word, count): 1 for word, total in true.items() for count in range(1, total + 1)}
    for name, seen in places.items():
        assert all("/sources-" in place and ".zip/" in place for place in seen), (name, seen)
