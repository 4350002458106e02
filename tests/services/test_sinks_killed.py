"""A transactional topology with PostgreSQL and Kafka behind it: each row and message is there once, whatever dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECS, TEST_SECS
from tests.services import Kafka, PostgreSQL
from tests.services.sinks_killed import BAD, FAILS_ALWAYS
from tests.services.test_kafka_commit import create, read

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(TEST_SECS)]

NUMBERS = 1200
MOMENTS = ("SqlBolt-before:0", "SqlBolt-after:1", "KafkaBolt-before:1", "KafkaBolt-after:2", "SparkSink-after:2")


def start(database: PostgreSQL, broker: Kafka, directory: Path, moment: str) -> subprocess.Popen[str]:
    arguments = [database.address, broker.address, str(directory / "text.txt"), str(directory), moment]
    environment = {**os.environ, "SPARKBOLT_HOME": str(directory / "home")}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.services.sinks_killed", *arguments],
        cwd=Path(__file__).parents[2], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], moment: str) -> tuple[str, str]:
    out, errors = process.communicate(timeout=PATIENCE_SECS)
    assert ("killed" in out) == ("-" in moment), f"{moment}: {out[-2000:]}{errors[-6000:]}"
    return out, errors


@pytest.mark.campaign
def test_each_row_and_message_is_written_once_although_the_driver_dies_and_servers_are_unavailable(
    tmp_path: Path,
) -> None:
    (tmp_path / "text.txt").write_text("".join(f"{number}\n" for number in range(1, NUMBERS + 1)))
    right = [number for number in range(1, NUMBERS + 1) if number % FAILS_ALWAYS and number != BAD]
    with PostgreSQL(tmp_path / "postgresql") as database, Kafka(tmp_path / "kafka") as broker:
        database.ask(f"CREATE TABLE numbers (n bigint CHECK (n <> {BAD}))")
        database.ask("CREATE TABLE appended (n bigint)")
        database.ask("CREATE TABLE notes (sink varchar(80), txid bigint, PRIMARY KEY (sink, txid))")
        create(broker.address, "numbers", 3)
        for moment in MOMENTS:
            ended(start(database, broker, tmp_path, moment), moment)
        process = start(database, broker, tmp_path, "wait:3")
        limit = time.monotonic() + PATIENCE_SECS
        while not (tmp_path / "waits").exists():
            assert process.poll() is None, ended(process, "wait:3")
            assert time.monotonic() < limit
            threading.Event().wait(0.05)
        database.kill()
        broker.kill()
        (tmp_path / "go").touch()
        threading.Event().wait(2)
        database.start()
        broker.start()
        out, errors = ended(process, "wait:3")
        assert f"acked {len(right)} given up {NUMBERS - len(right)}" in out
        assert " waits: " in errors, "the log says that a commit waits"
        assert Counter(n for (n,) in database.ask("SELECT n FROM numbers")) == Counter(right)
        assert Counter(n for (n,) in database.ask("SELECT n FROM appended")) == Counter(right)
        sums = {digit: sum(n for n in right if n % 10 == digit) for digit in range(10)}
        assert dict(database.ask("SELECT digit, total FROM sums")) == sums
        assert Counter(int(value) for value, _ in read(broker.address, "numbers")) == Counter(right)
        assert not list((tmp_path / "checkpoint/commits").iterdir())
