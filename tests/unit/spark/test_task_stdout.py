"""What tasks print comes to the driver whole; what Spark writes stays in a log of bounded size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sparkbolt.control.log_reading import last_lines
from sparkbolt.control.logs import TopologyLog
from sparkbolt.spark.jvm import bound_file
from sparkbolt.spark.task_stdout import TASK_LOG_ENV, TASK_STDOUT_ENV, StdoutReader

ROOT = Path(__file__).parents[3]
WORKER = """
import sys
from sparkbolt.spark.task_stdout import stdout_to_driver
stdout_to_driver()
for number in range(200):
    print(sys.argv[1] * 9000, number)
"""


def test_long_lines_of_several_workers_arrive_whole_and_in_order(tmp_path: Path) -> None:
    shown: list[str] = []
    reader = StdoutReader(str(tmp_path / "prints"), shown.append)
    environment = {**os.environ, TASK_STDOUT_ENV: reader.path, "PYTHONPATH": str(ROOT)}
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, name], env=environment) for name in "ab"]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert reader.catch_up(30)
    lines = "".join(shown).splitlines()
    for name in "ab":
        expected = [f"{name * 9000} {number}" for number in range(200)]
        assert [line for line in lines if line.startswith(name)] == expected
    assert len(lines) == 400


def test_a_log_that_grows_too_large_is_moved_and_its_writers_continue(tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    with path.open("ab", buffering=0) as log:
        log.write(b"x" * 100)
        bound_file(str(path), bytes_max=100)
        assert path.read_bytes() == b"x" * 100
        log.write(b"y")
        bound_file(str(path), bytes_max=100)
        log.write(b"z")
    assert path.read_bytes() == b"z"
    assert (tmp_path / "spark.log.1").read_bytes() == b"x" * 100 + b"y"


TASK = """
import logging
from sparkbolt.spark.task_stdout import stdout_to_driver
stdout_to_driver()
print("of nobody")
stdout_to_driver(lambda: {"component": "count", "task": 1, "micro_batch": 7})
print("two\\nlines")
print("a part", end="")
print(" and its rest")
logging.getLogger("mine").warning("slow: %s", 3)
logging.getLogger("mine").info("not this")
logging.getLogger("sparkbolt").error("of the engine", extra={"component": "split", "task": 0})
"""


def run_task(path: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, TASK_STDOUT_ENV: path, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", TASK], env=given, capture_output=True, text=True, timeout=60)


def test_a_log_contains_the_prints_and_log_lines_of_tasks_with_the_task(tmp_path: Path) -> None:
    shown: list[str] = []
    reader = StdoutReader(str(tmp_path / "prints"), shown.append)
    with TopologyLog(tmp_path, "words"):
        task = run_task(reader.path, tmp_path, **{TASK_LOG_ENV: "1"})
        assert reader.catch_up(30)
    assert "".join(shown) == "of nobody\ntwo\nlines\na part and its rest\n"
    assert task.stderr == "slow: 3\nof the engine\n"
    assert [
        (line["level"], line["component"], line["task"], line["micro_batch"], line["text"])
        for line in last_lines(str(tmp_path), "words")
    ] == [
        ("PRINT", None, None, None, "of nobody"),
        ("PRINT", "count", 1, 7, "two"),
        ("PRINT", "count", 1, 7, "lines"),
        ("PRINT", "count", 1, 7, "a part and its rest"),
        ("WARNING", "count", 1, 7, "mine: slow: 3"),
        ("ERROR", "split", 0, 7, "of the engine"),
    ]


def test_what_a_task_prints_is_never_taken_for_a_mark(tmp_path: Path) -> None:
    shown: list[str] = []
    reader = StdoutReader(str(tmp_path / "prints"), shown.append)
    with open(reader.path, "w") as pipe:
        pipe.write('\x1e{broken\n\x1e["list"]\n')
    assert reader.catch_up(30)
    assert "".join(shown) == '\x1e{broken\n\x1e["list"]\n'
