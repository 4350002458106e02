"""The reader: reads a ledger without its topology, to inspect a checkpoint.

It never writes, and counts only committed micro-batches, as a start does. The file ``topology``, which each start
keeps, maps task numbers to components, so a reader needs no user code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.reports import FailedTree
from sparkbolt.api.story import Story, root_text
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.file_access import Files
from sparkbolt.base.ids import MAX_SEQUENCE, MAX_TASK_NUMBER, split_key, tree_key, unmix64
from sparkbolt.base.source_names import is_named, short_sources
from sparkbolt.driver.ledger.generations import TOPOLOGY_FILE, Generation, Generations, SparkLog
from sparkbolt.driver.ledger.ledger import Ledger, Promotion
from sparkbolt.driver.ledger.ledger_files import load_ledger
from sparkbolt.driver.ledger.ledger_log import State
from sparkbolt.driver.ledger.ledger_settings import settings_of
from sparkbolt.errors import CheckpointError, InvariantError, SparkboltError
from sparkbolt.observe.measurements import Flow, FlowCounts

_ROOT = re.compile(r"(?:0x)?([0-9a-f]{16})", re.IGNORECASE)
_SEQUENCE = re.compile(r"(?:(\d+)|(.+)\[(\d+)\]):(\d+)")
_MESSAGE = re.compile(r"(.+)@(\d+)")


class UnknownTreeError(SparkboltError):
    """The requested tree cannot be a tree of this topology, or nothing is kept about it."""


READS_MAX = 5
"""How often a log is read at most, if it changes while it is read."""


def read_ledger(files: Files, where: str) -> LedgerReader:
    """The ledger of a checkpoint, whether its topology runs or not.

    Raises:
        CheckpointError: the files are not a checkpoint, or are damaged.
    """
    for attempt in range(READS_MAX):
        try:
            return LedgerReader(files, SparkLog(files).last_commit, where)
        except CheckpointError:
            # A running topology may have compacted its log after this reader looked up its last commit.
            if attempt == READS_MAX - 1 or files.read(TOPOLOGY_FILE) is None:
                raise
    raise InvariantError("the last attempt at reading a ledger returns or raises")


class _Remembering(Ledger):
    """A ledger that records which ranges of trees were acked in the entries that are not compacted yet."""

    def __init__(self, acked_ranges: list[tuple[int, int, int, int]], **settings: Any) -> None:
        super().__init__(**settings)
        self.acked_ranges = acked_ranges
        """(first key, last key, micro-batch, its time in milliseconds)."""

    def promote(self, micro_batch_id: int) -> Promotion:
        promotion = super().promote(micro_batch_id)
        self.acked_ranges += [(first, last, micro_batch_id, self.last_now_ms) for first, last, _ in promotion.acked]
        return promotion


class LedgerReader:
    """The ledger of a checkpoint, at the last commit."""

    def __init__(self, files: Files, last_commit: int, where: str) -> None:
        """Load the ledger.

        Args:
            files: the checkpoint's files.
            last_commit: the last micro-batch that is committed; -1 if none is.
            where: names the checkpoint in errors.

        Raises:
            CheckpointError: the files are not a checkpoint, or are damaged.
        """
        generations = Generations.read(files, where)
        if not generations:
            raise CheckpointError(
                f"{where} has no file {TOPOLOGY_FILE!r}: no topology was started with it, or it is another directory"
            )
        newest = generations[-1]
        self.topology: str = newest.fingerprint["name"]
        self._numbering = newest.numbering
        self._owner = self._numbering.owner
        self._spouts = [spout.component for spout in settings_of(newest)["spouts"]]
        self._acked_ranges: list[tuple[int, int, int, int]] = []

        def make(generation: Generation | None, state: State) -> Ledger:
            return _Remembering(self._acked_ranges, **settings_of(generation or newest), state=state)

        self._ledger = load_ledger(files, last_commit, make, generations, where=where)

    def failed(self) -> list[Story]:
        """The newest failed trees, oldest first."""
        return [tree.to_story() for tree in self._ledger.failed]

    def failed_trees(self) -> list[FailedTree]:
        """The same trees, as the ledger has them."""
        return self._ledger.failed

    def traced(self) -> list[Story]:
        """The newest traced trees that were acked, oldest first."""
        return self._ledger.traced

    def open(self, limit: int) -> list[Story]:
        """Up to ``limit`` open trees; for each task those that it started first."""
        return [self._ledger.story(key) for key in self._ledger.open_keys(limit)]

    @property
    def metrics(self) -> TopologyMetrics:
        """The counts since the first start, as they were promoted last; open trees are counted."""
        return self._ledger.metrics.copy_for(self._numbering.tasks)

    @property
    def flows(self) -> Mapping[Flow, FlowCounts]:
        """The counts by task and stream since the first start."""
        return self._ledger.flows

    @property
    def retries(self) -> int:
        """How many messages wait for a retry, as far as the checkpoint knows them."""
        return self._ledger.retries

    @property
    def last_ms(self) -> int:
        """The time of the last promoted micro-batch, in milliseconds since the epoch; 0 before the first."""
        return self._ledger.last_now_ms

    @property
    def counts(self) -> dict[str, int]:
        """The total numbers of failed and of open trees."""
        failed = sum(self._ledger.metrics.of(spout).failed for spout in self._spouts)
        return {TreeState.FAILED: failed, TreeState.OPEN: self._ledger.open_trees}

    def find(self, text: str) -> list[Story]:
        """The stored stories of the trees that ``text`` names, or one story from other records.

        Args:
            text: a root (16 hexadecimal digits), a task and a sequence (``lines[0]:40`` or ``2:40``), or a record
                (``books/a.txt@40``), which may have several attempts. The end of a source's path is enough if it fits
                only one kept record.

        Raises:
            UnknownTreeError: the text names no tree that this topology can have started.
        """
        if match := _ROOT.fullmatch(text):
            return [self._story(unmix64(int(match[1], 16)), text)]
        if match := _SEQUENCE.fullmatch(text):
            number = int(match[1]) if match[1] else self._number(match[2], int(match[3]), text)
            if number > MAX_TASK_NUMBER or int(match[4]) > MAX_SEQUENCE:
                raise UnknownTreeError(f"{text!r} names no tree: a task number or sequence is too large")
            return [self._story(tree_key(number, int(match[4])), text)]
        if match := _MESSAGE.fullmatch(text):
            return self._attempts(match[1], int(match[2]), text)
        raise UnknownTreeError(
            f"{text!r} names no tree: expected a root (16 hexadecimal digits), a task and a sequence (lines[0]:40 or "
            "2:40), or a record (books/a.txt@40)"
        )

    def other_attempts(self, story: Story) -> list[Story]:
        """The kept stories of other attempts at the same record, the first attempt first."""
        if story.source is None:
            return []
        place = story.component, story.source, story.position
        kept = [*self.failed(), *self.traced(), *(self._ledger.story(key) for key in self._ledger.told_keys())]
        same = [one for one in kept if (one.component, one.source, one.position) == place and one.key != story.key]
        return sorted(same, key=lambda one: (one.attempt or 0, one.key))

    def _attempts(self, source: str, position: int, text: str) -> list[Story]:
        kept = [*self.failed(), *self.traced(), *(self._ledger.story(key) for key in self._ledger.told_keys())]
        found = [one for one in kept if (one.source, one.position) == (source, position)]
        found = found or [one for one in kept if one.position == position and is_named(one.source or "", source)]
        meant = sorted({str(one.source) for one in found})
        if len(meant) > 1:
            names = short_sources(meant)
            raise UnknownTreeError(
                f"{text!r} may be a record of each of {meant}: give more of its name, such as "
                f"{f'{names[meant[0]]}@{position}'!r}"
            )
        if not found:
            raise UnknownTreeError(
                f"there is no story of a record {text!r}: it did not fail and was not traced, or newer stories "
                "replaced its story (setting stories_max). If its tree is open, `sparkbolt errors CHECKPOINT "
                "--state open` lists it by its root"
            )
        return sorted(found, key=lambda one: (one.attempt or 0, one.key))

    def _story(self, key: int, text: str) -> Story:
        number, sequence = split_key(key)
        try:
            component, task = self._owner(number)
        except KeyError:
            raise UnknownTreeError(
                f"{text!r} is not a root of topology {self.topology!r}, which has no task {number}: check that it "
                "belongs to this checkpoint"
            ) from None
        story = self._ledger.story(key)
        if story.state != TreeState.UNKNOWN:
            return story
        for first, last, micro_batch_id, now_ms in self._acked_ranges:
            if first <= key <= last:
                why = "its path is unknown: the tree was not traced and is not a retry"
                return Story(key, component, task, TreeState.ACKED, ended_in=micro_batch_id, ended_ms=now_ms, why=why)
        if sequence >= self._ledger.next_sequence(number) > 0:
            why = f"{component}[{task}] has not reached sequence {sequence} yet"
        else:
            why = (
                "there is no story of it: it was acked, newer stories replaced its story (setting stories_max), or "
                "the tree never existed"
            )
        return Story(key, component, task, TreeState.UNKNOWN, why=why)

    def _number(self, component: str, index: int, text: str) -> int:
        numbers = self._numbering.tasks.get(component, ())
        if index >= len(numbers):
            known = ", ".join(f"{name}[0..{len(own) - 1}]" for name, own in self._numbering.tasks.items())
            raise UnknownTreeError(f"{text!r}: topology {self.topology!r} has no task {component}[{index}]: {known}")
        return numbers[index]


def attempt_lines(stories: Sequence[Story]) -> list[str]:
    """The other attempts at a record, one per line."""
    return [f"  see also  root {root_text(one.key)}: attempt {one.attempt}, {one.state}" for one in stories]
