"""The plan of a campaign: which process is killed next, and when; drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.moments import MOMENTS

RANDOM_VICTIMS = ("worker", "worker", "worker", "worker", "worker", "daemon", "planner")
"""Of ten kills in a row, these and either the driver or its JVM come at a random moment; two more are aimed."""
DELAY_SECS_MAX = 2.0
AIMED = ("staged", "committed", "staging", "planned", "promoted", "compacting")


@dataclass(frozen=True)
class Kill:
    """One kill of the plan.

    ``victim`` is ``worker`` (a Python worker), ``daemon`` (the process that forks them), ``planner``, ``jvm`` or
    ``driver``. Without a ``moment`` it comes ``delay_s`` after lines were fed.
    """

    number: int
    victim: str
    moment: str | None
    delay_s: float

    def __str__(self) -> str:
        when = f"{self.delay_s:.2f} s after lines came" if self.moment is None else f"when one is {self.moment}"
        return f"{self.victim}, {when}"


def plan(seed: int, kills: int) -> Iterator[Kill]:
    """The kills of a campaign: every twenty in a row have every victim, and four of the moments in turn.

    >>> [kill.victim for kill in plan(7, 3)] == [kill.victim for kill in plan(7, 3)]
    True
    """
    assert set(AIMED) == set(MOMENTS)
    chance = random.Random(seed)
    aimed = 0
    deck: list[tuple[str, str | None]] = []
    for number in range(1, kills + 1):
        if not deck:
            deck = [(victim, None) for victim in (*RANDOM_VICTIMS, ("driver", "jvm")[number // 10 % 2])]
            for _ in range(2):
                # In twelve kills that are aimed, each moment meets each of the two victims.
                victim = ("driver", "jvm")[(aimed + aimed // len(AIMED)) % 2]
                deck.append((victim, AIMED[aimed % len(AIMED)]))
                aimed += 1
            chance.shuffle(deck)
        victim, moment = deck.pop()
        yield Kill(number, victim, moment, chance.uniform(0.0, DELAY_SECS_MAX))
