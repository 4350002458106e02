"""State reading: reads what the tasks of a topology keep from its checkpoint, while it runs or not.

Rule 1: an answer is of one committed micro-batch, in all tasks.
Rule 2: nothing is written, neither to the checkpoint nor to Spark's log of it.
Rule 3: no code of the topology is loaded, and none that the checkpoint names runs, unless the caller asks for it.
Rule 4: all of it is read by one Spark, that of this process, whatever thread asks.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from json import dumps, loads
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.keyed_state import likely_tasks
from sparkbolt.api.pickling import Pickling
from sparkbolt.base.exceptions import line_of
from sparkbolt.base.locations import local_directory
from sparkbolt.control.documents import ComponentStateDocument, StateDocument, TaskStateDocument
from sparkbolt.driver.begun import Begun
from sparkbolt.driver.ledger.generations import Generation, Generations, SparkLog
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_files import load_ledger
from sparkbolt.driver.ledger.ledger_log import State
from sparkbolt.driver.ledger.ledger_settings import settings_of
from sparkbolt.driver.ledger.messages import MessagesState
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.spark.checkpoint_files import open_files
from sparkbolt.spark.session import for_lane, make_session, running_session
from sparkbolt.spark.state_moves import read_segments
from sparkbolt.worker.state.state_rows import first_entries, first_of, keys_named, likely, named_in, rows_of, sizes_of
from sparkbolt.worker.state.task_view import StateOfTasks, TaskView

ROWS = "component string, task int, attribute string, key string, value string"
"""The columns of rows: a key with its value, or an attribute; keys and values are JSON."""
ROW_SCHEMA = pa.schema([(name, "int32" if kind == "int" else kind) for name, kind in map(str.split, ROWS.split(","))])
BATCH_ROWS = 1000
_MAKING = threading.Lock()
"""Held while a thread looks for the Spark of this process, and makes one if there is none."""


@dataclass(frozen=True)
class StoredState:
    """The state of a topology after one micro-batch."""

    directory: str
    """The directory or URL of the checkpoint."""
    micro_batch: int
    generation: Generation
    spark: SparkSession | None = None
    """Reads it; None: that of this process, or a new one."""

    @classmethod
    def of(cls, directory: str, as_of: int | None = None, spark: SparkSession | None = None) -> StoredState:
        """That of a checkpoint.

        Args:
            directory: the directory or URL of the checkpoint.
            as_of: a committed micro-batch; None: the last one.
            spark: the session that reads it; None: that of this process, or a new one.

        Raises:
            WrongUseError: there is no such directory, or no such micro-batch.
            CheckpointError: the directory is not a checkpoint, or has another format.
            StateError: nothing is committed yet.
        """
        files = open_files(directory)
        generations = Generations.read(files, f"checkpoint {directory}")
        commits = SparkLog(files, generations).numbers("commits")
        if not commits:
            raise StateError(f"checkpoint {directory} has no state yet: no micro-batch is committed")
        if as_of is not None and as_of not in commits:
            raise WrongUseError(
                f"micro-batch {as_of} is not there: checkpoint {directory} has {commits[0]} to {commits[-1]}"
            )
        micro_batch = commits[-1] if as_of is None else as_of
        return cls(directory, micro_batch, generations.of(micro_batch), spark)

    def stores(self) -> dict[int, dict[str, bytes]]:
        """The whole store of each task that keeps state, by its dest.

        Raises:
            StateError: as in ``tasks``.
        """
        found: dict[int, dict[str, bytes]] = {}
        for level in reversed(self.generation.placement["stateful"]):
            for dest, segments in self._collected(self._segments(level[0])).items():
                found[dest] = segments
        return found

    @property
    def components(self) -> list[str]:
        """The bolts that keep state, by level."""
        return [name for level in self.generation.placement["stateful"] for name in level]

    def tasks(
        self, component: str, pickling: Pickling | None = None, tasks: Sequence[int] | None = None
    ) -> list[TaskView]:
        """What tasks of a bolt keep; all of it is brought to this process.

        Args:
            component: the id of the bolt.
            pickling: as for ``TaskView``.
            tasks: their indices; None: all of them.

        Raises:
            WrongUseError: there is no such bolt, or it keeps no state.
            StateError: Spark does not keep the state of this micro-batch any more, or it is damaged.
        """
        dests = self._dests(component)
        chosen = dests if tasks is None else [dests[task] for task in tasks]
        found = self._collected(self._segments(component, chosen))
        return [TaskView(found.get(dest, {}), pickling) for dest in chosen]

    def state_of(self, component: str, pickling: Pickling | None = None) -> ComponentState:
        """What the tasks of a bolt keep, for Python.

        Args:
            component: the id of the bolt.
            pickling: as for ``TaskView``.

        Raises:
            WrongUseError: as in ``tasks``.
        """
        tasks = len(self._dests(component))

        def read(some: Sequence[int]) -> list[TaskView]:
            return self.tasks(component, pickling, some)

        return StateOfTasks(self.micro_batch, tasks, read, partial(self._typed_rows, component))

    # Answers that the executors make, however much the tasks keep: nothing else comes to this process.

    def sizes(self) -> StateDocument:
        """How much each task keeps.

        Raises:
            StateError: as in ``tasks``.
        """
        tasks = []
        for level in self.generation.placement["stateful"]:
            placed = [(name, task, dest) for name in level for task, dest in enumerate(self._dests(name))]
            answers = self._answers_of(level[0], [dest for _, _, dest in placed], sizes_of)
            for name, task, _ in placed:
                fields = {"component": name, "task": task, **self._answer(name, task, answers)}
                tasks.append(cast(TaskStateDocument, fields))
        return StateDocument(micro_batch=self.micro_batch, tasks=tasks)

    def first(self, component: str, first: int, characters_max: int | None = None) -> ComponentStateDocument:
        """The first attributes and keys of a bolt.

        Args:
            component: the id of the bolt.
            first: how many at most.
            characters_max: a longer value is cut; None: none is cut.

        Raises:
            WrongUseError: as in ``tasks``; so is ``StateError``.
        """
        found = self._answers(component, partial(first_of, first=first, characters_max=characters_max))
        count = sum(part["count"] for part in found.values())
        return self._document(component, count, first_entries(found, first))

    def named(self, component: str, text: str, characters_max: int | None = None) -> ComponentStateDocument:
        """The entries of the keys that a text names; the tasks that probably have them are read before the others.

        Args:
            component: the id of the bolt.
            text: as for ``keys_named``.
            characters_max: as for ``first``.

        Raises:
            WrongUseError: no task has such a key; otherwise as in ``tasks``, and so is ``StateError``.
        """
        ask, number = partial(named_in, text=text, characters_max=characters_max), len(self._dests(component))
        owners = likely_tasks(keys_named(text), number)
        nearest: list[str] = []
        for tasks in (owners, [task for task in range(number) if task not in owners]):
            found = self._answers(component, ask, tasks) if tasks else {}
            entries = first_entries(found, number)
            if entries:
                return self._document(component, len(entries), entries)
            nearest += [one for part in found.values() for one in part["nearest"]]
        raise WrongUseError(f"{component!r} has no key {text!r}{did_you_mean(text, nearest) or likely(nearest)}")

    def _document(self, component: str, count: int, entries: list[Any]) -> ComponentStateDocument:
        return ComponentStateDocument(component=component, micro_batch=self.micro_batch, count=count, entries=entries)

    def rows(self, component: str) -> DataFrame:
        """All attributes and keys of a bolt; the columns of ``ROWS``.

        Raises:
            WrongUseError: as in ``tasks``; what ``StateError`` is there, the use of the rows raises as Spark's error.
        """
        dests = self._dests(component)

        def read(stored: pa.Table) -> pa.Table:
            dest, view = _view(stored)
            return row_table((component, dests.index(dest), *row) for row in rows_of(view))

        return self._segments(component, dests).groupBy("dest").applyInArrow(read, ROWS)

    def read_rows(self, component: str) -> Iterator[Any]:
        """The ``rows`` of a bolt, those of a few tasks at a time.

        Raises:
            WrongUseError: as in ``tasks``; so is ``StateError``.
        """
        try:
            yield from self.rows(component).toLocalIterator()
        except PySparkException as error:
            raise self._unreadable(error) from error

    def _typed_rows(self, component: str, key: str | None, value: str | None) -> DataFrame:
        rows = self.rows(component)
        for name, kind in (("key", key), ("value", value)):
            if kind is not None:
                whole = f.concat(f.lit('{"it":'), f.col(name), f.lit("}"))
                rows = rows.withColumn(name, f.from_json(whole, f"it {kind}")["it"])
        return rows

    def _answers(
        self, component: str, ask: Callable[[TaskView], Any], tasks: Sequence[int] | None = None
    ) -> dict[int, Any]:
        """By index: the answer of each task of a bolt, which is JSON."""
        dests = self._dests(component)
        chosen = range(len(dests)) if tasks is None else tasks
        answers = self._answers_of(component, [dests[task] for task in chosen], ask)
        return {task: self._answer(component, task, answers) for task in chosen}

    def _answer(self, component: str, task: int, answers: Mapping[int, Mapping[str, Any]]) -> Any:
        said = answers[self._dests(component)[task]]
        if "error" in said:
            raise StateError(f"task {task} of {component!r}: {said['error']}")
        return said["answer"]

    def _answers_of(
        self, component: str, dests: Sequence[int], ask: Callable[[TaskView], Any]
    ) -> dict[int, dict[str, Any]]:
        """By dest: the ``answer`` of each task, or an ``error``; all of them are in the level of a bolt."""

        def answer(stored: pa.Table) -> pa.Table:
            try:
                dest, view = _view(stored)
                said = {"answer": ask(view)}
            except Exception as error:  # noqa: BLE001  damaged state may raise anything
                dest = stored["dest"][0].as_py()
                said = {"error": str(error) if isinstance(error, StateError) else line_of(error)}
            return pa.table({"dest": pa.array([dest], pa.int32()), "said": pa.array([dumps(said)], pa.string())})

        asked = self._segments(component, dests).groupBy("dest").applyInArrow(answer, "dest int, said string")
        nothing = {"answer": ask(TaskView({}))}  # a task that has never kept anything is not in the store
        return dict.fromkeys(dests, nothing) | {row["dest"]: loads(row["said"]) for row in self._rows(asked)}

    def _dests(self, component: str) -> list[int]:
        """The dests of a bolt's tasks, by index."""
        known = self.generation.numbering.tasks
        if component not in self.components:
            if component in known:
                raise WrongUseError(f"{component!r} keeps no state: expected one of {', '.join(self.components)}")
            raise WrongUseError(f"there is no component {component!r}{did_you_mean(component, known)}")
        return [self.generation.placement["dests"][str(number)] for number in known[component]]

    def _segments(self, component: str, dests: Sequence[int] | None = None) -> DataFrame:
        """The segments of the level of a bolt, or of some tasks of it; the columns of ``SEGMENTS``."""
        levels = self.generation.placement["stateful"]
        operator = next(len(levels) - 1 - place for place, level in enumerate(levels) if component in level)
        path = local_directory(self.directory)
        place = self.directory if path is None else Path(path).absolute().as_uri()
        batch_id = self.micro_batch - self.generation.first
        try:
            rows = read_segments(self._session, f"{place}/{self.generation.folder}", operator, batch_id)
        except PySparkException as error:
            raise self._unreadable(error) from error
        return rows if dests is None else rows.where(rows["dest"].isin(list(dests)))

    @cached_property
    def _session(self) -> SparkSession:
        with _MAKING:
            spark = self.spark or running_session() or make_session("sparkbolt-state", "local[1]")
        most = max((len(self._dests(name)) for name in self.components), default=1)
        return for_lane(spark, max(1, min(most, spark.sparkContext.defaultParallelism)))

    def _rows(self, frame: DataFrame) -> Sequence[Row]:
        try:
            return frame.collect()
        except PySparkException as error:
            raise self._unreadable(error) from error

    def _collected(self, segments: DataFrame) -> dict[int, dict[str, bytes]]:
        found: dict[int, dict[str, bytes]] = defaultdict(dict)
        for row in self._rows(segments):
            found[row["dest"]][row["key"]] = bytes(row["value"])
        return found

    def _unreadable(self, error: PySparkException) -> StateError:
        return StateError(
            f"Spark cannot read the state of micro-batch {self.micro_batch} in checkpoint {self.directory} "
            f"({str(error).partition(chr(10))[0]:.300}): ask for a later micro-batch"
        )


def row_table(rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Rows of ``ROWS`` as a table, in batches, since the texts of one have at most 2 GiB."""
    left, batches = iter(rows), []
    while some := list(islice(left, BATCH_ROWS)):
        columns = zip(zip(*some, strict=True), ROW_SCHEMA.types, strict=True)
        batches.append(pa.record_batch([pa.array(*one) for one in columns], schema=ROW_SCHEMA))
    return pa.Table.from_batches(batches, ROW_SCHEMA)


def _view(stored: pa.Table) -> tuple[int, TaskView]:
    """The dest of a task, and what it keeps, from all rows of it."""
    segments = dict(zip(stored["key"].to_pylist(), stored["value"].to_pylist(), strict=True))
    return stored["dest"][0].as_py(), TaskView(segments)


def begun_from(directory: str) -> Begun:
    """What another run of a topology, without Spark, begins with: its state after the last commit of a checkpoint.

    Messages that were open, or waited for a retry, are left out.

    Raises:
        CheckpointError: as in ``StoredState.of``; so are ``WrongUseError`` and ``StateError``.
    """
    stored, files = StoredState.of(directory), open_files(directory)
    every = Generations.read(files, f"checkpoint {directory}")
    generations = Generations(one for one in every if one.base <= stored.micro_batch)
    ledger = load_ledger(
        files,
        stored.micro_batch,
        lambda before, state: Ledger(**settings_of(before or generations[-1]), state=state),
        generations,
        where=f"checkpoint {directory}",
    ).state()
    sequences = MessagesState(next_sequence=ledger.messages.next_sequence, next_letter=ledger.messages.next_letter)
    state = State(ledger.life, ledger.last_promoted, ledger.last_now_ms, messages=sequences)
    return Begun(generations, state, stored.stores())
