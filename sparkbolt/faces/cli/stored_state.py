"""Stored state: ``sparkbolt state`` shows and exports what bolts keep.

It reads the checkpoint with a Spark of its own, also while the topology runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkbolt.api.config import did_you_mean
from sparkbolt.base.shown_values import cut
from sparkbolt.control.lags import bytes_text
from sparkbolt.control.parameters import Parameter
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.command_arguments import AnyTopology, Count
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import checkpoint_of
from sparkbolt.faces.cli.tables import aligned
from sparkbolt.faces.cli.texts import show
from sparkbolt.spark.state_reading import StoredState
from sparkbolt.worker.state.task_view import TaskView, plain_json

CHARACTERS_MAX = 200
"""How much of a value is shown in a table."""
_MISSING: Any = object()


@dataclass(frozen=True)
class StoredItem:
    """A key with its value, or an attribute."""

    component: str
    task: int
    attribute: str | None
    """None: it is a key of the ``KeyValueState``."""
    key: Any
    value: Any

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        keyed = {"key": plain_json(self.key)} if self.attribute is None else {"attribute": self.attribute}
        return {"component": self.component, "task": self.task, **keyed, "value": plain_json(self.value)}

    def cells(self) -> list[str]:
        """The cells of a table."""
        name = repr(self.key) if self.attribute is None else f".{self.attribute}"
        return [f"{self.component}[{self.task}]", cut(name, CHARACTERS_MAX), cut(repr(self.value), CHARACTERS_MAX)]


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
        component: a bolt with state; without it, the bolts with state are listed, and how much they have.
        key: a key of its KeyValueState; a text, or JSON such as 7 or ["be", 7], where a list stands for a tuple.
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
    components = stored.components if component is None else [component]
    views = {name: stored.tasks(name) for name in components}
    if export is not None:
        items = [item for name, tasks in views.items() for item in _items(name, tasks)]
        _export(items, Path(export))
        show([f"{len(items):,} keys and attributes of micro-batch {stored.micro_batch} are in {export}"])
    elif component is None:
        show(_overview(views, stored.micro_batch, as_json=json))
    else:
        tasks = views[component]
        items = [*_items(component, tasks)] if key is None else [_found(component, tasks, key)]
        shown = items[:last]
        if json:
            show(dumps({"micro_batch": stored.micro_batch, **item.to_json()}) for item in shown)
        else:
            more = f", {len(shown)} shown (--last, --export FILE)" if len(shown) < len(items) else ""
            closing = f"micro-batch {stored.micro_batch}: {len(items):,} keys and attributes{more}"
            show([*aligned([item.cells() for item in shown]), closing])
    return EXIT_FINISHED


def _items(component: str, tasks: Sequence[TaskView]) -> Iterator[StoredItem]:
    for index, view in enumerate(tasks):
        for name, value in sorted(view.attributes().items()):
            yield StoredItem(component, index, name, None, value)
        for key, value in sorted(view.items(), key=lambda item: repr(item[0])):
            yield StoredItem(component, index, None, key, value)


def _found(component: str, tasks: Sequence[TaskView], text: str) -> StoredItem:
    """The value of the key that a text names.

    Raises:
        WrongUseError: no task has it.
    """
    for key in _keys_named(text):
        for index, view in enumerate(tasks):
            value = view.get(key, _MISSING)
            if value is not _MISSING:
                return StoredItem(component, index, None, key, value)
    known = (str(key) for view in tasks for key, _ in view.items())
    raise WrongUseError(f"{component!r} has no key {text!r}{did_you_mean(text, list(known))}")


def _keys_named(text: str) -> list[Any]:
    """The keys that a text can mean.

    >>> _keys_named("be"), _keys_named("7"), _keys_named('["be", 7]')
    (['be'], ['7', 7], ['["be", 7]', ('be', 7)])
    """
    try:
        read = loads(text)
    except ValueError:
        return [text]
    return [text, tuple(read) if isinstance(read, list) else read]


def _overview(views: dict[str, list[TaskView]], micro_batch: int, *, as_json: bool) -> list[str]:
    facts: list[dict[str, Any]] = [
        {
            "micro_batch": micro_batch,
            "component": name,
            "task": index,
            "keys": len(view),
            "attributes": sorted(view.attributes()),
            "other_bytes": view.others(),
        }
        for name, tasks in views.items()
        for index, view in enumerate(tasks)
    ]
    if as_json:
        return [dumps(fact) for fact in facts]
    rows = [
        [
            f"{fact['component']}[{fact['task']}]",
            f"{fact['keys']:,} keys",
            ", ".join([*fact["attributes"], *(f"{kind} {bytes_text(n)}" for kind, n in fact["other_bytes"].items())]),
        ]
        for fact in facts
    ]
    return [*aligned(rows), f"micro-batch {micro_batch}"]


def _export(items: Sequence[StoredItem], path: Path) -> None:
    if path.suffix == ".parquet":
        columns = {
            "component": pa.array([item.component for item in items], pa.string()),
            "task": pa.array([item.task for item in items], pa.int32()),
            "attribute": pa.array([item.attribute for item in items], pa.string()),
            "key": pa.array([None if item.attribute else dumps(plain_json(item.key)) for item in items], pa.string()),
            "value": pa.array([dumps(plain_json(item.value)) for item in items], pa.string()),
        }
        pq.write_table(pa.table(columns), path)
    else:
        path.write_text("".join(f"{dumps(item.to_json())}\n" for item in items))
