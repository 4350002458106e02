"""A spout that follows files, and what happens to the files: what tests of following share."""

from __future__ import annotations

import pickle
from pathlib import Path

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.spouts import TextSpout


class Tail:
    """A spout that follows, planned and read as its driver and a worker do, with a clock that stands still."""

    def __init__(self, patterns: Path | list[Path], progress: dict[str, int] | None = None) -> None:
        self.patterns = patterns
        self.now = 0.0
        self.progress = progress if progress is not None else {}
        self.failed: list[str] = []
        self.start()

    def start(self) -> None:
        """A new life of the driver, with new workers."""
        self.spout = TextSpout(self.patterns, follow=True)
        self.spout.open(TopologyContext("t", "lines", 0, 2, 1, Config()))
        assert self.spout._planner is not None
        assert self.spout._planner._follower is not None
        self.spout._planner._follower._clock = lambda: self.now
        self.worker = pickle.loads(pickle.dumps(self.spout))

    def plan(self, budget: int = 1 << 20) -> list[Range]:
        """What comes next, planned as the engine wants it: each source without a gap."""
        ranges = list(self.spout.next_ranges(self.progress, budget))
        for range_ in ranges:
            assert range_.start == self.progress.get(range_.source, range_.start)
            self.progress[range_.source] = range_.end
        return ranges

    def lines_of(self, ranges: list[Range]) -> list[str]:
        found = []
        for range_ in ranges:
            for record in self.worker.read(range_):
                if isinstance(record, BadRecord):
                    self.failed.append(record.reason)
                else:
                    found.append(record[1][0])
        return found

    def read(self, budget: int = 1 << 20) -> list[str]:
        """All that is there now, after a second in which new files are noticed."""
        self.now += 1.0
        found = []
        while ranges := self.plan(budget):
            found += self.lines_of(ranges)
        return found


def append(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def rotate(path: Path, keep: int = 5) -> None:
    """As logrotate does: a.log.1 becomes a.log.2, a.log becomes a.log.1; nothing takes its place."""
    for number in range(keep, 0, -1):
        older, newer = Path(f"{path}.{number + 1}"), Path(f"{path}.{number}")
        if newer.exists():
            newer.rename(older)
    path.rename(f"{path}.1")
