"""State reading: reads what the tasks of a topology keep from its checkpoint, while it runs or not.

Rule 1: an answer is of one committed micro-batch, in all tasks.
Rule 2: nothing is written, neither to the checkpoint nor to Spark's log of it.
Rule 3: no code of the topology is loaded, and none that the checkpoint names runs, unless the caller asks for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.pickling import Pickling
from sparkbolt.base.locations import local_directory
from sparkbolt.driver.begun import Begun
from sparkbolt.driver.ledger.generations import Generation, Generations, SparkLog
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_files import load_ledger
from sparkbolt.driver.ledger.ledger_log import State
from sparkbolt.driver.ledger.ledger_settings import settings_of
from sparkbolt.driver.ledger.messages import MessagesState
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.spark.checkpoint_files import open_files
from sparkbolt.spark.session import for_lane, make_session
from sparkbolt.spark.state_moves import read_segments
from sparkbolt.worker.state.task_view import TaskView


@dataclass(frozen=True)
class StoredState:
    """The state of a topology after one micro-batch."""

    directory: str
    """The directory or URL of the checkpoint."""
    micro_batch: int
    generation: Generation
    spark: SparkSession | None = None
    """Reads it; None: the active session, or a new one."""

    @classmethod
    def of(cls, directory: str, as_of: int | None = None, spark: SparkSession | None = None) -> StoredState:
        """That of a checkpoint.

        Args:
            directory: the directory or URL of the checkpoint.
            as_of: a committed micro-batch; None: the last one.
            spark: the session that reads it; None: the active one, or a new one.

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
        for operator in range(len(self.generation.placement["stateful"])):
            for dest, key, value in self._rows(operator):
                found.setdefault(dest, {})[key] = value
        return found

    @property
    def components(self) -> list[str]:
        """The bolts that keep state, by level."""
        return [name for level in self.generation.placement["stateful"] for name in level]

    def tasks(self, component: str, pickling: Pickling | None = None) -> list[TaskView]:
        """What each task of a bolt keeps, by index.

        Args:
            component: the id of the bolt.
            pickling: as for ``TaskView``.

        Raises:
            WrongUseError: there is no such bolt, or it keeps no state.
            StateError: Spark does not keep the state of this micro-batch any more, or it is damaged.
        """
        levels = self.generation.placement["stateful"]
        place = next((number for number, level in enumerate(levels) if component in level), None)
        if place is None:
            known = self.generation.numbering.tasks
            if component in known:
                raise WrongUseError(f"{component!r} keeps no state: expected one of {', '.join(self.components)}")
            raise WrongUseError(f"there is no component {component!r}{did_you_mean(component, known)}")
        found: Mapping[int, dict[str, bytes]] = defaultdict(dict)
        numbers = self.generation.numbering.tasks[component]
        dests = [self.generation.placement["dests"][str(number)] for number in numbers]
        for dest, key, value in self._rows(len(levels) - 1 - place, dests):
            found[dest][key] = value
        return [TaskView(found[dest], pickling) for dest in dests]

    def _rows(self, operator: int, dests: list[int] | None = None) -> Iterator[tuple[int, str, bytes]]:
        spark = self.spark or SparkSession.getActiveSession() or make_session("sparkbolt-state", "local[1]")
        session, path = for_lane(spark, 1), local_directory(self.directory)
        place = self.directory if path is None else Path(path).absolute().as_uri()
        folder, batch_id = f"{place}/{self.generation.folder}", self.micro_batch - self.generation.first
        try:
            rows = read_segments(session, folder, operator, batch_id)
            for row in (rows if dests is None else rows.where(rows["dest"].isin(dests))).collect():
                yield row["dest"], row["key"], bytes(row["value"])
        except PySparkException as error:
            raise StateError(
                f"Spark cannot read the state of micro-batch {self.micro_batch} in checkpoint {self.directory} "
                f"({str(error).partition(chr(10))[0]:.300}): ask for a later micro-batch"
            ) from error


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
