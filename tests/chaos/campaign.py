"""A campaign of kill -9: lines are fed, processes are killed, and the books are checked.

Rule 1: a kill counts as survived once two micro-batches after it are promoted; counters never go back.
Rule 2: every few kills no more lines are fed until all are acked, and then all files are checked line by line.
Rule 3: a next driver stands by with its Spark session made, so that a dead one is replaced in seconds.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.books import DiamondBooks, Seen
from tests.chaos.driver import Driver
from tests.chaos.plan import Kill, plan

LINES_A_KILL = 400
SETTLE_EVERY = 5
RECOVERY_SECS = 120.0
AIM_SECS = 60.0
JVM_SECS = 30.0
"""How long a JVM may outlive its driver; a start waits shorter than that for its lock."""
_pause = threading.Event()
"""Never set: something to wait for that does not come."""


class StuckError(Exception):
    """Something that must come did not."""


@dataclass
class Outcome:
    """What a campaign found."""

    seed: int
    kills: int = 0
    victims: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    settled: int = 0
    lines: int = 0
    done: str = ""
    failed: int = 0
    elapsed_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def kills_per_minute(self) -> float:
        """How fast it went, with all starts and checks."""
        return 60 * self.kills / self.elapsed_s if self.elapsed_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """The summary as one JSON object."""
        return {"event": "summary", **vars(self), "kills_per_minute": round(self.kills_per_minute, 1)}


class Campaign:
    """Runs a plan of kills on one checkpoint."""

    def __init__(
        self,
        seed: int,
        kills: int,
        tell: Callable[[dict[str, Any]], None],
        minutes: float | None = None,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="chaos-"))
        for folder in ("logs", "tmp"):
            (self.directory / folder).mkdir()
        self.books = DiamondBooks(self.directory, seed)
        self.outcome = Outcome(seed)
        self._kills = kills
        self._tell = tell
        self._began = time.monotonic()
        self._until = None if minutes is None else self._began + 60 * minutes
        self._chance = random.Random(f"victims of {seed}")
        self._dead: list[Driver] = []
        self._standby = Driver(self.directory, 0, "diamond")
        self._driver: Driver | None = None

    def run(self) -> Outcome:
        """All kills, or as many as there is time for, and a last check; it stops at the first thing that is wrong."""
        try:
            self._start()
            for kill in plan(self.outcome.seed, self._kills):
                if self._until is not None and time.monotonic() > self._until:
                    break
                self._kill(kill)
                if kill.number % SETTLE_EVERY == 0:
                    self._settle()
                if self.outcome.wrong:  # what would come now would only cover what is to be seen
                    return self.outcome
            if self.outcome.kills % SETTLE_EVERY:
                self._settle()
        except StuckError as error:
            self.outcome.wrong.append(str(error))
        finally:
            self.outcome.elapsed_s = round(time.monotonic() - self._began, 1)
            self.outcome.lines, self.outcome.done = self.books.lines, self.books.done
            self.outcome.failed = self.books.last.failed
            self._close()
        return self.outcome

    # Drivers.

    def _start(self) -> None:
        """Let the driver that stands by go on with the checkpoint, and have another one stand by."""
        if self._driver is not None:
            self._driver.close()
            self._dead.append(self._driver)
        self._driver, self._standby = self._standby, None  # type: ignore[assignment]
        self._driver.order("go")
        self.outcome.starts += 1

    def _stand_by(self) -> None:
        if self._standby is None:
            self._standby = Driver(self.directory, self.outcome.starts, "diamond")

    def _close(self) -> None:
        for driver in (self._driver, self._standby):
            if driver is not None:
                driver.close()
                self._dead.append(driver)
        for driver in self._dead:
            if driver.outlived(JVM_SECS):
                self.outcome.wrong.append(f"JVM {driver.jvm} was still there {JVM_SECS:.0f} s after its driver")
        if not self.outcome.wrong:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Events.

    def _await(self, what: str, until: float, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Take events until one is found; a driver that has ended is replaced meanwhile."""
        while True:
            assert self._driver is not None
            event = self._driver.next_event(until - time.monotonic())
            if event is None:
                raise StuckError(f"waited in vain for {what}; the last that was seen is {self.books.last}")
            if event["event"] == "promoted":
                seen = Seen(**{name: value for name, value in event.items() if name != "event"})
                self.outcome.wrong += self.books.see(seen)
                self._stand_by()  # only now, so that it does not take the processor from one that starts
            if found(event):
                return event
            if event["event"] == "refused":
                raise StuckError(f"a driver refused to start: {event['why']}")
            if event["event"] == "ended":
                self._stand_by()
                self._start()

    def _promoted(self, beyond: int) -> None:
        until = time.monotonic() + RECOVERY_SECS
        self._await(f"micro-batch {beyond}", until, lambda _: self.books.last.micro_batch_id >= beyond)

    # Kills.

    def _kill(self, kill: Kill) -> None:
        self._promoted(self.books.last.micro_batch_id + 1)
        self.books.feed(LINES_A_KILL)
        starts, began = self.outcome.starts, time.monotonic()
        if kill.moment is not None:
            assert self._driver is not None
            self._driver.order(f"{kill.moment} {kill.victim}")
            hit = self._await(f"a micro-batch to be {kill.moment}", began + AIM_SECS, lambda e: e["event"] == "aimed")
            where = f"micro-batch {hit['micro_batch_id']}"
        else:
            _pause.wait(kill.delay_s)
            where = f"after micro-batch {self._drain()}, pid {self._strike(kill.victim)}"
        struck, before = time.monotonic(), self.books.last
        self._promoted(before.micro_batch_id + 2)
        self.outcome.kills += 1
        self.outcome.victims[kill.victim] += 1
        if kill.moment is not None:
            self.outcome.moments[kill.moment] += 1
        new = self.outcome.starts - starts
        after = self.books.last
        self._tell(
            {
                "event": "kill",
                "number": kill.number,
                "at_s": round(struck - self._began, 1),
                "victim": kill.victim,
                "what": str(kill),
                "where": where,
                "new_drivers": new,
                "survived_s": round(time.monotonic() - struck, 1),
                **asdict(after),
                "fed": self.books.lines,
                "wrong": list(self.outcome.wrong),
            }
        )

    def _strike(self, victim: str) -> int:
        """Kill one of a kind; if there is none at the moment, wait for it."""
        assert self._driver is not None
        until = time.monotonic() + AIM_SECS
        while not (pids := self._driver.victims(victim)):
            if time.monotonic() > until:
                raise StuckError(f"there is no {victim} to be killed")
            _pause.wait(0.02)
        pid = self._chance.choice(pids)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return self._strike(victim)
        return pid

    def _drain(self) -> int:
        """Take the events that have come already; the last promoted micro-batch."""
        assert self._driver is not None
        while (event := self._driver.next_event(0)) is not None and event["event"] != "ended":
            if event["event"] == "promoted":
                seen = Seen(**{name: value for name, value in event.items() if name != "event"})
                self.outcome.wrong += self.books.see(seen)
        return self.books.last.micro_batch_id

    def _settle(self) -> None:
        """Wait until every line is acked, and check the files."""
        until = time.monotonic() + RECOVERY_SECS
        self._await("all lines to be acked", until, lambda _: self.books.settled)
        wrong = self.books.check()
        self.outcome.wrong += wrong
        self.outcome.settled += 1
        self._tell(
            {
                "event": "settled",
                "at_s": round(time.monotonic() - self._began, 1),
                **asdict(self.books.last),
                "fed": self.books.lines,
                "done": self.books.done,
                "wrong": wrong,
            }
        )
