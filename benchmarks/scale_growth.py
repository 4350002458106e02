"""How a cost grows with a size: measured at several sizes, and the slope of its logarithm.

Does twice as much cost twice as much?

Rule 1: a growth is the slope of log cost against log size over the last decade of sizes; 1 is linear, 2 is quadratic.
Rule 2: a cost is the processor time of this process, where Spark has no part in it: others may use the machine, too.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.figures import Aim, Figure, scaled

LINEAR = 1.1
"""What a growth should be at most; a tenth is for caches that become too small, and for noise."""
FLAT = 0.1
"""The same for a cost that should not depend on the size."""
DECADE = 10.0
LEAST_S = 0.05
"""A short call is repeated until this much processor time is spent."""


class Cost(NamedTuple):
    """A cost at one size, of everything together."""

    value: float
    unit: str = "s"
    growth: float = LINEAR
    """The aim for its growth."""


@dataclass(frozen=True)
class Axis:
    """What grows, to which sizes, and what it costs."""

    name: str
    sizes: Sequence[int]
    costs: Callable[[int], Mapping[str, Cost]]
    """The costs at a size, by name."""
    rounds: int = 3
    """How often all sizes take turns, at most."""

    def figures(self, rounds: int) -> Iterator[Figure]:
        """Measure: one figure for each cost and size, and the growth of each cost."""
        turns = [self._turn() for _ in range(min(rounds, self.rounds))]
        for name, first in turns[0][self.sizes[0]].items():
            series = {size: tuple(turn[size][name].value for turn in turns) for size in self.sizes}
            for size, samples in series.items():
                figure = Figure("scale", f"{name}, {size:,} {self.name}", samples, first.unit)
                yield Figure(*_fields(figure), notes={"for_each": each(figure.value / size, first.unit)})
            least = growth({size: min(samples) for size, samples in series.items()})  # noise only adds
            yield Figure("scale", f"{name}, growth by {self.name}", (least,), "", Aim("at most", first.growth))

    def _turn(self) -> dict[int, Mapping[str, Cost]]:
        found = {}
        for size in self.sizes:
            gc.collect()
            found[size] = self.costs(size)
        return found


def _fields(figure: Figure) -> tuple[str, str, tuple[float, ...], str]:
    return figure.benchmark, figure.name, figure.samples, figure.unit


def each(value: float, unit: str) -> str:
    """What one of many costs, in a unit that suits it.

    >>> each(0.0000021, "s"), each(0.25, "s"), each(23.6, "bytes")
    ('2.1 us', '250 ms', '23.6 bytes')
    """
    if unit == "s":
        return scaled(value * 1e6, "us") if value < 1e-3 else scaled(value * 1e3, "ms")
    return scaled(value, unit)


def growth(costs: Mapping[int, float]) -> float:
    """The slope of log cost against log size over the last decade of sizes, by least squares.

    >>> growth({1: 9.0, 10: 5.0, 100: 50.0}), growth({10: 1.0, 20: 4.0, 40: 16.0})
    (1.0, 2.0)
    """
    last = max(costs)
    points = [(math.log(size), math.log(cost)) for size, cost in costs.items() if size * DECADE >= last]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return round(slope, 6)


def spent_s(call: Callable[[], object]) -> float:
    """The processor time of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def repeated_s(call: Callable[[], object]) -> float:
    """The processor time of a short call that may be repeated: the least of some means."""
    call()
    times = 1
    while _many_s(call, times) < LEAST_S / 4:
        times *= 4
    return min(_many_s(call, times) for _ in range(4)) / times


def _many_s(call: Callable[[], object], times: int) -> float:
    return spent_s(lambda: [call() for _ in range(times)])
