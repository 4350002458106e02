"""Transfers from Kafka are in state, in PostgreSQL and in a Delta table exactly once, whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.patience import PATIENCE_SECS, TEST_SECS
from tests.services import Kafka, PostgreSQL
from tests.services.bank import TOPIC, fails_always

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(TEST_SECS)]

ACCOUNTS = 500
KAFKA_PARTITIONS = 4
VICTIMS = ["driver", "worker", "broker", "database"]
AWAY_SECS = 1.0
STUCK_SECS = 300.0


def is_worker(process: psutil.Process) -> bool:
    """Whether a process runs tasks; one that has ended meanwhile does not."""
    try:
        return "sparkbolt.spark.daemon" in (process.as_dict(["cmdline"])["cmdline"] or ())
    except psutil.NoSuchProcess:
        return False


class Bank:
    """The transfers, the servers, and the program that is killed."""

    def __init__(self, directory: Path, transfers: int, micro_batches: int) -> None:
        self.directory = directory
        self.at_once = transfers // KAFKA_PARTITIONS // micro_batches
        chance = random.Random(transfers)
        self.transfers = [
            (f"a{chance.randrange(ACCOUNTS)}", f"b{chance.randrange(ACCOUNTS)}", chance.randrange(1, 1000))
            for _ in range(transfers)
        ]
        self.broker, self.database = Kafka(directory / "kafka"), PostgreSQL(directory / "postgresql")
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Bank:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        self.broker.__enter__()
        self.database.__enter__()
        self.database.ask("CREATE TABLE balances (account text PRIMARY KEY, balance bigint, bookings bigint)")
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        admin.create_topics([NewTopic(TOPIC, KAFKA_PARTITIONS, 1)])[TOPIC].result()
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 50, "enable.idempotence": True})
        for number, (source, target, amount) in enumerate(self.transfers):
            while True:
                try:
                    producer.produce(TOPIC, f"{number} {source} {target} {amount}", partition=number % KAFKA_PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_driver()
        self.database.__exit__(None, None, None)
        self.broker.__exit__(None, None, None)

    def start(self, *, transactional: bool = True) -> None:
        arguments = [
            self.broker.address,
            self.database.address,
            str(self.directory),
            str(self.at_once),
            str(transactional),
        ]
        log = (self.directory / "log.txt").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.services.bank", *arguments],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "SPARKBOLT_HOME": str(self.directory / "home")},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()

    def kill_driver(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def kill(self, victim: str) -> None:
        """Kill it, and let it come again where nobody else does that."""
        assert self.process is not None
        if victim == "driver":
            self.kill_driver()
            self.start()
        elif victim == "worker":
            workers = [one for one in psutil.Process(self.process.pid).children(recursive=True) if is_worker(one)]
            if workers:
                workers[-1].send_signal(signal.SIGKILL)
        else:
            server: Any = self.broker if victim == "broker" else self.database
            server.kill()
            threading.Event().wait(AWAY_SECS)
            server.start()

    def booked(self) -> int:
        """How many bookings PostgreSQL has."""
        return int(self.database.ask("SELECT coalesce(sum(bookings), 0) FROM balances")[0][0])

    def await_booked(self, count: int) -> bool:
        """Wait until PostgreSQL has so many bookings; False if the program has ended before."""
        assert self.process is not None
        before, since = -1, time.monotonic()
        while (now := self.booked()) < count:
            if self.process.poll() is not None:
                return False
            if now != before:
                before, since = now, time.monotonic()
            assert time.monotonic() - since < STUCK_SECS, (self.directory / "log.txt").read_text()[-5000:]
            threading.Event().wait(0.2)
        return True

    def end(self) -> dict[str, int]:
        """What the program says at its end."""
        assert self.process is not None
        out, _ = self.process.communicate(timeout=PATIENCE_SECS)
        assert self.process.returncode == 0, (self.directory / "log.txt").read_text()[-5000:]
        self.process = None
        found: dict[str, int] = json.loads(out.splitlines()[-1])
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The bookings in the Delta table."""
        from deltalake import DeltaTable

        rows: list[dict[str, Any]] = DeltaTable(str(self.directory / "bookings")).to_pyarrow_table().to_pylist()
        return rows

    def letters(self) -> set[int]:
        """The numbers of the transfers among the dead letters."""
        lines = [
            json.loads(line)
            for file in (self.directory / "checkpoint/dead-letters").glob("*.jsonl")
            for line in file.read_text().splitlines()
        ]
        return {int(line["tuples"][0][0].split()[0]) for line in lines}


def expected(bank: Bank) -> dict[str, int]:
    """The balances that follow from the transfers that can succeed."""
    balances: dict[str, int] = defaultdict(int)
    for number, (source, target, amount) in enumerate(bank.transfers):
        if not fails_always(number):
            balances[source] -= amount
            balances[target] += amount
    return dict(balances)


def mistakes(rows: list[dict[str, Any]]) -> list[str]:
    """What the balances in state were, by what they were booked with: each follows from the one before."""
    histories: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        histories[row["account"]].append((abs(row["balance"]), abs(row["change"])))
    found = []
    for account, history in histories.items():
        before = 0
        for after, change in sorted(history):
            if after != before + change:
                found.append(f"{account}: {before} + {change} is not {after}")
            before = after
    return found


def check(bank: Bank, said: dict[str, int]) -> None:
    """All three agree with the transfers, to the last one."""
    never = {number for number in range(len(bank.transfers)) if fails_always(number)}
    assert said["open"] == 0
    assert said["acked"] == len(bank.transfers) - len(never)
    assert bank.letters() == never
    rows = bank.rows()
    assert len(rows) == 2 * said["acked"]
    assert {row["number"] for row in rows} == set(range(len(bank.transfers))) - never
    assert len({(row["number"], row["side"]) for row in rows}) == len(rows)
    assert mistakes(rows) == []
    balances = dict(bank.database.ask("SELECT account, balance FROM balances"))
    assert balances == expected(bank)
    assert bank.booked() == len(rows)


@pytest.mark.campaign
def test_without_transactions_what_failed_is_in_the_balances(tmp_path: Path) -> None:
    with Bank(tmp_path, 5_000, 2) as bank:
        bank.start(transactional=False)
        said = bank.end()
        assert said["acked"] == sum(not fails_always(number) for number in range(5_000))
        assert dict(bank.database.ask("SELECT account, balance FROM balances")) != expected(bank)
        rows = bank.rows()
        assert len(rows) > len({(row["number"], row["side"]) for row in rows})


@pytest.mark.campaign
@pytest.mark.timeout(3 * TEST_SECS)
def test_many_transfers_are_exact_over_many_kills(tmp_path: Path) -> None:
    """With ``SPARKBOLT_TEST_TRANSFERS=1000000`` and ``SPARKBOLT_TEST_KILLS=20`` it is as large as one likes."""
    transfers = int(os.environ.get("SPARKBOLT_TEST_TRANSFERS", "100000"))
    kills = int(os.environ.get("SPARKBOLT_TEST_KILLS", "8"))
    victims = [VICTIMS[place % len(VICTIMS)] for place in range(kills)]
    total = 2 * transfers
    with Bank(tmp_path, transfers, 2 * kills) as bank:
        bank.start()
        for place, victim in enumerate(victims, start=1):
            assert bank.await_booked(place * total * 9 // (10 * (kills + 1))), f"it ended before {victim} was killed"
            bank.kill(victim)
        check(bank, bank.end())
