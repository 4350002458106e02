"""What each test takes: a file for each run of pytest, and the sums of the runs that ``scripts/test`` has made.

The files are ``.reports/durations/NAME.txt``: one line for each test, the slowest first. ``SPARKBOLT_STAGE`` gives the
name, which is ``by hand`` without it. No test fails because it takes long.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PLACE = Path(__file__).parents[1] / ".reports" / "durations"
COLUMNS = "seconds  of it setup  marks  test"
LONG_SECS = 5.0
"""A test that takes longer is to have one of the marks of ``LONG``."""
LONG = {"campaign", "slow"}


@dataclass
class Duration:
    """The seconds of one test, with its setup and teardown, which include the fixtures that it is the first to use."""

    test: str
    marks: list[str] = field(default_factory=list)
    seconds: float = 0.0
    setup: float = 0.0

    def line(self) -> str:
        """Its line in the file."""
        return f"{self.seconds:.2f}  {self.setup:.2f}  {','.join(self.marks) or '-'}  {self.test}"

    @classmethod
    def of_line(cls, line: str) -> Duration:
        """What ``line`` wrote."""
        seconds, setup, marks, test = line.split("  ", 3)
        return cls(test, [mark for mark in marks.split(",") if mark != "-"], float(seconds), float(setup))

    @property
    def lacks_its_mark(self) -> bool:
        """Whether it takes long, and no mark says so."""
        return self.seconds > LONG_SECS and not LONG & set(self.marks)


@dataclass(frozen=True)
class Stage:
    """One run of pytest."""

    name: str
    processes: int
    elapsed: float
    durations: list[Duration]

    @property
    def seconds(self) -> float:
        """The sum over its tests."""
        return sum(duration.seconds for duration in self.durations)

    def write(self, place: Path) -> None:
        """Write its file."""
        place.mkdir(parents=True, exist_ok=True)
        head = f"{self.processes} processes, {self.elapsed:.1f} s\n{COLUMNS}\n"
        slowest_first = sorted(self.durations, key=lambda duration: -duration.seconds)
        text = head + "".join(f"{duration.line()}\n" for duration in slowest_first)
        (place / f"{self.name}.txt").write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, place: Path, name: str) -> Stage:
        """Read what ``write`` wrote."""
        head, _, *lines = (place / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        processes, _, elapsed, _ = head.split()
        return cls(name, int(processes), float(elapsed), [Duration.of_line(line) for line in lines])


class Marks:
    """Adds a test's marks to its reports, in the process that runs it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Reports of pytest-xdist's processes keep additional attributes."""
        report = yield
        report.marks = sorted({mark.name for mark in item.iter_markers()} - {"parametrize", "usefixtures"})
        return report


class Durations:
    """Adds up the reports of a run, in the process that has all of them."""

    def __init__(self, config: pytest.Config, place: Path) -> None:
        self._place = place
        self._began = time.perf_counter()
        self._processes = len(getattr(config.option, "tx", None) or [1])
        self._durations: dict[str, Duration] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called for the setup, the call and the teardown of each test."""
        duration = self._durations.setdefault(report.nodeid, Duration(report.nodeid, report.marks))
        duration.seconds += report.duration
        if report.when == "setup":
            duration.setup = report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the file, unless no test ran."""
        if self._durations:
            name = os.environ.get("SPARKBOLT_STAGE", "by hand")
            elapsed = time.perf_counter() - self._began
            Stage(name, self._processes, elapsed, list(self._durations.values())).write(self._place)


def register(config: pytest.Config, place: Path = PLACE) -> None:
    """Write down what each test of this run takes."""
    config.pluginmanager.register(Marks())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config, place))


def folder_of(test: str) -> str:
    """The folder of a test, of two names at most."""
    return "/".join(test.split("::")[0].split("/")[:-1][:2])


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    texts = [
        head,
        *(tuple(f"{value:.0f}" if isinstance(value, float) else str(value) for value in row) for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *others in texts:
        numbers = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *numbers])


def summary(stages: list[Stage]) -> Iterator[str]:
    """The sums by stage and by folder, and the tests that lack a mark."""
    yield from table(
        ("stage", "tests", "seconds of tests", "in processes", "seconds of each", "elapsed"),
        [
            (
                stage.name,
                len(stage.durations),
                stage.seconds,
                stage.processes,
                stage.seconds / stage.processes,
                stage.elapsed,
            )
            for stage in stages
        ],
    )
    folders: dict[str, list[Duration]] = defaultdict(list)
    for stage in stages:
        for duration in stage.durations:
            folders[folder_of(duration.test)].append(duration)
    rows = [(folder, len(found), sum(duration.seconds for duration in found)) for folder, found in folders.items()]
    yield ""
    yield from table(("folder", "tests", "seconds of tests"), sorted(rows, key=lambda row: -row[2]))
    unmarked = [duration for stage in stages for duration in stage.durations if duration.lacks_its_mark]
    if unmarked:
        yield ""
        yield f"more than {LONG_SECS:.0f} seconds, and none of the marks {', '.join(sorted(LONG))}:"
        for duration in sorted(unmarked, key=lambda duration: -duration.seconds):
            yield f"  {duration.seconds:.1f} s, of which setup {duration.setup:.1f} s: {duration.test}"


def main() -> None:
    """Print the summary of the named stages that have run."""
    stages = [Stage.read(PLACE, name) for name in sys.argv[1:] if (PLACE / f"{name}.txt").exists()]
    if stages:
        print(*summary(stages), "", "each test: .reports/durations/", sep="\n")


if __name__ == "__main__":
    main()
