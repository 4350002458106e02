"""Figures: a median of samples, what it aims at, and how both are printed.

What was measured, how far apart were the samples, and is the aim reached?
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas")


@dataclass(frozen=True)
class Aim:
    """What a figure should be: ``Aim("at most", 1.3)``."""

    side: Literal["at least", "at most"]
    limit: float

    def reached(self, value: float) -> bool:
        return value >= self.limit if self.side == "at least" else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """One line of a benchmark's result; ``value`` is the median of ``samples``."""

    benchmark: str
    name: str
    samples: tuple[float, ...]
    unit: str
    aim: Aim | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return statistics.median(self.samples)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"benchmark": self.benchmark, "figure": self.name}
        body |= {"value": self.value, "unit": self.unit}
        if self.aim is not None:
            body |= {"aim": f"{self.aim.side} {self.aim.limit:g}", "reached": self.aim.reached(self.value)}
        return {**body, "samples": list(self.samples), **self.notes}

    def __str__(self) -> str:
        parts = [f"{self.benchmark:8} {self.name:44} {scaled(self.value, self.unit):>18}"]
        if self.aim is not None:
            verdict = "reached" if self.aim.reached(self.value) else "NOT REACHED"
            parts.append(f"aim: {self.aim.side} {scaled(self.aim.limit, self.unit)}: {verdict}")
        if len(self.samples) > 1:
            parts.append("samples: " + ", ".join(scaled(sample, "") for sample in self.samples))
        parts += [f"{name.replace('_', ' ')}: {value}" for name, value in self.notes.items()]
        return parts[0] + "  " + "; ".join(parts[1:])


def scaled(value: float, unit: str) -> str:
    """A number for people.

    >>> scaled(1_234_567, "words/s"), scaled(1.0349, "times"), scaled(8_200, "bytes")
    ('1.23 M words/s', '1.03 times', '8.2 k bytes')
    """
    if abs(value) >= 1e6:
        text = f"{value / 1e6:.3g} M"
    elif abs(value) >= 1e4 or (abs(value) >= 1e3 and unit == "bytes"):
        text = f"{value / 1e3:.3g} k"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Turn by turn, the ratio of two series measured in turn.

    >>> ratios([2.0, 6.0], [1.0, 2.0])
    (2.0, 3.0)
    """
    return tuple(a / b for a, b in zip(above, below, strict=True))


def machine() -> dict[str, Any]:
    """What a figure depends on and the benchmark does not choose."""
    facts: dict[str, Any] = {
        "benchmark": "machine",
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "platform": platform.platform(terse=True),
        "python": platform.python_version(),
        "commit": _commit(),
    }
    return facts | {package: importlib.metadata.version(package) for package in PACKAGES}


def _commit() -> str:
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


class Printer:
    """Prints figures as they come: lines for people, or one JSON object a line."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def machine(self) -> None:
        facts = machine()
        if self._as_json:
            print(json.dumps(facts), flush=True)
        else:
            print(", ".join(f"{name} {value}" for name, value in facts.items() if name != "benchmark"), flush=True)

    def figure(self, figure: Figure) -> None:
        print(json.dumps(figure.to_json()) if self._as_json else str(figure), flush=True)
