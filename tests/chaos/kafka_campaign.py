"""A campaign on Kafka: a real broker and the driver that reads it are killed, and what is committed is watched.

Rule 1: kills come by what is processed, evenly over the messages, so that each comes in the midst of them.
Rule 2: several times a second the group's offsets are read from the broker, then the files of the bolt, and compared.
Rule 3: among the kills the driver is also stopped: once it goes on with its checkpoint, once another checkpoint begins
from what the group holds. Neither may repeat anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_dead_letters import read_topic
from sparkbolt.connectors.kafka.offset_stores import unpacked
from tests.chaos.driver import Driver
from tests.chaos.kafka import DEAD, GROUP, KAFKA_PARTITIONS, TOPIC, settings_of
from tests.chaos.kafka_books import KafkaBooks, Offset, Offsets
from tests.chaos.plan import AIMED
from tests.services.kafka import Kafka

POISON = 10
STOPS = ("stop", "anew")
"""Clean stops: the next driver goes on with the checkpoint, or begins another one."""
LOOK_SECS = 0.3
STUCK_SECS = 180.0
"""How long nothing may go on."""
AIM_SECS = 20.0
"""How long to wait for a micro-batch to come to a moment; then the driver is killed where it is."""
AWAY_SECS_MAX = 3.0
"""How long a broker that was killed stays away, at most."""
JVM_SECS = 30.0
REQUEST_SECS = 15.0
TELL_SECS = 10.0
_pause = threading.Event()
"""Never set: something to wait for that does not come."""


class StuckError(Exception):
    """Something that must come did not."""


class FoundError(Exception):
    """Something is wrong: what would come now would only cover what is to be seen."""


@dataclass
class Outcome:
    """What a campaign on Kafka found."""

    seed: int
    messages: int
    driver_kills: int = 0
    broker_kills: int = 0
    clean_stops: int = 0
    starts: int = 0
    processed: int = 0
    repeated: int = 0
    """Messages that were given again though they had succeeded, by micro-batches that a kill undid."""
    written_twice: int = 0
    """Messages that stand more than once in the idempotent output."""
    dead_letters: int = 0
    lag: int = -1
    checks: int = 0
    """How often the committed offsets were read from the broker and compared."""
    offsets: dict[int, int] = field(default_factory=dict)
    produced_s: float = 0.0
    running_s: float = 0.0
    """From the first start until all is processed and committed."""
    elapsed_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The summary as one JSON object."""
        return {"event": "summary", **vars(self)}


class KafkaCampaign:
    """Reads so many messages from a broker of its own, with so many kills."""

    def __init__(
        self,
        seed: int,
        messages: int,
        kills: int,
        broker_kills: int,
        tell: Callable[[dict[str, Any]], None],
        *,
        stops: Sequence[str] = STOPS,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="chaos-kafka-"))
        for folder in ("logs", "tmp"):
            (self.directory / folder).mkdir()
        messages -= messages % KAFKA_PARTITIONS
        self.outcome = Outcome(seed, messages)
        self._tell = tell
        self._chance = random.Random(f"kafka {seed}")
        self._poison = sorted(self._chance.sample(range(messages), POISON))
        self.books = KafkaBooks(self.directory, messages, self._poison)
        self._plan = ["driver"] * kills + ["broker"] * broker_kills + list(stops)
        self._chance.shuffle(self._plan)
        self._broker = Kafka(self.directory / "kafka")
        self._driver: Driver | None = None
        self._standby: Driver | None = None
        self._dead: list[Driver] = []
        self._checkpoint = 0
        self._seen: set[str] = set()
        self._began = self._moved = self._told = time.monotonic()

    def run(self) -> Outcome:
        """All kills, and the last checks; it stops at the first thing that is wrong."""
        try:
            self._standby = self._new_driver()
            self._broker.start()
            self._connect()
            self._produce()
            self.outcome.produced_s = round(time.monotonic() - self._began, 1)
            self._start()
            running = time.monotonic()
            for number, what in enumerate(self._plan, start=1):
                self._until_processed(self.outcome.messages * number // (len(self._plan) + 2))
                self._strike(number, what)
            self._until_done()
            self.outcome.running_s = round(time.monotonic() - running, 1)
        except FoundError:
            pass  # what was found is noted
        except StuckError as error:
            self.outcome.wrong.append(str(error))
        finally:
            self._sum_up()
            self._close()
        return self.outcome

    # Kafka.

    def _connect(self) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient, NewTopic

        client = {"bootstrap.servers": self._broker.address, "log_level": 0}
        admin = AdminClient(client)
        topics = [NewTopic(TOPIC, KAFKA_PARTITIONS, 1), NewTopic(DEAD, 1, 1)]
        for made in admin.create_topics(topics).values():
            made.result()
        self._consumer = Consumer(client | {"group.id": GROUP, "enable.auto.commit": False})

    def _produce(self) -> None:
        """All messages; an idempotent producer keeps their order, so that numbers give offsets."""
        from confluent_kafka import Producer

        options = {"enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        producer = Producer({"bootstrap.servers": self._broker.address, **options})
        poison = set(self._poison)
        for number in range(self.outcome.messages):
            value = f"poison {number}" if number in poison else str(number)
            while True:
                try:
                    producer.produce(TOPIC, value, partition=number % KAFKA_PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if left := producer.flush(REQUEST_SECS):
            raise StuckError(f"the broker did not take {left} of {self.outcome.messages} messages")

    def _offsets(self) -> Offsets:
        """What the group holds, as the broker says."""
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(TOPIC, part) for part in range(KAFKA_PARTITIONS)]
        found = {}
        for answer in self._committed(asked):
            if answer.error is not None:
                raise StuckError(f"the broker does not tell the group's offset of {answer}: {answer.error}")
            if answer.offset >= 0:
                metadata = (answer.metadata or "").rstrip("\0")
                found[answer.partition] = Offset(answer.offset, unpacked(answer.offset, metadata).finished)
        return found

    def _committed(self, asked: Sequence[Any]) -> Sequence[Any]:
        """What the broker answers; one that was started a moment ago may not know yet that it coordinates the group."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + REQUEST_SECS
        while True:
            try:
                answers: Sequence[Any] = self._consumer.committed(asked, timeout=REQUEST_SECS)
                return answers
            except KafkaException:
                if time.monotonic() > until:
                    raise
            _pause.wait(LOOK_SECS)

    def _ends(self) -> dict[int, int]:
        from confluent_kafka import TopicPartition

        parts = range(KAFKA_PARTITIONS)
        return {
            part: self._consumer.get_watermark_offsets(TopicPartition(TOPIC, part), timeout=REQUEST_SECS)[1]
            for part in parts
        }

    def _letters(self) -> list[DeadLetter]:
        return read_topic(ClientSettings(self._broker.address), DEAD).letters

    # Drivers.

    def _new_driver(self) -> Driver:
        return Driver(self.directory, self.outcome.starts, "kafka")

    def _start(self, *, clean: bool = False) -> None:
        """Let the driver that stands by go on, and note what is committed before it does."""
        if self._driver is not None:
            self._driver.close()
            self._dead.append(self._driver)
        offsets = self._check()
        life = self.outcome.starts
        self.books.begins(life, offsets, clean=clean)
        settings = {"brokers": self._broker.address, "messages": self.outcome.messages, "life": life}
        settings_of(self.directory).write_text(json.dumps(settings | {"checkpoint": self._checkpoint}))
        self._driver, self._standby = self._standby or self._new_driver(), None
        self._driver.order("go")
        self.outcome.starts += 1
        self._seen.clear()
        self._moved = time.monotonic()

    def _look(self) -> None:
        """One round: take the driver's events, compare, and wait a moment."""
        before = self.books.processed, self.books.last
        self._take_events()
        self._check()
        now = time.monotonic()
        if (self.books.processed, self.books.last) != before:
            self._moved = now
        elif now - self._moved > STUCK_SECS:
            raise StuckError(f"nothing went on for {STUCK_SECS:.0f} s at {self.books.processed} messages")
        if now - self._told > TELL_SECS:
            self._say("progress")
        _pause.wait(LOOK_SECS)

    def _take_events(self, *, may_end: bool = False) -> None:
        assert self._driver is not None
        while (event := self._driver.next_event(0)) is not None:
            if event["event"] == "ended" and may_end:
                self._seen.add("ended")
                return
            if event["event"] in ("ended", "refused"):
                raise StuckError(f"a driver ended that nobody killed, see {self._driver.log}: {event}")
            self._seen.add(event["event"])
            if event["event"] == "promoted" and self._standby is None:
                self._standby = self._new_driver()  # only now: it shall not take the processor from one that starts

    def _check(self) -> Offsets:
        """Ask the broker, look at the files, and compare."""
        offsets = self._offsets()
        self.books.look()
        letters = self._letters() if self.books.passed(offsets) else []
        self.outcome.wrong += self.books.committed(offsets, letters)
        if self.outcome.wrong:
            raise FoundError
        return offsets

    # What happens.

    def _until_processed(self, count: int) -> None:
        while self.books.processed < count or "promoted" not in self._seen:
            self._look()

    def _until_done(self) -> None:
        """Everything is processed or a dead letter, and the group says so."""
        while sum(at.offset for at in self.books.last.values()) < self.books.messages:
            self._look()

    def _strike(self, number: int, what: str) -> None:
        began, starts = time.monotonic(), self.outcome.starts
        if what == "driver":
            where = self._kill_driver()
        elif what == "broker":
            where = self._kill_broker()
        else:
            where = self._stop(anew=what == "anew")
        if self.outcome.starts > starts:
            processed = self.books.processed
            while "promoted" not in self._seen or self.books.processed == processed:
                self._look()
        self._say(what, number=number, where=where, took_s=round(time.monotonic() - began, 1))

    def _kill_driver(self) -> str:
        """Kill the driver at a random moment, or every third time at one that is aimed."""
        assert self._driver is not None
        self.outcome.driver_kills += 1
        where = "at a random moment"
        if self.outcome.driver_kills % 3 == 2:
            moment = AIMED[(self.outcome.driver_kills // 3 + self.outcome.seed) % len(AIMED)]
            until = time.monotonic() + AIM_SECS
            self._driver.order(f"{moment} driver")
            where = f"when a micro-batch was {moment}"
            while "aimed" not in self._seen and time.monotonic() < until:
                self._take_events(may_end=True)
                _pause.wait(0.02)
        else:
            until = time.monotonic() + self._chance.uniform(0, 2)
            while time.monotonic() < until:
                self._look()
        with contextlib.suppress(ProcessLookupError):  # one that was aimed at has done it itself
            os.kill(self._driver.pid, signal.SIGKILL)
        self._start()
        return where

    def _kill_broker(self) -> str:
        self._broker.kill()
        self.outcome.broker_kills += 1
        away = self._chance.uniform(0.5, AWAY_SECS_MAX)
        _pause.wait(away)
        self._broker.start()
        self._moved = time.monotonic()
        processed = self.books.processed
        while self.books.processed == processed:
            self._look()
        return f"for {away:.1f} s and its start"

    def _stop(self, *, anew: bool) -> str:
        """Stop the driver as an operator does, and start the next one, on the same checkpoint or on another."""
        self._drain()
        if anew:
            (self.directory / "state").rename(self.directory / f"state-{self._checkpoint}")
            self._checkpoint += 1
        self._start(clean=True)
        return "and another checkpoint begins from the group" if anew else "and another driver goes on"

    def _drain(self) -> None:
        assert self._driver is not None
        self._driver.order("drain")
        until = time.monotonic() + STUCK_SECS
        while "ended" not in self._seen:
            if time.monotonic() > until:
                raise StuckError(f"a driver did not stop within {STUCK_SECS:.0f} s")
            self._take_events(may_end=True)
            _pause.wait(0.05)
        self.outcome.clean_stops += 1

    # The end.

    def _say(self, event: str, **more: Any) -> None:
        self._told = time.monotonic()
        self._tell(
            {
                "event": event,
                "at_s": round(self._told - self._began, 1),
                "processed": self.books.processed,
                "committed": sum(at.offset for at in self.books.last.values()),
                "messages": self.books.messages,
                **more,
                "wrong": list(self.outcome.wrong),
            }
        )

    def _sum_up(self) -> None:
        outcome, books = self.outcome, self.books
        outcome.repeated, wrong = books.repeats()
        outcome.wrong += wrong
        if not outcome.wrong:
            letters, offsets, ends = self._letters(), self._offsets(), self._ends()
            books.look()
            outcome.wrong += books.check(offsets, ends, letters)
            outcome.dead_letters = len(letters)
            outcome.offsets = {part: at.offset for part, at in sorted(offsets.items())}
            outcome.lag = sum(ends.values()) - sum(outcome.offsets.values())
        outcome.processed, outcome.checks = books.processed, books.checks
        outcome.written_twice = int((books.counts > 1).sum())
        outcome.elapsed_s = round(time.monotonic() - self._began, 1)

    def _close(self) -> None:
        for driver in (self._driver, self._standby):
            if driver is not None:
                driver.close()
                self._dead.append(driver)
        for driver in self._dead:
            if driver.outlived(JVM_SECS):
                self.outcome.wrong.append(f"JVM {driver.jvm} was still there {JVM_SECS:.0f} s after its driver")
        if hasattr(self, "_consumer"):
            self._consumer.close()
        self._broker.kill()
        if not self.outcome.wrong:
            shutil.rmtree(self.directory, ignore_errors=True)
