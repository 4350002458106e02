"""Stored state: ``sparkbolt state`` shows and exports what bolts keep.

It reads the checkpoint with a Spark of its own, also while the topology runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq

from sparkbolt.base.shown_values import cut
from sparkbolt.control.documents import ComponentStateDocument, StateDocument, StateEntry
from sparkbolt.control.lags import bytes_text
from sparkbolt.control.parameters import Parameter
from sparkbolt.faces.cli.command_arguments import AnyTopology, Count
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import checkpoint_of
from sparkbolt.faces.cli.tables import aligned
from sparkbolt.faces.cli.texts import show
from sparkbolt.spark.state_reading import ROW_SCHEMA, StoredState, row_table

CHARACTERS_MAX = 200
"""How much of a value is shown in a table."""
ROWS_WRITTEN = 10_000
"""How many rows of an export are written at once."""


def state(
    topology: AnyTopology,
    component: Annotated[str | None, Parameter(metavar="COMPONENT")] = None,
    key: Annotated[str | None, Parameter(metavar="KEY")] = None,
    *,
    as_of: Annotated[int | None, Parameter(metavar="MICRO_BATCH", lowest=0)] = None,
    last: Count = 50,
    export: Annotated[str | None, Parameter(metavar="FILE")] = None,
    json: bool = False,
) -> int:
    """Show the state of bolts: keys with their values, and attributes.

    Args:
        topology: the checkpoint, the name or the code of a topology, which may be running.
        component: a bolt that keeps state; without it, each bolt with how much it keeps.
        key: a key of its KeyValueState: JSON such as 7, "7" or ["be", 7], where a list stands for a tuple; what is no
            JSON is a text.
        as_of: a committed micro-batch (default: the last one).
        last: the maximum number of keys and attributes that are shown (default: 50).
        export: write all keys and attributes to this file, as JSON lines, or as Parquet if its name ends in .parquet.
        json: print one JSON object per line.

    Raises:
        WrongUseError: there is no such topology, component, key or micro-batch.
        CheckpointError: the directory is not a checkpoint, or has another format.
        StateError: nothing is committed, or the state cannot be read.
    """
    stored = StoredState.of(checkpoint_of(topology), as_of)
    if export is not None:
        number = _export(stored, [component] if component is not None else stored.components, Path(export))
        show([f"{number:,} keys and attributes of micro-batch {stored.micro_batch} are in {export}"])
    elif component is None:
        show(_overview(stored.sizes(), as_json=json))
    else:
        found = stored.first(component, last) if key is None else stored.named(component, key)
        show(_entries(found, as_json=json))
    return EXIT_FINISHED


def _entries(found: ComponentStateDocument, *, as_json: bool) -> list[str]:
    component, micro_batch, entries = found["component"], found["micro_batch"], found["entries"]
    if as_json:
        about = {"micro_batch": micro_batch, "component": component}
        return [dumps({**about, "task": one["task"], **_named(one), "value": one["value"]}) for one in entries]
    rows = []
    for one in entries:
        name = f".{one['attribute']}" if one["attribute"] is not None else dumps(one["key"], ensure_ascii=False)
        value = cut(dumps(one["value"], ensure_ascii=False), CHARACTERS_MAX)
        rows.append([f"{component}[{one['task']}]", cut(name, CHARACTERS_MAX), value])
    more = f", {len(entries)} shown (--last, --export FILE)" if len(entries) < found["count"] else ""
    return [*aligned(rows), f"micro-batch {micro_batch}: {found['count']:,} keys and attributes{more}"]


def _named(one: StateEntry) -> dict[str, Any]:
    return {"key": one["key"]} if one["attribute"] is None else {"attribute": one["attribute"]}


def _overview(found: StateDocument, *, as_json: bool) -> list[str]:
    if as_json:
        return [dumps({"micro_batch": found["micro_batch"], **fact}) for fact in found["tasks"]]
    rows = [
        [
            f"{fact['component']}[{fact['task']}]",
            f"{fact['keys']:,} keys",
            bytes_text(fact["bytes"]),
            ", ".join([*fact["attributes"], *(f"{kind} {bytes_text(n)}" for kind, n in fact["other_bytes"].items())]),
        ]
        for fact in found["tasks"]
    ]
    return [*aligned(rows), f"micro-batch {found['micro_batch']}"]


def _export(stored: StoredState, components: Sequence[str], path: Path) -> int:
    """Write all rows to a file, task by task, and return their number.

    Raises:
        StateError: the state cannot be read.
    """
    number = 0
    rows = (row for component in components for row in stored.read_rows(component))
    if path.suffix != ".parquet":
        with path.open("w") as lines:
            for row in rows:
                named = {"key": loads(row.key)} if row.attribute is None else {"attribute": row.attribute}
                about = {"component": row.component, "task": row.task, **named, "value": loads(row.value)}
                lines.write(f"{dumps(about)}\n")
                number += 1
        return number
    with pq.ParquetWriter(path, ROW_SCHEMA) as table:
        while some := list(islice(rows, ROWS_WRITTEN)):
            table.write_table(row_table(some))
            number += len(some)
    return number
