"""What both pages show: a table of 200 components and a chart of an hour, other numbers at each moment."""

from __future__ import annotations

import math

COMPONENTS = 200
POINTS = 360
NAMES = ("component", "tasks", "emitted", "executed", "acked", "failed", "latency", "capacity")


def rows(moment: int) -> list[list[str]]:
    """The table at a moment: 200 rows of 8 cells."""
    made = []
    for number in range(COMPONENTS):
        count = 1_000 * moment + 37 * number
        cells = [f"{count:,}", f"{count + 5:,}", f"{count - 3:,}", str(number % 7)]
        made.append([f"component-{number:03}", "4", *cells, f"{number / 17:.2f} ms", f"{(moment + number) % 100} %"])
    return made


def series(moment: int) -> list[float]:
    """The chart at a moment: 360 values."""
    return [round(1000 + 400 * math.sin((moment + point) / 9), 1) for point in range(POINTS)]
