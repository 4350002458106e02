"""PyFlink's word count, two tasks a step: `flink_words.py DIRECTORY`. Run by ``peers`` where PyFlink is installed.

Split is a Python table function; the counting is Flink's own SQL, with a checkpoint each second. With a Python function
that keeps the counts in keyed state it took more than ten times as long in a trial.
Prints ``mark SECONDS WORDS`` for each block of words that one of the splitting processes has passed on, and
at the end ``ended WORDS``.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import TableFunction, udtf

BLOCK = 5_000
TASKS = 2


class Split(TableFunction):
    """The words of a line; appends to a file when so many words more have been split off."""

    def __init__(self, marks):
        self.marks = marks

    def open(self, context):
        self.passed_on = 0
        self.file = os.open(self.marks, os.O_WRONLY | os.O_APPEND)

    def eval(self, line):
        words = line.split()
        self.passed_on += len(words)
        if self.passed_on >= BLOCK:
            self.mark()
        yield from words

    def mark(self):
        os.write(self.file, f"{time.time()} {self.passed_on}\n".encode())
        self.passed_on = 0

    def close(self):
        self.mark()
        os.close(self.file)


def environment(home):
    settings = {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "parallelism.default": str(TASKS),
        "taskmanager.memory.managed.size": "512m",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{home}/checkpoints",
        "execution.checkpointing.interval": "1000ms",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "100000",
    }
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )


home = tempfile.mkdtemp(prefix="flink-words-")
marks = Path(home) / "marks"
marks.touch()
tables = environment(home)
tables.create_temporary_function("words_of", udtf(Split(str(marks)), result_types=[DataTypes.STRING()]))
tables.execute_sql(
    "CREATE TABLE texts (line STRING) "
    f"WITH ('connector' = 'filesystem', 'path' = 'file://{sys.argv[1]}', 'format' = 'raw')"
)
tables.execute_sql("CREATE TABLE counts (word STRING, n BIGINT) WITH ('connector' = 'blackhole')")
tables.execute_sql(
    "INSERT INTO counts SELECT word, COUNT(*) FROM texts, LATERAL TABLE(words_of(line)) AS split(word) GROUP BY word"
).wait()
done = 0
for at, words in sorted(tuple(map(float, line.split())) for line in marks.read_text().splitlines()):
    done += int(words)
    print("mark", at, done)
print("ended", done)
