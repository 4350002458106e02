"""What Spark asks a source, written down: a recorder around the lane's source, and the form of its notes.

A record is a list of queries, in the order of their starts. Of each:

    offsets     Spark's offset log when the query started: [micro-batch, its end]
    commits     its commit log then
    calls       what was called, with the offsets that were given and answered:
                ["initialOffset"], ["latestOffset", start, end, last commit then], ["partitions", start, end],
                ["commit", end], ["run", micro-batch]; an end is "raised" where the call raised, and ["raised", n]
                stands behind the run of a micro-batch that failed

An offset is the number of its micro-batch, "before" for the constant that stands before the first. Of calls that
found no news one after the other only the first is kept: how many there are is a matter of time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sparkbolt.wire.plan import BEFORE_THE_FIRST


def short(offset: Any) -> Any:
    """An offset as it is noted."""
    if offset == BEFORE_THE_FIRST:
        return "before"
    return offset["micro_batch_id"] if isinstance(offset, dict) else offset


def logs_of(checkpoint: str) -> tuple[list[Any], list[int]]:
    """(offset log, commit log) of a checkpoint."""
    offsets = []
    for path in sorted(_numbered(checkpoint, "offsets"), key=lambda path: int(path.name)):
        offsets.append([int(path.name), short(json.loads(path.read_text().splitlines()[-1]))])
    return offsets, sorted(int(path.name) for path in _numbered(checkpoint, "commits"))


def _numbered(checkpoint: str, folder: str) -> list[Path]:
    return [path for path in Path(checkpoint, "spark", folder).glob("*") if path.name.isdigit()]


class Notes:
    """The notes of one checkpoint's queries, appended to by Spark's planner processes and by the driver."""

    def __init__(self, path: str, checkpoint: str) -> None:
        self.path, self.checkpoint = path, checkpoint

    def begin(self) -> None:
        """A query starts."""
        offsets, commits = logs_of(self.checkpoint)
        self.add("begin", offsets, commits)

    def add(self, *call: Any) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(call) + "\n")

    def has(self, *call: Any) -> bool:
        return json.dumps(call) in Path(self.path).read_text().splitlines()

    def asked(self, name: str, *arguments: Any) -> None:
        self.add(name, *map(short, arguments))

    def record(self) -> list[dict[str, Any]]:
        """All of it, in the form that is kept."""
        queries: list[dict[str, Any]] = []
        for line in Path(self.path).read_text().splitlines():
            call = json.loads(line)
            if call[0] == "begin":
                queries.append({"offsets": call[1], "commits": call[2], "calls": []})
            elif not queries[-1]["calls"] or queries[-1]["calls"][-1] != call:
                queries[-1]["calls"].append(call)
        return queries


def recording(make: Any, notes: Notes) -> Any:
    """``spark.data_source.data_source``, with a source that notes what it is asked."""

    def data_source(bundle: Any) -> Any:
        inner = make(bundle)

        class Recorded(inner):
            def streamReader(self, schema: Any) -> Any:  # noqa: N802  Spark calls it so
                reader = super().streamReader(schema)

                class Reader(type(reader)):
                    def initialOffset(self) -> Any:  # noqa: N802
                        notes.asked("initialOffset")
                        return super().initialOffset()

                    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
                        commit = max(logs_of(notes.checkpoint)[1], default=-1)
                        end: Any = "raised"
                        try:
                            end = super().latestOffset(start, limit)
                            return end
                        finally:
                            notes.asked("latestOffset", start, end, commit)

                    def partitions(self, start: Any, end: Any) -> Any:
                        notes.asked("partitions", start, end)
                        return super().partitions(start, end)

                    def commit(self, end: Any) -> None:
                        notes.asked("commit", end)

                reader.__class__ = Reader
                return reader

        return Recorded

    return data_source
